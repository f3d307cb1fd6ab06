package profile

import (
	"cmp"
	"slices"
)

// Function is one row of a table of functions.
type Function struct {
	Frame Frame
	Self  []Sum // one per column of the tree
	Total []Sum // each stack counted once, however deep the recursion
}

// Functions folds a tree into its functions, largest self value first.
func (t *Tree) Functions() []Function {
	index := map[FrameKey]int{}
	var out []Function
	onPath := map[FrameKey]int{}
	var visit func(n *Node)
	visit = func(n *Node) {
		key := n.Frame.Key()
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			node := newNode(n.Frame, len(n.Total))
			out = append(out, Function{Frame: n.Frame, Self: node.Self, Total: node.Total})
		}
		addSums(out[i].Self, n.Self)
		if onPath[key] == 0 {
			addSums(out[i].Total, n.Total)
		}
		onPath[key]++
		for _, c := range n.Children {
			visit(c)
		}
		onPath[key]--
	}
	for _, c := range t.Root.Children {
		visit(c)
	}
	slices.SortStableFunc(out, func(a, b Function) int {
		if c := cmp.Compare(b.Self[0].Value, a.Self[0].Value); c != 0 {
			return c
		}
		if c := cmp.Compare(b.Total[0].Value, a.Total[0].Value); c != 0 {
			return c
		}
		return a.Frame.Key().compare(b.Frame.Key())
	})
	return out
}

func addSums(into, from []Sum) {
	for i, s := range from {
		into[i].Add(s)
	}
}
