package paging

import (
	"cmp"
	"slices"
)

// Extent is a run of cells of a fixed array.
type Extent struct{ First, Count uint32 }

// Extents hands out runs of a fixed array: small ones from its beginning, large
// ones from its end. Mixed, the small ones that stay would leave no room for a
// large one that comes back. Programs may still look at a run while it is given
// back, so callers free it only after a pause.
type Extents struct {
	free  []Extent // sorted, never adjacent
	Used  uint32
	large uint32 // a run of so many cells is large
}

// largePart is which part of the array makes a run a large one.
const largePart = 32

// NewExtents hands out count cells, the first of which is first.
func NewExtents(first, count uint32) *Extents {
	return &Extents{free: []Extent{{first, count}}, large: max(count/largePart, 1)}
}

// Take reserves n cells; ok is false where no run is long enough.
func (e *Extents) Take(n uint32) (run Extent, ok bool) {
	if n == 0 {
		return Extent{}, true
	}
	for i := range e.free {
		if n < e.large {
			if f := e.free[i]; f.Count >= n {
				return e.cut(i, Extent{f.First, n}), true
			}
			continue
		}
		i = len(e.free) - 1 - i
		if f := e.free[i]; f.Count >= n {
			return e.cut(i, Extent{f.First + f.Count - n, n}), true
		}
	}
	return Extent{}, false
}

// cut takes a run off the beginning or the end of a free one.
func (e *Extents) cut(i int, run Extent) Extent {
	f := &e.free[i]
	if run.First == f.First {
		f.First += run.Count
	}
	if f.Count -= run.Count; f.Count == 0 {
		e.free = slices.Delete(e.free, i, i+1)
	}
	e.Used += run.Count
	return run
}

// Put gives a run back and joins it with its neighbours.
func (e *Extents) Put(run Extent) {
	if run.Count == 0 {
		return
	}
	e.Used -= run.Count
	i, _ := slices.BinarySearchFunc(e.free, run, func(a, b Extent) int { return cmp.Compare(a.First, b.First) })
	e.free = slices.Insert(e.free, i, run)
	if i+1 < len(e.free) && run.First+run.Count == e.free[i+1].First {
		e.free[i].Count += e.free[i+1].Count
		e.free = slices.Delete(e.free, i+1, i+2)
	}
	if i > 0 && e.free[i-1].First+e.free[i-1].Count == run.First {
		e.free[i-1].Count += e.free[i].Count
		e.free = slices.Delete(e.free, i, i+1)
	}
}
