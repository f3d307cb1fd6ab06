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
	calls := g.Forest.Calls
	b := newTreeBuilder(1, len(calls))
	frames := make([][]numberedFrame, len(g.Forest.Places)) // outermost first; nil: not asked for yet
	nodes := make([]int32, len(calls))
	for i := range calls {
		c := &calls[i]
		switch {
		case c.Caller >= 0:
			if frames[c.Place] == nil {
				frames[c.Place] = b.outermostFirst(g.Forest.Places[c.Place].Frames())
			}
			nodes[i] = nodes[c.Caller]
			for _, f := range frames[c.Place] {
				nodes[i] = b.child(nodes[i], f)
			}
		case c.End.Truncated():
			nodes[i] = b.child(0, b.truncation(c.End))
		}
	}
	for _, l := range g.Leaves {
		b.nodes[nodes[l.Call]].Self[0].Add(l.Sum)
	}
	return b.tree([]Column{{Type: g.Head.Types[0], Head: g.Head}})
}
