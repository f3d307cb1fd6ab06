package codec

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// Relabel replaces the contexts of rows and exemplars, which were read with their window, by
// what to returns for each stack and context.
func (c *Columns) Relabel(to func(leaf uint32, context profile.Context) profile.Context) {
	before := slices.Clone(c.Contexts)
	ids := map[profile.Context]uint32{{}: 0}
	for i, context := range before {
		if _, twice := ids[context]; !twice {
			ids[context] = uint32(i + 1)
		}
	}
	relabel := func(leaf, id uint32) uint32 {
		was := profile.Context{}
		if id > 0 {
			was = before[id-1]
		}
		is := to(leaf, was)
		if is == was {
			return id
		}
		number, ok := ids[is]
		if !ok {
			c.Contexts = append(c.Contexts, is)
			number = uint32(len(c.Contexts))
			ids[is] = number
		}
		return number
	}
	plain := len(c.Context) == 0
	for i, leaf := range c.Leaves {
		if !plain {
			c.Context[i] = relabel(leaf, c.Context[i])
		} else if id := relabel(leaf, 0); id != 0 {
			if len(c.Context) == 0 {
				c.Context = make([]uint32, len(c.Leaves))
			}
			c.Context[i] = id
		}
	}
	for i := range c.Exemplars {
		e := &c.Exemplars[i]
		e.Context = profile.ContextID(relabel(uint32(e.Stack), uint32(e.Context)))
	}
}
