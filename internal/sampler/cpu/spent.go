package cpu

import (
	"sync/atomic"
	"time"
)

// Spent is what taking samples has cost, beside the profiler's own process.
type Spent struct {
	BPF       time.Duration // inside the programs; 0 without Options.MeasureCost
	Interrupt time.Duration // of the interrupts: as many as there were, at what an empty one costs
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
	spent.Interrupt = time.Duration(s.interrupts() * float64(interruptCost))
	return spent, nil
}

// interrupts is how often the events have fired. Who calls it holds the events'
// lock, here and below.
func (s *Sampler) interrupts() (n float64) {
	if s.onTimers() {
		s.countTimers()
		return s.events.fired
	}
	for i := range s.shared.Value.Cpu {
		n += float64(atomic.LoadUint64(&s.shared.Value.Cpu[i].Entered))
	}
	return n
}

// onTimers tells whether each CPU has a timer that fires whoever runs there, and
// where it is idle: of those the programs count not all.
func (s *Sampler) onTimers() bool {
	return s.options.Event.Clock && s.events.decision.placement == PlaceCPUs
}

// countTimers counts how often the timers have fired at their rate, up to now.
func (s *Sampler) countTimers() {
	e, now := &s.events, time.Now()
	if !e.counted.IsZero() {
		e.fired += now.Sub(e.counted).Seconds() * e.base * float64(len(s.options.CPUs))
	}
	e.counted = now
}
