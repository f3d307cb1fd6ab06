package query

import (
	"path"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// recount has columns tell how many of their samples have a leaf without a name as
// it is now: names may have come since their windows were cut.
func recount(m *store.Merged) {
	unnamed := make([]bool, len(m.Forest.Places))
	for i := range unnamed {
		unnamed[i] = !m.Forest.Places[i].Named()
	}
	unsymbolized := func(l profile.Loss) bool { return l.Reason == profile.LossUnsymbolized }
	if m.Whole != nil {
		m.Whole.Head.Losses = slices.DeleteFunc(m.Whole.Head.Losses, unsymbolized)
	}
	for i := range m.Columns {
		c := &m.Columns[i]
		c.Head.Losses = slices.DeleteFunc(c.Head.Losses, unsymbolized)
		for j := range c.Sums {
			sum := &c.Sums[j]
			call := &m.Forest.Calls[sum.Call]
			if call.Caller >= 0 && unnamed[call.Place] {
				c.Head.AddLoss(profile.Loss{Reason: profile.LossUnsymbolized, Detail: nameless(&m.Forest.Places[call.Place]), N: sum.N, Value: sum.Value})
			}
		}
	}
}

// nameless says what has no name.
func nameless(p *profile.Place) string {
	switch {
	case p.Location.Kind == profile.KindKernel:
		return "no name in the kernel"
	case len(p.Names) == 0 || p.Names[0].Mapping == "":
		return "code of no known file"
	}
	return "no name for code of " + path.Base(p.Names[0].Mapping)
}
