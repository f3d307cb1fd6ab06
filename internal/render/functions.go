package render

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// functions folds what lies below the leading levels.
func (o Options) functions(t *profile.Tree) []profile.Function {
	level := []*profile.Node{t.Root}
	for range max(0, o.Lead) {
		var next []*profile.Node
		for _, n := range level {
			next = append(next, n.Children...)
		}
		level = next
	}
	root := &profile.Node{Self: t.Root.Self, Total: t.Root.Total}
	for _, n := range level {
		root.Children = append(root.Children, n.Children...)
	}
	return (&profile.Tree{Root: root, Columns: t.Columns}).Functions()
}

func (o Options) limited(functions []profile.Function) []profile.Function {
	if o.Limit > 0 && len(functions) > o.Limit {
		return functions[:o.Limit]
	}
	return functions
}

// jsonTop is what TopJSON writes.
type jsonTop struct {
	Title     string         `json:"title"`
	Kind      string         `json:"kind"`
	Unit      string         `json:"unit"`
	Columns   []columnHead   `json:"columns"`
	Family    *jsonFamily    `json:"comparison,omitempty"`
	Functions []jsonFunction `json:"functions"`
}

// jsonFamily is what is known of all changes together, those of functions that
// are not listed too.
type jsonFamily struct {
	Compared         int     `json:"compared"`
	Tested           int     `json:"tested"`
	Significant      int     `json:"significant"`
	FalseDiscoveries float64 `json:"falseDiscoveries"` // what part of these may be chance
	Level            float64 `json:"level"`            // the P at which one more would be
}

type jsonFunction struct {
	Function  string      `json:"function"`
	Linkage   string      `json:"linkage,omitempty"`
	File      string      `json:"file,omitempty"`
	StartLine int         `json:"startLine,omitempty"`
	Mapping   string      `json:"mapping,omitempty"`
	Kind      string      `json:"kind"`
	Class     string      `json:"class"`
	Self      []jsonSum   `json:"self"`  // one per column
	Total     []jsonSum   `json:"total"` // one per column
	Change    *jsonChange `json:"change,omitempty"`
}

type jsonSum struct {
	N        int64       `json:"n"`
	Value    int64       `json:"value"`
	Share    float64     `json:"share"`
	Interval *[2]float64 `json:"interval,omitempty"` // 95%, of the share
}

type jsonChange struct {
	Difference  float64    `json:"difference"` // of the total's shares
	Interval    [2]float64 `json:"interval"`
	P           float64    `json:"p"`
	Adjusted    float64    `json:"adjusted"` // P, of as many as were tested
	Tested      bool       `json:"tested"`   // else there are too few samples
	Significant bool       `json:"significant"`
	Detectable  float64    `json:"detectable"` // the least rise that would be found, 4 times of 5
	// CPU is the difference in seconds, of the CPU time that was exactly used.
	CPU *jsonSeconds `json:"cpu,omitempty"`
}

type jsonSeconds struct {
	Seconds  float64    `json:"seconds"`
	Interval [2]float64 `json:"interval"`
}

// TopJSON writes the functions of a tree as one JSON object. Names are as they
// were found, but for bytes that are not UTF-8, which become \xff.
func TopJSON(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render json: %w", err)
	}
	c := newCertainty(t)
	head := o.head(t)
	top := jsonTop{Title: head.Title, Kind: head.Kind, Unit: head.Unit, Columns: head.Columns, Functions: []jsonFunction{}}
	for i := range top.Columns {
		top.Columns[i].Curves = nil
	}
	functions := o.functions(t)
	var changes []*stats.Comparison
	if len(t.Columns) == 2 {
		for _, f := range functions {
			changes = append(changes, c.compare(f.Total))
		}
		family := stats.Judge(changes)
		top.Family = &jsonFamily{family.Compared, family.Tested, family.Found, stats.FalseDiscoveries, family.Level}
	}
	for i, f := range o.limited(functions) {
		j := jsonFunction{Function: valid(f.Frame.Function), Linkage: valid(f.Frame.Linkage), File: valid(f.Frame.File),
			StartLine: f.Frame.StartLine, Mapping: valid(f.Frame.Mapping), Kind: f.Frame.Kind.String(), Class: f.Frame.Class.String()}
		for column := range t.Columns {
			j.Self = append(j.Self, c.json(column, f.Self[column]))
			j.Total = append(j.Total, c.json(column, f.Total[column]))
		}
		if len(t.Columns) == 2 {
			j.Change = c.jsonChange(f.Total, changes[i], top.Family.Level)
		}
		top.Functions = append(top.Functions, j)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(top); err != nil {
		return fmt.Errorf("render json: %w", err)
	}
	return nil
}

func (c certainty) jsonChange(parts []profile.Sum, change *stats.Comparison, level float64) *jsonChange {
	d := change.Difference
	rise, _ := stats.Detectable(change.Before.Value, c.side(0, parts[0]), c.side(1, parts[1]), level)
	return &jsonChange{d.Value, [2]float64{d.Low, d.High}, change.P, change.Adjusted, change.Tested, change.Significant(), rise, c.seconds(change)}
}

// seconds returns how much more time was used, where the exact total of both columns is
// known.
func (c certainty) seconds(change *stats.Comparison) *jsonSeconds {
	before, after := c.columns[0], c.columns[1]
	was, is := time.Duration(before.Head.Exact.Of(before.Type.Base)), time.Duration(after.Head.Exact.Of(after.Type.Base))
	if before.Type.Unit != "nanoseconds" || was <= 0 || is <= 0 {
		return nil
	}
	d := stats.Difference(stats.TotalFromShare(change.Before, was.Seconds()), stats.TotalFromShare(change.After, is.Seconds()))
	return &jsonSeconds{d.Value, [2]float64{d.Low, d.High}}
}

func (c certainty) json(column int, sum profile.Sum) jsonSum {
	j := jsonSum{N: sum.N, Value: sum.Value, Share: c.share(column, sum)}
	if i, ok := c.interval(column, sum); ok {
		j.Interval = &[2]float64{i.Low, i.High}
	}
	return j
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return Printable(s)
}
