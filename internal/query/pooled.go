package query

import (
	"errors"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/stats"
)

// Pooled is a step's share by what all steps of its stretch, in which the same was
// done, say of it. It is never less sure than the step alone.
type Pooled struct {
	Share   stats.Interval
	Stretch int  // its number in the answer
	Final   bool // what comes later changes it little
}

// ErrNotPooled says what cannot be pooled.
var ErrNotPooled = errors.New("only steps of a function are pooled, of all that is chosen: say of which function (--function) and how long steps are (--step), and not by what else to split")

// pool has the parts, which are steps, say what they know of each other. windows are
// what ran in each.
func pool(parts []Part, windows []freq.Window) {
	own := make([]float64, len(parts))
	for i := range parts {
		own[i] = parts[i].Share.Value
	}
	pooled := freq.Pool(windows, freq.Options{})
	shares := pooled.Intervals(own)
	for i := range parts {
		if e := pooled.Estimates[i]; parts[i].N > 0 {
			parts[i].Pooled = &Pooled{shares[i], e.Stretch, e.Final}
		}
	}
}
