// Package cpuprofile writes windows as .cpuprofile files, which Chrome's developer tools and VS Code open.
//
// The format is the Profiler.Profile of the Chrome DevTools Protocol: a tree
// of functions, and samples that point into it with the time between them.
// Windows have no order of time unless they kept it, so rows become samples
// one after the other, callers together. docs/format/cpuprofile.md says what
// is lost.
package cpuprofile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"atys.dev/atys/internal/profile"
)

// Options say what Write writes. The zero value writes the first value type.
type Options struct {
	Type    string // kind of the value to write
	Process bool   // lead each stack with its process
	Thread  bool   // lead each stack with its thread
}

// The file, as the DevTools Protocol has it. Times are microseconds.
type file struct {
	Nodes   []*node `json:"nodes"`
	Start   int64   `json:"startTime"`
	End     int64   `json:"endTime"`
	Samples []int   `json:"samples"`
	Deltas  []int64 `json:"timeDeltas"`
}

type node struct {
	ID       int       `json:"id"`
	Call     callFrame `json:"callFrame"`
	Hits     int64     `json:"hitCount"`
	Children []int     `json:"children"` // also when empty: the tools want it at the root

	self  int64 // in the value's unit
	index map[profile.FrameKey]*node
	order []*node
}

type callFrame struct {
	Function string `json:"functionName"`
	Script   string `json:"scriptId"`
	URL      string `json:"url"`
	Line     int    `json:"lineNumber"` // from 0; -1 is unknown
	Column   int    `json:"columnNumber"`
}

// Write writes a window. Values must not be negative: the format has no place
// for a difference.
func Write(w io.Writer, win *profile.Window, o Options) error {
	index := 0
	if o.Type != "" {
		index = win.TypeIndex(o.Type)
	}
	if index < 0 || index >= len(win.Types) {
		return fmt.Errorf("write cpuprofile: the profile has no value type %q", o.Type)
	}
	t := newTree(win, o)
	for _, r := range win.Rows.All() {
		if r.Values[index] < 0 {
			return errors.New("write cpuprofile: the format has no negative values: is this a difference?")
		}
		n := t.at(r.Stack, r.Thread)
		n.self += r.Values[index]
		if index == 0 {
			n.Hits += r.N
		} else {
			n.Hits += r.Values[index] // N counts the first type's samples; a sum of 0 makes the tools divide by it
		}
	}
	for _, s := range win.Samples {
		t.at(s.Stack, s.Thread) // all nodes exist before they are numbered
	}
	f := &file{Nodes: t.number(), Samples: []int{}, Deltas: []int64{}}
	if y := win.Start.Year(); y >= 1970 && y < 2262 {
		f.Start = win.Start.UnixMicro()
	}
	clock := win.Types[index].Unit == "nanoseconds"
	if index == 0 && clock && oneThread(win) {
		f.timed(win, t)
	} else {
		f.summed(scaleOf(win.Types[index].Unit))
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f); err != nil {
		return fmt.Errorf("write cpuprofile: %w", err)
	}
	return nil
}

// scaleOf gives microseconds per unit; what is no time shows one unit as one microsecond.
func scaleOf(unit string) float64 {
	switch unit {
	case "nanoseconds":
		return 1e-3
	case "milliseconds":
		return 1e3
	case "seconds":
		return 1e6
	}
	return 1
}

// oneThread tells whether times were kept, of one thread: the format has a
// single line of time.
func oneThread(win *profile.Window) bool {
	return len(win.Samples) > 0 && !slices.ContainsFunc(win.Samples, func(s profile.Sample) bool { return s.Thread != win.Samples[0].Thread })
}

// summed lays the nodes' own values one after the other. Ends are rounded, not
// lengths, so that many small values do not add up to an error.
func (f *file) summed(scale float64) {
	var sum, last int64
	for _, n := range f.Nodes {
		if n.self == 0 {
			continue
		}
		f.sample(n, &last, int64(math.Round(float64(sum)*scale)))
		sum += n.self
	}
	f.close(&last, int64(math.Round(float64(sum)*scale)))
}

// timed lays samples where they were taken: each stands for the time up to it.
func (f *file) timed(win *profile.Window, t *tree) {
	samples := slices.Clone(win.Samples)
	slices.SortStableFunc(samples, func(a, b profile.Sample) int { return cmp.Compare(a.Time, b.Time) })
	var last, end int64
	for _, s := range samples {
		start := max(end, (int64(s.Time)-s.Weight)/1000)
		if start > end {
			f.sample(t.root, &last, end) // nothing ran
		}
		f.sample(t.at(s.Stack, s.Thread), &last, start)
		end = max(start, int64(s.Time)/1000)
	}
	f.close(&last, max(end, win.Duration.Microseconds()))
}

func (f *file) sample(n *node, last *int64, at int64) {
	f.Samples = append(f.Samples, n.ID)
	f.Deltas = append(f.Deltas, at-*last)
	*last = at
}

// close ends the last sample: the tools let a sample last until the next one,
// and make up a length for the very last. That one is the root, which shows as
// nothing.
func (f *file) close(last *int64, end int64) {
	f.sample(f.Nodes[0], last, end)
	f.End = f.Start + end
}

// tree folds stacks into nodes. Names and files decide what is the same
// function, lines do not.
type tree struct {
	win    *profile.Window
	o      Options
	root   *node
	frames []profile.Frame
}

func newTree(win *profile.Window, o Options) *tree {
	root := &node{Call: callFrame{Function: "(root)", Script: "0", Line: -1, Column: -1}}
	return &tree{win: win, o: o, root: root}
}

// at gives the node of a stack's leaf.
func (t *tree) at(stack profile.StackID, thread profile.ThreadID) *node {
	t.frames = t.frames[:0]
	th := t.win.Thread(thread)
	if t.o.Process && th.Process != "" {
		t.frames = append(t.frames, profile.Frame{Function: th.Process})
	}
	if t.o.Thread && th.Name != "" {
		t.frames = append(t.frames, profile.Frame{Function: th.Name})
	}
	if end := t.win.Stacks[stack].End; end.Truncated() {
		t.frames = append(t.frames, profile.Frame{Function: "[" + end.String() + "]"})
	}
	t.frames = t.win.AppendStack(t.frames, stack)
	n := t.root
	for _, f := range t.frames {
		n = n.child(f)
	}
	return n
}

func (n *node) child(f profile.Frame) *node {
	key := f.Key()
	c := n.index[key]
	if c == nil {
		c = &node{Call: callFrame{Function: f.Function, Script: "0", URL: cmp.Or(f.File, f.Mapping), Line: -1, Column: -1}}
		if f.StartLine > 0 {
			c.Call.Line = f.StartLine - 1
		}
		if n.index == nil {
			n.index = map[profile.FrameKey]*node{}
		}
		n.index[key] = c
		n.order = append(n.order, c)
	}
	return c
}

// number gives nodes their identifiers, callers before callees, and lists them.
func (t *tree) number() []*node {
	var nodes []*node
	pending := []*node{t.root}
	for len(pending) > 0 {
		n := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		nodes = append(nodes, n)
		n.ID = len(nodes)
		for _, c := range slices.Backward(n.order) {
			pending = append(pending, c)
		}
	}
	for _, n := range nodes {
		n.Children = make([]int, 0, len(n.order))
		for _, c := range n.order {
			n.Children = append(n.Children, c.ID)
		}
	}
	return nodes
}
