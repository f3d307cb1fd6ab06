package wire

import (
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// SealGrove makes a grove whole by itself, as Seal does its window. All of its
// places and calls are written as they lie, and nothing is hashed.
func SealGrove(g *profile.Grove, run profile.Run) *atysv1.Spooled {
	m := SealHead(&g.Head, run)
	scale := scaleOf(g.Head.Types[0].Period, len(g.Leaves), func(i int) int64 { return g.Leaves[i].Value })
	m.Types[0].Scale = scale
	n, r := len(g.Leaves), &atysv1.Rows{}
	r.Stack, r.N, r.Value, r.Spread = make([]uint32, n), make([]int64, n), make([]int64, n), make([]int64, n)
	hashes, in := make([]profile.Hash, n), steps{scale: scale}
	for i := range g.Leaves {
		l := &g.Leaves[i]
		hashes[i] = g.Forest.Calls[l.Call].Hash
		r.Stack[i], r.N[i], r.Value[i], r.Spread[i] = uint32(i), l.N, in.of(l.Value), spread(l.Sum, scale)
	}
	r.Spread = orNone(r.Spread)
	m.Rows = r
	return &atysv1.Spooled{Window: m, Series: sealSeries(g.Head.Target), Stacks: Table(hashes), Dictionary: forestBytes(g.Forest)}
}

// forestBytes writes a forest as a Dictionary; nil: it has no stacks.
func forestBytes(f *profile.Forest) []byte {
	d := newDictionary()
	for _, p := range f.Places {
		d.writePlace(p)
	}
	for i := range f.Calls {
		c := &f.Calls[i]
		if c.Caller < 0 {
			d.writeNode(0, 0, c.End)
		} else {
			d.writeNode(uint32(i-c.Caller), uint32(c.Place), 0)
		}
	}
	return d.bytes()
}
