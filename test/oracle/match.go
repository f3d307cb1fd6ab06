package oracle

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"atys.dev/atys/internal/profile"
)

const (
	// maxApart is how far the two times of one interrupt can lie apart: the kernel writes
	// its record within some microseconds of our walk. More would be wrong: what the
	// interrupt of another timer saw, a moment later, can be another function.
	maxApart = 20 * time.Microsecond
	// maxShift is by how much our conversion of a window's start to the kernel's clock can
	// differ from the sampler's: on a busy machine either may lose its CPU between reading
	// two clocks.
	maxShift = time.Millisecond
)

// pair is one interrupt as both sides saw it.
type pair struct {
	sample profile.Sample
	record *record
	apart  time.Duration
}

// match finds each record's sample: of the same CPU and thread, and nearest in
// time. start is when the window began. late counts records without a sample.
func match(w *profile.Window, start uint64, records []*record) (pairs []pair, late int) {
	near := nearest(w, start, records)
	var shift time.Duration
	if n := len(near); n > 0 {
		slices.SortFunc(near, func(a, b pair) int { return cmp.Compare(a.apart, b.apart) })
		shift = near[n/2].apart
	}
	for _, p := range near {
		if (p.apart - shift).Abs() <= maxApart {
			pairs = append(pairs, p)
		}
	}
	return pairs, len(records) - len(pairs)
}

// nearest pairs each record with the nearest sample of its CPU and thread, if one is no
// further away than the clocks can differ.
func nearest(w *profile.Window, start uint64, records []*record) (pairs []pair) {
	byCPU := map[int][]profile.Sample{}
	for _, s := range w.Samples {
		byCPU[s.CPU] = append(byCPU[s.CPU], s)
	}
	for _, samples := range byCPU {
		slices.SortFunc(samples, func(a, b profile.Sample) int { return cmp.Compare(a.Time, b.Time) })
	}
	for _, r := range records {
		at := time.Duration(r.time - start)
		samples := byCPU[r.cpu]
		i, _ := slices.BinarySearchFunc(samples, at, func(s profile.Sample, t time.Duration) int { return cmp.Compare(s.Time, t) })
		best, apart := -1, maxShift
		for _, j := range []int{i - 1, i} {
			if j < 0 || j >= len(samples) || w.Thread(samples[j].Thread).TID != r.tid {
				continue
			}
			if d := (at - samples[j].Time).Abs(); d < apart {
				best, apart = j, d
			}
		}
		if best >= 0 {
			pairs = append(pairs, pair{samples[best], r, at - samples[best].Time})
		}
	}
	return pairs
}

// claim is the user part of a stack of ours.
type claim struct {
	places []place
	end    profile.End
}

// stack gives what the sampler says of a sample.
func (w *watch) stack(window *profile.Window, s profile.Sample) claim {
	stack := window.Stacks[s.Stack]
	c := claim{end: stack.End}
	for _, id := range stack.Locations {
		switch l := window.Locations[id]; l.Kind {
		case profile.KindKernel:
		case profile.KindJIT:
			address, err := strconv.ParseUint(l.Name, 16, 64)
			if err != nil {
				address = 0 // not of startWatch's making: equal to nothing
			}
			c.places = append(c.places, place{"", address})
		default:
			c.places = append(c.places, place{w.path(l.BuildID), l.Offset})
		}
	}
	return c
}
