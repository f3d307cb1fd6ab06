package profile

import (
	"cmp"
	"fmt"
	"slices"
)

// Sum is what was sampled on a node in one column.
type Sum struct {
	N       int64   // samples
	Value   int64   // their weights
	Squares float64 // their squared weights
}

// Add adds another sum.
func (s *Sum) Add(o Sum) {
	s.N += o.N
	s.Value += o.Value
	s.Squares += o.Squares
}

// Node is a function in its calling context.
type Node struct {
	Frame    Frame
	Self     []Sum // one per column
	Total    []Sum
	Children []*Node // sorted by total of the first column, then of the second, then by name

	index map[FrameKey]*Node
}

// Tree is one or more windows folded into a prefix tree, a column each.
type Tree struct {
	Root    *Node // the whole selection; its frame is empty
	Columns []Column
}

// Column describes one window of a tree.
type Column struct {
	Type ValueType
	Head Head
}

// TreeOptions select and shape what a tree shows. The zero value folds all
// rows of the first value type, root first, without threads.
type TreeOptions struct {
	Type    string // kind of the value type; "" is the first
	Reverse bool   // leaf first: callers below the function they call
	Process bool   // lead each stack with its process
	Thread  bool   // lead each stack with its thread
	Pattern bool   // fold numbered threads together
}

// NewTree folds windows into a tree with one column each.
func NewTree(o TreeOptions, windows ...*Window) (*Tree, error) {
	t := &Tree{Root: newNode(Frame{}, len(windows))}
	for column, w := range windows {
		index := 0
		if o.Type != "" {
			if index = w.TypeIndex(o.Type); index < 0 {
				return nil, fmt.Errorf("no value type %q: the profile has %s", o.Type, typeNames(w.Types))
			}
		}
		if index >= len(w.Types) {
			return nil, fmt.Errorf("the profile has no value types")
		}
		t.Columns = append(t.Columns, Column{Type: w.Types[index], Head: w.Head})
		t.addWindow(o, column, index, w)
	}
	t.Root.sort()
	return t, nil
}

func (t *Tree) addWindow(o TreeOptions, column, index int, w *Window) {
	columns := len(t.Root.Total)
	var frames []Frame
	for _, r := range w.Rows.All() {
		frames = w.appendLead(frames[:0], o, r)
		lead := len(frames)
		frames = w.appendShown(frames, r)
		shown := frames[lead:]
		if o.Reverse {
			slices.Reverse(shown)
		}
		t.add(column, columns, r.Sum(index), frames[:lead], shown)
	}
}

// add adds a stack, led by its process and thread, to one column.
func (t *Tree) add(column, columns int, sum Sum, lead, stack []Frame) {
	node := t.Root
	node.Total[column].Add(sum)
	for _, part := range [2][]Frame{lead, stack} {
		for _, f := range part {
			node = node.child(f, columns)
			node.Total[column].Add(sum)
		}
	}
	node.Self[column].Add(sum)
}

// appendLead lists what the options want before a row's stack.
func (w *Window) appendLead(frames []Frame, o TreeOptions, r Row) []Frame {
	thread := w.Thread(r.Thread)
	if o.Process && thread.Process != "" {
		frames = append(frames, Frame{Function: thread.Process})
	}
	if o.Thread && thread.Name != "" {
		name := thread.Name
		if o.Pattern {
			name = thread.Pattern()
		}
		frames = append(frames, Frame{Function: name})
	}
	return frames
}

// appendShown lists a row's stack root first; one that is cut says so at its root.
func (w *Window) appendShown(frames []Frame, r Row) []Frame {
	if end := w.Stacks[r.Stack].End; end.Truncated() {
		frames = append(frames, Frame{Function: "[" + end.String() + "]"})
	}
	return w.AppendStack(frames, r.Stack)
}

// AppendStack lists a stack's frames root first, inlined calls after the
// function they were inlined into.
func (w *Window) AppendStack(frames []Frame, id StackID) []Frame {
	for _, l := range slices.Backward(w.Stacks[id].Locations) {
		for _, f := range slices.Backward(w.Frames(l)) {
			frames = append(frames, f)
		}
	}
	return frames
}

func newNode(f Frame, columns int) *Node {
	sums := make([]Sum, 2*columns)
	return &Node{Frame: f, Self: sums[:columns:columns], Total: sums[columns:]}
}

func (n *Node) child(f Frame, columns int) *Node {
	key := f.Key()
	c := n.index[key]
	if c == nil {
		c = newNode(f, columns)
		if n.index == nil {
			n.index = map[FrameKey]*Node{}
		}
		n.index[key] = c
		n.Children = append(n.Children, c)
	} else {
		c.calledAt(f.Line)
	}
	return c
}

// calledAt notes another call of a node's function.
func (n *Node) calledAt(line int) {
	if n.Frame.Line != line {
		n.Frame.Line = 0 // several call sites: the node is the function, not a line
	}
}

func (n *Node) sort() {
	n.index = nil
	slices.SortFunc(n.Children, func(a, b *Node) int {
		for i := range a.Total {
			if c := cmp.Compare(b.Total[i].Value, a.Total[i].Value); c != 0 {
				return c
			}
		}
		return a.Frame.Key().compare(b.Frame.Key())
	})
	for _, c := range n.Children {
		c.sort()
	}
}

// Walk visits the tree depth first, parents before children; depth of the root is 0.
func (t *Tree) Walk(visit func(n *Node, depth int)) { t.Root.walk(visit, 0) }

func (n *Node) walk(visit func(*Node, int), depth int) {
	visit(n, depth)
	for _, c := range n.Children {
		c.walk(visit, depth+1)
	}
}
