package query

import (
	"path"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// recount has a column tell how many of its samples have a leaf without a name as
// it is now: names may have come since its windows were cut.
func recount(m *store.Merged, c *store.Column) {
	losses := slices.DeleteFunc(c.Head.Losses, func(l profile.Loss) bool { return l.Reason == profile.LossUnsymbolized })
	c.Head.Losses = losses
	for _, sum := range c.Sums {
		call := m.Forest.Calls[sum.Call]
		if call.Caller < 0 {
			continue
		}
		if place := &m.Forest.Places[call.Place]; !place.Named() {
			c.Head.AddLoss(profile.Loss{Reason: profile.LossUnsymbolized, Detail: nameless(place), N: sum.N, Value: sum.Value})
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
