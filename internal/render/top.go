package render

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// Top writes a table of functions, largest self value first.
func Top(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render top: %w", err)
	}
	if len(t.Columns) == 2 {
		return Diff(w, t, o)
	}
	c := newCertainty(t, o)
	unit := t.Columns[0].Type.Unit
	functions := o.functions(t)
	table := textTable{heads: []string{"self", "self%", "total", "total%", "95% interval", "samples", "function"}}
	for _, f := range o.limited(functions) {
		self, total := f.Self[0], f.Total[0]
		interval := "-"
		if i, ok := c.interval(0, total); ok {
			interval = shareInterval(i.Low, i.High)
		}
		table.add(Value(float64(self.Value), unit), Share(c.share(0, self)), Value(float64(total.Value), unit), Share(c.share(0, total)),
			interval, Count(total.N), printable(f.Frame.Function), origin(f.Frame))
	}
	return table.write(w, t, o, len(functions))
}

// Diff writes a table of functions whose share changed between two columns,
// the largest change first. A change that could be chance is marked by "?".
func Diff(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render diff: %w", err)
	}
	if len(t.Columns) != 2 {
		return fmt.Errorf("render diff: the tree has %d column, want 2", len(t.Columns))
	}
	c := newCertainty(t, o)
	functions := o.functions(t)
	changes := make(map[*profile.Function]stats.Interval, len(functions))
	for i := range functions {
		changes[&functions[i]], _ = c.change(functions[i].Total)
	}
	order := pointers(functions)
	slices.SortStableFunc(order, func(a, b *profile.Function) int {
		return cmp.Compare(math.Abs(changes[b].Value), math.Abs(changes[a].Value))
	})
	table := textTable{heads: []string{"change", "95% interval", "", "before", "after", "function"}}
	for i, f := range order {
		if o.Limit > 0 && i == o.Limit {
			break
		}
		mark := ""
		if _, significant := c.change(f.Total); !significant {
			mark = "?"
		}
		d := changes[f]
		table.add(changeText(d.Value), changeInterval(d.Low, d.High), mark, Share(c.share(0, f.Total[0])), Share(c.share(1, f.Total[1])), printable(f.Frame.Function), origin(f.Frame))
	}
	return table.write(w, t, o, len(functions))
}

func pointers(functions []profile.Function) []*profile.Function {
	out := make([]*profile.Function, len(functions))
	for i := range functions {
		out[i] = &functions[i]
	}
	return out
}

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

// origin is the binary or file a function belongs to, without its folder.
func origin(f profile.Frame) string {
	where := f.Mapping
	if where == "" {
		where = f.File
	}
	if where == "" {
		return ""
	}
	return printable(path.Base(where))
}

// textTable is a table of figures, aligned right in columns as wide as they
// need to be, and a function with its origin in the room that is left.
type textTable struct {
	heads []string // the last is the function's
	rows  [][]string
}

func (t *textTable) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *textTable) write(w io.Writer, tree *profile.Tree, o Options, all int) error {
	out := bufio.NewWriter(w)
	writeFacts(out, tree, o)
	fmt.Fprintln(out)
	widths := make([]int, len(t.heads)-1)
	for _, row := range append([][]string{t.heads}, t.rows...) {
		for i, text := range row[:len(widths)] {
			widths[i] = max(widths[i], cells(text))
		}
	}
	head := t.line(append(t.heads, ""), widths, o)
	if !o.NoColor {
		head = "\x1b[2m" + head + "\x1b[0m"
	}
	fmt.Fprintln(out, head)
	for _, row := range t.rows {
		fmt.Fprintln(out, t.line(row, widths, o))
	}
	if all > len(t.rows) {
		fmt.Fprintf(out, "and %s\n", plural(all-len(t.rows), "more function", "more functions"))
	}
	if all == 0 {
		fmt.Fprintln(out, "no samples")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (t *textTable) line(row []string, widths []int, o Options) string {
	var line strings.Builder
	used := 0
	for i, text := range row[:len(widths)] {
		line.WriteString(strings.Repeat(" ", widths[i]-cells(text)) + text + "  ")
		used += widths[i] + 2
	}
	name, origin := row[len(widths)], row[len(widths)+1]
	room := max(10, o.Width-used)
	if o.Width <= 0 {
		room = math.MaxInt
	}
	if origin != "" && cells(name)+cells(origin)+4 <= room {
		name += "  (" + origin + ")"
	} else {
		name = fit(shorten(name, func(s string) bool { return cells(s) <= room }), room)
	}
	return line.String() + name
}

// jsonTop is what TopJSON writes.
type jsonTop struct {
	Title     string         `json:"title"`
	Kind      string         `json:"kind"`
	Unit      string         `json:"unit"`
	Columns   []columnHead   `json:"columns"`
	Functions []jsonFunction `json:"functions"`
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
	Significant bool       `json:"significant"`
}

// TopJSON writes what Top and Diff show as one JSON object. Names are as they
// were found, but for bytes that are not UTF-8, which become \xff.
func TopJSON(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render json: %w", err)
	}
	c := newCertainty(t, o)
	head := o.head(t)
	top := jsonTop{Title: head.Title, Kind: head.Kind, Unit: head.Unit, Columns: head.Columns, Functions: []jsonFunction{}}
	for i := range top.Columns {
		top.Columns[i].Curves = nil
	}
	for _, f := range o.limited(o.functions(t)) {
		j := jsonFunction{Function: valid(f.Frame.Function), Linkage: valid(f.Frame.Linkage), File: valid(f.Frame.File),
			StartLine: f.Frame.StartLine, Mapping: valid(f.Frame.Mapping), Kind: f.Frame.Kind.String(), Class: f.Frame.Class.String()}
		for column := range t.Columns {
			j.Self = append(j.Self, c.json(column, f.Self[column]))
			j.Total = append(j.Total, c.json(column, f.Total[column]))
		}
		if len(t.Columns) == 2 {
			d, significant := c.change(f.Total)
			j.Change = &jsonChange{d.Value, [2]float64{d.Low, d.High}, significant}
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
	return printable(s)
}
