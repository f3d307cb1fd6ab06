package pipeline

import (
	"time"

	"atys.dev/atys/internal/profile"
)

// balances compares sampled with exact CPU time, window by window, for each target of a
// recording. The zero value is ready to use.
type balances map[string]*balance

type balance struct {
	profile.Ledger
	last time.Time // the start of the newest window
}

// forgetBalance is how long after its last window a target counts as gone.
const forgetBalance = 15 * time.Minute

// add adds a loss to the windows of targets, one of each, once it is certain that CPU time
// was not sampled.
func (b *balances) add(parts []*profile.Window, machine profile.Labels) {
	if *b == nil {
		*b = balances{}
	}
	var now time.Time
	for _, w := range parts {
		key := w.Target.String()
		if key == machine.String() {
			continue // what belongs to nobody has no exact time
		}
		of := (*b)[key]
		if of == nil {
			of = &balance{}
			(*b)[key] = of
		}
		of.Add(w)
		of.last = w.Start
		if now.Before(w.Start) {
			now = w.Start
		}
	}
	for key, of := range *b {
		if now.Sub(of.last) > forgetBalance {
			delete(*b, key)
		}
	}
}
