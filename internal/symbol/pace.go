package symbol

import (
	"cmp"
	"context"
	"slices"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
)

// DetailDeferred is the detail of the loss that counts samples whose names wait for CPU
// time.
const DetailDeferred = "names wait: naming is limited to keep within the CPU budget"

// Limit bounds the CPU time of Name to a part of a core; 0 is no bound. Beyond the bound,
// Name fills in the names that it has ready and counts the rest as a loss; a later window
// can have them. Name starts with the locations that have the most samples.
func (r *Resolver) Limit(cores float64) { r.pace.SetRate(cores) }

// lookupWithin is lookup within the limit. The caller has locked its goroutine to its
// thread, whose clock is read, and holds r.work.
func (r *Resolver) lookupWithin(ctx context.Context, m *module, l profile.Location) ([]profile.Frame, outcome) {
	if !m.knows(l.Offset) {
		if r.pace.Wait() > 0 {
			return []profile.Frame{profile.Unnamed(l.Kind, m.path, l.Offset)}, deferred
		}
		began := cputime.Clock()
		defer func() { r.pace.Take(cputime.Clock() - began) }()
	}
	frames, ok := r.loader.lookup(ctx, m, l)
	return frames, outcomeOf(ok)
}

// knows reports whether the answer for an offset is ready.
func (m *module) knows(offset uint64) bool {
	_, ready := m.ready[uint32(offset)]
	return ready && offset == uint64(uint32(offset))
}

// order returns a window's locations in the order in which to name them. With byWeight,
// those with the most samples come first.
func order(w *profile.Window, byWeight bool) []int {
	all := make([]int, len(w.Locations))
	for i := range all {
		all[i] = i
	}
	if !byWeight {
		return all
	}
	weights := make([]int64, len(w.Locations))
	for _, row := range w.Rows.All() {
		for _, l := range w.Stacks[row.Stack].Locations {
			weights[l] += row.N
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	return all
}
