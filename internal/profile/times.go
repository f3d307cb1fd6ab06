package profile

import (
	"slices"
	"time"
)

// Times is when windows were taken: of each start the longest, in nanoseconds. What is
// added up of a step begins with the step, and is as long as there was something of
// it, so that from the first start to the last end there may be much that nobody saw.
type Times map[int64]time.Duration

// Add adds the time of a window.
func (t Times) Add(h *Head) {
	if h.Start.IsZero() {
		return
	}
	at := h.Start.UnixNano()
	t[at] = max(t[at], h.Duration)
}

// Covered is how long there was a window, whether of one or of many.
func (t Times) Covered() (sum time.Duration) {
	starts := make([]int64, 0, len(t))
	for at := range t {
		starts = append(starts, at)
	}
	slices.Sort(starts)
	for i, end := 0, int64(0); i < len(starts); i++ {
		at, until := starts[i], starts[i]+int64(t[starts[i]])
		if i > 0 {
			at = max(at, end)
		}
		sum += time.Duration(max(until-at, 0))
		end = max(end, until)
	}
	return sum
}
