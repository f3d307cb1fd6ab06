package unwind

import (
	"cmp"
	"slices"
)

// extent is a run of cells of a fixed array.
type extent struct{ first, count uint32 }

// extents hands out runs of a fixed array, first fit. Programs may still look
// at a run while it is given back, so callers free it only after a pause.
type extents struct {
	free []extent // sorted, never adjacent
	used uint32
}

func newExtents(first, count uint32) *extents {
	return &extents{free: []extent{{first, count}}}
}

// take reserves n cells; ok is false where no run is long enough.
func (e *extents) take(n uint32) (run extent, ok bool) {
	if n == 0 {
		return extent{}, true
	}
	for i, f := range e.free {
		if f.count < n {
			continue
		}
		if f.count == n {
			e.free = slices.Delete(e.free, i, i+1)
		} else {
			e.free[i] = extent{f.first + n, f.count - n}
		}
		e.used += n
		return extent{f.first, n}, true
	}
	return extent{}, false
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
