package profiletest

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// Grove is a window's first type without threads, contexts and samples, as a grove.
func Grove(w *profile.Window) *profile.Grove {
	g := &profile.Grove{Head: w.Head, Forest: &profile.Forest{}}
	g.Types = w.Types[:1]
	for i, l := range w.Locations {
		g.Forest.Places = append(g.Forest.Places, profile.Place{Hash: l.Hash(), Location: l, Names: w.Names[i]})
	}
	calls, leaves := map[profile.Hash]int{}, map[int]int{}
	call := func(c profile.Call) int {
		at, ok := calls[c.Hash]
		if !ok {
			at = len(g.Forest.Calls)
			calls[c.Hash] = at
			g.Forest.Calls = append(g.Forest.Calls, c)
		}
		return at
	}
	for _, r := range w.Rows.All() {
		s := w.Stacks[r.Stack]
		at := call(profile.Call{Hash: s.End.Hash(), Caller: -1, Place: -1, End: s.End})
		for _, l := range slices.Backward(s.Locations) {
			at = call(profile.Call{Hash: g.Forest.Calls[at].Hash.Call(g.Forest.Places[l].Hash), Caller: at, Place: int(l)})
		}
		if _, ok := leaves[at]; !ok {
			leaves[at] = len(g.Leaves)
			g.Leaves = append(g.Leaves, profile.Leaf{Call: at})
		}
		g.Leaves[leaves[at]].Add(r.Sum(0))
	}
	return g
}

// OpenGrove is the inverse of Grove: stacks are written out.
func OpenGrove(g *profile.Grove) *profile.Window {
	b := profile.NewBuilder(g.Head)
	for _, leaf := range g.Leaves {
		var stack []profile.LocationID
		places, end := g.Forest.Stack(leaf.Call)
		for _, p := range places {
			place := &g.Forest.Places[p]
			stack = append(stack, b.Location(place.Location, place.Names...))
		}
		b.Add(profile.Row{Stack: b.Stack(stack, end), N: leaf.N, Values: []int64{leaf.Value}, Squares: []float64{leaf.Squares}})
	}
	return b.Window()
}
