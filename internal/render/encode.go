package render

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/gzip"

	"atys.dev/atys/internal/profile"
)

// A document is gzip over this, all numbers unsigned LEB128 ("varint"), every
// list a column of its own, since like compresses well beside like:
//
//	| length | head: JSON                                              |
//	| strings | shared prefix ... | suffix length ... | suffix bytes ... |
//	| frames  | function ... | file ... | mapping ... | package ...      |
//	|         | start line ... | kind ... | class ...                    |
//	| nodes   | children ... | frame ... | line ... | flags ...          |
//	|         per column: | samples of its own ... | value of its own ... |
//	|                     | squared weights of its own, relative ...      |
//
// Strings are sorted; each gives how much of the one before it repeats. Nodes
// stand in level order, so the counts of children alone tell the tree; the
// first is the root. Totals are the sums of what lies below and are not stored.
// Squared weights are in units of 1/16 of what they would be for the node's
// value if weights were distributed as in the whole.
const (
	flagInlined  = 1
	squaresScale = 16
	nodeColumns  = 4
	sumColumns   = 3
)

// compression is a level that takes 6 ms for the 758 kB of a service of 20,000
// stacks. The best takes 290 ms, for a document that is 4% smaller.
const compression = 6

// document collects the columns of a tree.
type document struct {
	strings []string
	index   map[string]int
	frames  []profile.Frame
	frameOf map[profile.FrameKey]int
	nodes   []*profile.Node
	frame   []int // of each node
	clamped int   // nodes whose own value is below zero, drawn as nothing
}

// pageHead is the JSON head of a document.
type pageHead struct {
	Title   string       `json:"title"`
	Kind    string       `json:"kind"`
	Unit    string       `json:"unit"`
	ColorBy ColorBy      `json:"colorBy"`
	Flame   bool         `json:"flame"`
	Lead    int          `json:"lead"`
	Kinds   []swatch     `json:"kinds"`
	Classes []swatch     `json:"classes"`
	Columns []columnHead `json:"columns"`
	Changes *changesHead `json:"changes,omitempty"` // of two columns
}

// changesHead says how many changes were tested, and by how much an interval of
// 95% has to be widened, as many as these are together, to tell them from chance.
type changesHead struct {
	Compared int     `json:"compared"`
	Tested   int     `json:"tested"`
	Found    int     `json:"found"`
	Widen    float64 `json:"widen"`
}

// columnHead is what the page says of one window.
type columnHead struct {
	Target   string     `json:"target,omitempty"`
	Start    string     `json:"start,omitempty"`
	Duration float64    `json:"duration"` // ns
	Samples  int64      `json:"samples"`
	Value    int64      `json:"value"`
	Period   int64      `json:"period,omitempty"`
	Design   string     `json:"design,omitempty"`
	Exact    exactHead  `json:"exact"`
	Idle     int64      `json:"idle,omitempty"`    // ns
	Watched  int64      `json:"watched,omitempty"` // ns
	Losses   []lossHead `json:"losses,omitempty"`
	Lacks    *lacksHead `json:"lacks,omitempty"` // the losses in words
	Comments []string   `json:"comments,omitempty"`
	Curves   []curve    `json:"curves,omitempty"`
}

type exactHead struct {
	CPU       int64  `json:"cpu"`
	User      int64  `json:"user"`
	System    int64  `json:"system"`
	Source    string `json:"source,omitempty"`
	Interrupt bool   `json:"interrupt,omitempty"`
}

type lossHead struct {
	Reason string  `json:"reason"`
	Detail string  `json:"detail,omitempty"`
	N      int64   `json:"n"`
	Share  float64 `json:"share"` // 0: not known
}

// lacksHead is what is missing, in words.
type lacksHead struct {
	Line  string   `json:"line"`
	Items []string `json:"items"`
	Loud  bool     `json:"loud,omitempty"`
}

func lacksHeadOf(l Lacks) *lacksHead {
	if len(l.Items) == 0 {
		return nil
	}
	return &lacksHead{l.Line, l.Items, l.Loud}
}

func (o Options) head(t *profile.Tree) pageHead {
	h := pageHead{Title: o.title(t), Kind: Printable(t.Columns[0].Type.Kind), Unit: Printable(t.Columns[0].Type.Unit),
		ColorBy: o.colorBy(), Flame: o.Flame, Lead: max(0, o.Lead), Kinds: kindSwatches(), Classes: classSwatches()}
	for i, c := range t.Columns {
		h.Columns = append(h.Columns, columnHeadOf(c, t.Root.Total[i]))
		h.Columns[i].Curves = curves(newCertainty(t), i)
	}
	if o.Lacks != nil {
		h.Columns[0].Lacks = lacksHeadOf(*o.Lacks)
	}
	return h
}

func columnHeadOf(c profile.Column, whole profile.Sum) columnHead {
	h := columnHead{
		Duration: float64(c.Head.Duration), Samples: whole.N, Value: whole.Value,
		Period: c.Type.Period, Design: Printable(string(c.Head.Design)),
		Idle: int64(c.Head.Idle), Watched: int64(c.Head.Watched),
		Exact: exactHead{CPU: int64(c.Head.Exact.CPU), User: int64(c.Head.Exact.User), System: int64(c.Head.Exact.System),
			Source: Printable(c.Head.Exact.Source), Interrupt: c.Head.Exact.IncludesInterrupt},
	}
	if len(c.Head.Target) > 0 {
		h.Target = Printable(c.Head.Target.String())
	}
	if !c.Head.Start.IsZero() {
		h.Start = c.Head.Start.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	losses := wordingOf(c.Head.Losses, whole.N, c.Head.Exact.CPU)
	for _, l := range c.Head.Losses {
		if l.N != 0 || l.Value != 0 {
			h.Losses = append(h.Losses, lossHead{Reason: Printable(string(l.Reason)), Detail: Printable(l.Detail), N: l.N, Share: losses.share(l)})
		}
	}
	h.Lacks = lacksHeadOf(Losses(c.Head.Losses, whole.N, c.Head.Exact.CPU))
	for _, text := range c.Head.Comments {
		h.Comments = append(h.Comments, Printable(text))
	}
	return h
}

// encode writes a tree as a document.
func encode(w io.Writer, t *profile.Tree, o Options) error {
	d := newDocument(t)
	head := o.head(t)
	if len(t.Columns) == 2 {
		f := newCertainty(t).changesOf(t).family
		head.Changes = &changesHead{f.Compared, f.Tested, f.Found, f.Widen()}
	}
	if d.clamped > 0 {
		head.Columns[0].Comments = append(head.Columns[0].Comments,
			fmt.Sprintf("%d stacks have a value below zero (a difference was taken); they are drawn as nothing", d.clamped))
	}
	text, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("encode head: %w", err)
	}
	out := binary.AppendUvarint(nil, uint64(len(text)))
	out = append(out, text...)
	out = d.appendStrings(out)
	out = d.appendFrames(out)
	out = d.appendNodes(out, t.Root.Total)
	zip, err := gzip.NewWriterLevel(w, compression)
	if err != nil {
		return fmt.Errorf("compress document: %w", err)
	}
	if _, err := zip.Write(out); err != nil {
		return fmt.Errorf("compress document: %w", err)
	}
	return zip.Close()
}

func newDocument(t *profile.Tree) *document {
	d := &document{frameOf: map[profile.FrameKey]int{}, nodes: []*profile.Node{t.Root}}
	for i := 0; i < len(d.nodes); i++ {
		n := d.nodes[i]
		d.frame = append(d.frame, d.addFrame(&n.Frame))
		d.nodes = append(d.nodes, n.Children...)
		if slices.ContainsFunc(n.Self, func(s profile.Sum) bool { return s.N < 0 || s.Value < 0 }) {
			d.clamped++
		}
	}
	seen := map[string]bool{"": true}
	d.strings = []string{""}
	for _, f := range d.frames {
		for _, s := range [...]string{f.Function, f.File, f.Mapping, f.Linkage} {
			if !seen[s] {
				seen[s] = true
				d.strings = append(d.strings, s)
			}
		}
	}
	slices.Sort(d.strings)
	d.index = make(map[string]int, len(d.strings))
	for i, s := range d.strings {
		d.index[s] = i
	}
	return d
}

// addFrame keeps one frame of each function, made safe to show, and gives its
// number. Linkage, which pages do not show, carries the package here.
func (d *document) addFrame(of *profile.Frame) int {
	key := of.Key()
	number, ok := d.frameOf[key]
	if !ok {
		f := *of
		f.Linkage = Printable(packageOf(f))
		f.Function, f.File, f.Mapping = Printable(f.Function), Printable(f.File), Printable(f.Mapping)
		number = len(d.frames)
		d.frameOf[key] = number
		d.frames = append(d.frames, f)
	}
	return number
}

func (d *document) appendStrings(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(d.strings)))
	prefixes := make([]int, len(d.strings))
	for i, s := range d.strings {
		if i > 0 {
			before := d.strings[i-1]
			for prefixes[i] < min(len(before), len(s)) && before[prefixes[i]] == s[prefixes[i]] {
				prefixes[i]++
			}
		}
		out = binary.AppendUvarint(out, uint64(prefixes[i]))
	}
	for i, s := range d.strings {
		out = binary.AppendUvarint(out, uint64(len(s)-prefixes[i]))
	}
	for i, s := range d.strings {
		out = append(out, s[prefixes[i]:]...)
	}
	return out
}

func (d *document) appendFrames(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(d.frames)))
	for _, field := range [...]func(profile.Frame) int{
		func(f profile.Frame) int { return d.index[f.Function] },
		func(f profile.Frame) int { return d.index[f.File] },
		func(f profile.Frame) int { return d.index[f.Mapping] },
		func(f profile.Frame) int { return d.index[f.Linkage] },
		func(f profile.Frame) int { return max(0, f.StartLine) },
		func(f profile.Frame) int { return int(f.Kind) },
		func(f profile.Frame) int { return int(f.Class) },
	} {
		for _, f := range d.frames {
			out = binary.AppendUvarint(out, uint64(field(f)))
		}
	}
	return out
}

// appendNodes goes over the nodes once, and not once for each column: those of a
// large tree are in no cache.
func (d *document) appendNodes(out []byte, whole []profile.Sum) []byte {
	columns := make([][]byte, nodeColumns+sumColumns*len(whole))
	for i := range columns {
		columns[i] = make([]byte, 0, len(d.nodes)+len(d.nodes)/8) // most numbers take a byte
	}
	put := func(column int, number int64) {
		columns[column] = binary.AppendUvarint(columns[column], uint64(max(0, number)))
	}
	for i, n := range d.nodes {
		flags := int64(0)
		if n.Frame.Inlined {
			flags = flagInlined
		}
		put(0, int64(len(n.Children)))
		put(1, int64(d.frame[i]))
		put(2, int64(n.Frame.Line))
		put(3, flags)
		for c := range whole {
			at := nodeColumns + sumColumns*c
			put(at, n.Self[c].N)
			put(at+1, n.Self[c].Value)
			put(at+2, relativeSquares(n.Self[c], whole[c]))
		}
	}
	out = binary.AppendUvarint(out, uint64(len(d.nodes)))
	return append(out, slices.Concat(columns...)...)
}

func relativeSquares(part, whole profile.Sum) int64 {
	if part.Value <= 0 || whole.Value <= 0 || whole.Squares <= 0 {
		return 0
	}
	expected := whole.Squares / float64(whole.Value) * float64(part.Value)
	return int64(math.Round(squaresScale * min(part.Squares/expected, 1<<20)))
}
