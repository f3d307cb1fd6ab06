package unwind

import (
	"cmp"
	"slices"
)

// extent is a run of cells of a fixed array.
type extent struct{ first, count uint32 }

// extents hands out runs of a fixed array: small ones from its beginning, large
// ones from its end. Mixed, the small ones that stay would leave no room for a
// large one that comes back. Programs may still look at a run while it is given
// back, so callers free it only after a pause.
type extents struct {
	free  []extent // sorted, never adjacent
	used  uint32
	large uint32 // a run of so many cells is large
}

// largePart is which part of the array makes a run a large one.
const largePart = 32

func newExtents(first, count uint32) *extents {
	return &extents{free: []extent{{first, count}}, large: max(count/largePart, 1)}
}

// take reserves n cells; ok is false where no run is long enough.
func (e *extents) take(n uint32) (run extent, ok bool) {
	if n == 0 {
		return extent{}, true
	}
	for i := range e.free {
		if n < e.large {
			if f := e.free[i]; f.count >= n {
				return e.cut(i, extent{f.first, n}), true
			}
			continue
		}
		i = len(e.free) - 1 - i
		if f := e.free[i]; f.count >= n {
			return e.cut(i, extent{f.first + f.count - n, n}), true
		}
	}
	return extent{}, false
}

// cut takes a run off the beginning or the end of a free one.
func (e *extents) cut(i int, run extent) extent {
	f := &e.free[i]
	if run.first == f.first {
		f.first += run.count
	}
	if f.count -= run.count; f.count == 0 {
		e.free = slices.Delete(e.free, i, i+1)
	}
	e.used += run.count
	return run
}

// put gives a run back and joins it with its neighbours.
func (e *extents) put(run extent) {
	if run.count == 0 {
		return
	}
	e.used -= run.count
	i, _ := slices.BinarySearchFunc(e.free, run, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	e.free = slices.Insert(e.free, i, run)
	if i+1 < len(e.free) && run.first+run.count == e.free[i+1].first {
		e.free[i].count += e.free[i+1].count
		e.free = slices.Delete(e.free, i+1, i+2)
	}
	if i > 0 && e.free[i-1].first+e.free[i-1].count == run.first {
		e.free[i-1].count += e.free[i].count
		e.free = slices.Delete(e.free, i, i+1)
	}
}
