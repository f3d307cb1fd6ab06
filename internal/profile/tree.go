package profile

import (
	"cmp"
	"errors"
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

// TreeOptions shape what a tree shows. The zero value folds all rows without threads.
type TreeOptions struct {
	Process bool // lead each stack with its process
	Thread  bool // lead each stack with its thread
}

// NewTree folds the first value type of windows into a tree with one column each.
func NewTree(o TreeOptions, windows ...*Window) (*Tree, error) {
	var columns []Column
	b := newTreeBuilder(len(windows), 0)
	for column, w := range windows {
		if len(w.Types) == 0 {
			return nil, errors.New("the profile has no value types")
		}
		columns = append(columns, Column{Type: w.Types[0], Head: w.Head})
		b.addWindow(o, column, w)
	}
	return b.tree(columns), nil
}

// addWindow adds the rows of a window to one column.
func (b *treeBuilder) addWindow(o TreeOptions, column int, w *Window) {
	calls := make([][]numberedFrame, len(w.Locations)) // outermost first; nil: not asked for yet
	var lead []Frame
	var stack []numberedFrame
	for _, r := range w.Rows.All() {
		at := int32(0)
		lead = o.appendLead(lead[:0], w.Thread(r.Thread))
		for i := range lead {
			at = b.child(at, b.numbered(&lead[i]))
		}
		stack = stack[:0]
		if end := w.Stacks[r.Stack].End; end.Truncated() {
			stack = append(stack, b.truncation(end))
		}
		for _, l := range slices.Backward(w.Stacks[r.Stack].Locations) {
			if calls[l] == nil {
				calls[l] = b.outermostFirst(w.Frames(l))
			}
			stack = append(stack, calls[l]...)
		}
		for _, f := range stack {
			at = b.child(at, f)
		}
		b.nodes[at].Self[column].Add(r.Sum(0))
	}
}

// appendLead lists what the options want before the stacks of a thread.
func (o TreeOptions) appendLead(frames []Frame, thread Thread) []Frame {
	if o.Process && thread.Process != "" {
		frames = append(frames, Frame{Function: thread.Process})
	}
	if o.Thread && thread.Name != "" {
		frames = append(frames, Frame{Function: thread.Name})
	}
	return frames
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

// treeBuilder adds stacks up as a tree. Functions have numbers, since their names are long.
type treeBuilder struct {
	columns  int
	numbers  map[FrameKey]int32
	nodes    []*Node // callers first; the first is the root
	callers  []int32 // of the nodes
	children map[child]int32

	// Nodes and sums are allocated many at once.
	freeNodes []Node
	freeSums  []Sum
}

// child is a function that a node calls.
type child struct{ node, function int32 }

type numberedFrame struct {
	*Frame
	function int32
}

func newTreeBuilder(columns, size int) *treeBuilder {
	return &treeBuilder{columns: columns, numbers: map[FrameKey]int32{}, nodes: append(make([]*Node, 0, size+1), newNode(Frame{}, columns)),
		callers: make([]int32, 1, size+1), children: make(map[child]int32, size)}
}

func newNode(f Frame, columns int) *Node {
	sums := make([]Sum, 2*columns)
	return &Node{Frame: f, Self: sums[:columns:columns], Total: sums[columns:]}
}

// truncation is the frame at the root of a stack whose walk ended early.
func (b *treeBuilder) truncation(end End) numberedFrame {
	return b.numbered(&Frame{Function: "[" + end.String() + "]"})
}

func (b *treeBuilder) numbered(f *Frame) numberedFrame {
	key := f.Key()
	number, ok := b.numbers[key]
	if !ok {
		number = int32(len(b.numbers))
		b.numbers[key] = number
	}
	return numberedFrame{f, number}
}

// outermostFirst turns the frames of a location around.
func (b *treeBuilder) outermostFirst(names []Frame) []numberedFrame {
	frames := make([]numberedFrame, 0, len(names))
	for i := range slices.Backward(names) {
		frames = append(frames, b.numbered(&names[i]))
	}
	return frames
}

// child finds or adds the node of a function that a node calls.
func (b *treeBuilder) child(at int32, f numberedFrame) int32 {
	key := child{at, f.function}
	if number, ok := b.children[key]; ok {
		if n := b.nodes[number]; n.Frame.Line != f.Line {
			n.Frame.Line = 0 // several call sites: the node is the function, not a line
		}
		return number
	}
	if len(b.freeNodes) == 0 {
		const atOnce = 1024
		b.freeNodes, b.freeSums = make([]Node, atOnce), make([]Sum, 2*b.columns*atOnce)
	}
	made, sums := &b.freeNodes[0], b.freeSums[:2*b.columns]
	b.freeNodes, b.freeSums = b.freeNodes[1:], b.freeSums[2*b.columns:]
	*made = Node{Frame: *f.Frame, Self: sums[:b.columns:b.columns], Total: sums[b.columns : 2*b.columns : 2*b.columns]}
	number := int32(len(b.nodes))
	b.nodes, b.callers, b.children[key] = append(b.nodes, made), append(b.callers, at), number
	b.nodes[at].Children = append(b.nodes[at].Children, made)
	return number
}

// tree sums what lies below each node.
func (b *treeBuilder) tree(columns []Column) *Tree {
	for i, n := range slices.Backward(b.nodes) {
		addSums(n.Total, n.Self)
		if i > 0 {
			addSums(b.nodes[b.callers[i]].Total, n.Total)
		}
	}
	t := &Tree{Root: b.nodes[0], Columns: columns}
	t.Root.sort()
	return t
}

func (n *Node) sort() {
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
