package profile

// Grove is what was sampled on the stacks of a forest: a window of one value type,
// as those that add windows up have it. Stacks are not written out: what they share
// is worked on once.
type Grove struct {
	Head
	Forest *Forest
	Leaves []Leaf // each stack that was sampled, once
}

// Leaf is a call that samples end at; its Hash is known.
type Leaf struct {
	Call int // of the forest
	Sum
}

// N sums the samples of all leaves.
func (g *Grove) N() (n int64) {
	for i := range g.Leaves {
		n += g.Leaves[i].N
	}
	return n
}

// Tree folds a grove as NewTree does its window, with the zero options.
func (g *Grove) Tree() *Tree {
	t := &Tree{Root: newNode(Frame{}, 1), Columns: []Column{{Type: g.Head.Types[0], Head: g.Head}}}
	size := len(g.Forest.Calls)
	p := planter{forest: g.Forest, shown: make([][]shownFrame, len(g.Forest.Places)), numbers: map[FrameKey]int32{},
		nodes: append(make([]*Node, 0, size+1), t.Root), callers: make([]int32, 1, size+1), children: make(map[child]int32, size)}
	of := make([]int32, size)
	for i := range g.Forest.Calls {
		of[i] = p.plant(&g.Forest.Calls[i], of)
	}
	for _, l := range g.Leaves {
		p.nodes[of[l.Call]].Self[0].Add(l.Sum)
	}
	p.addUp()
	t.Root.sort()
	return t
}

// planter makes nodes of calls. Functions have numbers: their names are long.
type planter struct {
	forest   *Forest
	shown    [][]shownFrame // of each place, outermost first; nil: not asked for yet
	numbers  map[FrameKey]int32
	nodes    []*Node // callers first; the first is the root
	callers  []int32 // of the nodes
	children map[child]int32
	room     []planted
}

// planted is a node and its sums, as they are made many at once.
type planted struct {
	node Node
	sums [2]Sum
}

// child is a function that a node calls.
type child struct{ node, function int32 }

type shownFrame struct {
	Frame
	function int32
}

// plant gives the node of a call.
func (p *planter) plant(c *Call, of []int32) int32 {
	if c.Caller >= 0 {
		at := of[c.Caller]
		frames := p.frames(c.Place)
		for i := range frames {
			at = p.child(at, &frames[i])
		}
		return at
	}
	if c.End.Truncated() {
		f := p.numbered(Frame{Function: "[" + c.End.String() + "]"})
		return p.child(0, &f)
	}
	return 0
}

// frames are those of a place.
func (p *planter) frames(place int) []shownFrame {
	if p.shown[place] == nil {
		names := p.forest.Places[place].Frames()
		for i := range names {
			p.shown[place] = append(p.shown[place], p.numbered(names[len(names)-1-i]))
		}
	}
	return p.shown[place]
}

func (p *planter) numbered(f Frame) shownFrame {
	key := f.Key()
	number, ok := p.numbers[key]
	if !ok {
		number = int32(len(p.numbers))
		p.numbers[key] = number
	}
	return shownFrame{f, number}
}

func (p *planter) child(at int32, f *shownFrame) int32 {
	key := child{at, f.function}
	number, ok := p.children[key]
	if ok {
		p.nodes[number].calledAt(f.Line)
		return number
	}
	if len(p.room) == 0 {
		p.room = make([]planted, 1024)
	}
	made := &p.room[0]
	p.room = p.room[1:]
	made.node = Node{Frame: f.Frame, Self: made.sums[:1:1], Total: made.sums[1:]}
	number = int32(len(p.nodes))
	p.nodes, p.callers, p.children[key] = append(p.nodes, &made.node), append(p.callers, at), number
	p.nodes[at].Children = append(p.nodes[at].Children, &made.node)
	return number
}

// addUp sums what lies below each node.
func (p *planter) addUp() {
	for i := len(p.nodes) - 1; i >= 0; i-- {
		n := p.nodes[i]
		n.Total[0].Add(n.Self[0])
		if i > 0 {
			p.nodes[p.callers[i]].Total[0].Add(n.Total[0])
		}
	}
}
