package symbol

import (
	"cmp"
	"slices"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
)

// DetailDeferred is the detail of a loss of samples whose names wait for CPU time.
const DetailDeferred = "names wait: naming is limited to keep within the CPU budget"

// Limit bounds the CPU time of Name to a part of a core; 0 bounds nothing. Over it,
// Name fills in the names that it knows, and counts the rest as a loss: a later
// window has them. Where most samples are is named first.
func (r *Resolver) Limit(cores float64) { r.pace.SetRate(cores) }

// lookupWithin is lookup where naming is limited. The calling goroutine owns its
// thread; work is held.
func (r *Resolver) lookupWithin(m *module, l profile.Location) ([]profile.Frame, outcome) {
	if !m.knows(l.Offset) {
		if r.pace.Wait() > 0 {
			return []profile.Frame{profile.Unnamed(l.Kind, m.path, l.Offset)}, deferred
		}
		began := cputime.Clock()
		defer func() { r.pace.Take(cputime.Clock() - began) }()
	}
	frames, ok := r.lookup(m, l)
	return frames, outcomeOf(ok)
}

// knows tells whether the answer for an offset is ready.
func (m *module) knows(offset uint64) bool {
	_, ready := m.ready[uint32(offset)]
	return ready && offset == uint64(uint32(offset))
}

// order lists a window's locations as they are to be named: by the samples in which
// they are, where that matters.
func order(w *profile.Window, byWeight bool) []int {
	all := make([]int, len(w.Locations))
	for i := range all {
		all[i] = i
	}
	if !byWeight {
		return all
	}
	weights := make([]int64, len(w.Locations))
	for _, row := range w.Rows {
		for _, l := range w.Stacks[row.Stack].Locations {
			weights[l] += row.N
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	return all
}
