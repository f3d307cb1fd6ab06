package disk

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// dividedCells hold the rows of a rolled-up window that have a context, a slot or a peer.
// The zero value is ready to use.
type dividedCells struct {
	cells    map[cellKey]*rollCell
	contexts profile.ContextTable
	folded   map[profile.ContextID]profile.ContextID // where contexts went that are no more
	slot     time.Duration                           // length of the slots; 0: there are none
}

// cellKey is a row's key in a rolled-up window.
type cellKey struct {
	leaf, peer uint32 // the peer is a leaf plus one
	context    profile.ContextID
	slot       uint32
}

func (d *dividedCells) cell(key cellKey) *rollCell {
	if d.cells == nil {
		d.cells = map[cellKey]*rollCell{}
	}
	cell := d.cells[key]
	if cell == nil {
		cell = &rollCell{}
		d.cells[key] = cell
	}
	return cell
}

// context returns the identifier of an entry of another window's contexts.
func (d *dividedCells) context(all []profile.Context, id uint32) profile.ContextID {
	if id == 0 {
		return 0
	}
	return d.contexts.ID(all[id-1]) // none, if an earlier version named only a trace
}

func (d *dividedCells) contextOf(c *codec.Columns, row int) profile.ContextID {
	if len(c.Context) == 0 {
		return 0
	}
	return d.context(c.Contexts, c.Context[row])
}

// fold keeps the contexts with the most value, and moves the samples of all others to
// store.OtherContext. It returns what was moved.
func (d *dividedCells) fold() (moved profile.Sum) {
	before := d.contexts.All()
	if len(before) <= store.MaxContexts {
		return moved
	}
	value := map[profile.ContextID]int64{}
	for key, cell := range d.cells {
		value[key.context] += cell.Value
	}
	order := make([]profile.ContextID, len(before))
	for i := range order {
		order[i] = profile.ContextID(i + 1)
	}
	slices.SortFunc(order, func(a, b profile.ContextID) int {
		return cmp.Or(cmp.Compare(value[b], value[a]), store.CompareContexts(before[a-1], before[b-1]))
	})
	order = slices.DeleteFunc(order, func(id profile.ContextID) bool { return before[id-1] == store.OtherContext })
	d.contexts, d.folded = profile.ContextTable{}, map[profile.ContextID]profile.ContextID{0: 0}
	for _, id := range order[:min(len(order), store.MaxContexts)] {
		d.folded[id] = d.contexts.ID(before[id-1])
	}
	other := d.contexts.ID(store.OtherContext)
	cells := d.cells
	d.cells = nil
	for key, cell := range cells {
		to, ok := d.folded[key.context]
		if !ok {
			to = other
			if before[key.context-1] != store.OtherContext {
				moved.Add(cell.Sum)
			}
		}
		key.context = to
		into := d.cell(key)
		into.Add(cell.Sum)
		for g, v := range cell.groups {
			into.groups[g] += v
		}
	}
	return moved
}

// kept returns what a context became.
func (d *dividedCells) kept(id profile.ContextID) profile.ContextID {
	if d.folded == nil {
		return id
	}
	if to, ok := d.folded[id]; ok {
		return to
	}
	return d.contexts.ID(store.OtherContext)
}

// sorted yields all cells, in an order that depends on what they hold alone.
func (d *dividedCells) sorted() iter.Seq2[cellKey, *rollCell] {
	return func(yield func(cellKey, *rollCell) bool) {
		keys := slices.SortedFunc(maps.Keys(d.cells), func(a, b cellKey) int {
			return cmp.Or(cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.context, b.context), cmp.Compare(a.slot, b.slot), cmp.Compare(a.peer, b.peer))
		})
		for _, key := range keys {
			if !yield(key, d.cells[key]) {
				return
			}
		}
	}
}

// refiner gives rows the contexts that they have by the names that their frames have now:
// names may have come after a window was stored, or rolled up.
type refiner struct {
	rules refine.Rules
	known map[refinedKey]profile.Context
}

// refinedKey is what a context depends on.
type refinedKey struct {
	service, kind string // of the window itself
	leaf          uint32
	context       profile.Context
}

// refine refines the window that was read into columns, with its contexts.
func (r *refiner) refine(c *codec.Columns, kind string, d *dictionary, p *places) {
	own := cmp.Or(c.Primary, kind)
	rules := r.rules[own]
	if len(rules) == 0 {
		return
	}
	if r.known == nil {
		r.known = map[refinedKey]profile.Context{}
	}
	c.Relabel(func(leaf uint32, context profile.Context) profile.Context {
		k := refinedKey{d.service, own, leaf, context}
		refined, ok := r.known[k]
		if !ok {
			refined = store.Refine(rules, d.frames(p, leaf), context)
			r.known[k] = refined
		}
		return refined
	})
}
