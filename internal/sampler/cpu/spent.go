package cpu

import (
	"sync/atomic"
	"time"
)

// Spent is what taking samples has cost, beside the profiler's own process.
type Spent struct {
	BPF       time.Duration // inside the programs; 0 without Options.MeasureCost
	Interrupt time.Duration // of the interrupts: as many as there were, at what an empty one costs here
}

// Spent tells what samples have cost so far.
func (s *Sampler) Spent() (Spent, error) {
	var spent Spent
	if s.options.MeasureCost {
		c, err := s.Costs()
		if err != nil {
			return spent, err
		}
		spent.BPF = c.Total
	}
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	s.countInterrupts()
	spent.Interrupt = time.Duration(s.events.fired.n * float64(interruptCost()))
	return spent, nil
}

// interrupts is how often events have fired, wherever they were.
type interrupts struct {
	n       float64
	at      time.Time // counted up to here,
	entered uint64    // when the programs had begun so often
}

// countInterrupts counts up to now: before events go elsewhere, or their rate
// changes. Timers of CPUs fire whoever runs there, and where it is idle: of those
// the programs count not all. Who calls it holds the events' lock.
func (s *Sampler) countInterrupts() {
	e, now, entered := &s.events, time.Now(), uint64(0)
	for i := range s.shared.Value.Cpu {
		entered += atomic.LoadUint64(&s.shared.Value.Cpu[i].Entered)
	}
	switch {
	case e.fired.at.IsZero():
	case s.options.Event.Clock && e.placed.placement == PlaceCPUs:
		e.fired.n += now.Sub(e.fired.at).Seconds() * e.base * float64(len(s.options.CPUs))
	default:
		e.fired.n += float64(entered - e.fired.entered)
	}
	e.fired.at, e.fired.entered = now, entered
}
