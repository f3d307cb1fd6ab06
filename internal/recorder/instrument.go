package recorder

import (
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
)

// Instrument is a recording as a sampler of others, who keep time.
type Instrument struct{ *Recorder }

// Cut ends the current window; see sampler.Sampler. Names that only the process itself
// knew are there.
func (r Instrument) Cut(e sampler.Edge) ([]*profile.Window, error) { return r.cutAt(e) }

// SetFrequency has a recording sample as often as this, from the next window on.
func (r Instrument) SetFrequency(hz float64) error { return r.events.SetFrequency(hz) }

// SetRates gives targets rates of their own, from the next window on; see cpu.Sampler.
func (r Instrument) SetRates(hz map[int]float64) error { return r.events.SetRates(hz) }

// Spent tells what samples have cost so far, beside this process's own time.
func (r Instrument) Spent() (bpf, interrupts time.Duration, err error) {
	s, err := r.events.Spent()
	return s.BPF, s.Interrupt, err
}

// Aim makes processes targets, with their later children, and others no longer, from the
// next window on. The recording must be one of processes. It does not wait for the
// unwinder, which has to know new ones before they are sampled: then Setup.Ready is
// called, and the next Aim reports them as fresh.
func (r Instrument) Aim(add, drop []int) (fresh bool) {
	r.events.AimLater(add, drop)
	return r.readying.add(add)
}
