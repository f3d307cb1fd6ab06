package cpu

import "time"

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
	spent.Interrupt = time.Duration(s.events.interrupts() * float64(interruptCost()))
	return spent, nil
}

// interrupts is how often events have fired, wherever they were.
type interrupts struct {
	n       float64
	at      time.Time // counted up to here,
	entered uint64    // when the programs had begun so often
}

// interrupts returns how often events have fired so far.
func (e *eventSet) interrupts() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.countInterrupts()
	return e.fired.n
}

// countInterrupts counts up to now: before events go elsewhere, or their rate
// changes. Timers of CPUs fire whoever runs there, and where it is idle: of those
// the programs count not all. Who calls it holds the events' lock.
func (e *eventSet) countInterrupts() {
	now, entered := time.Now(), e.table.Samples()
	switch {
	case e.fired.at.IsZero():
	case e.options.Event.Clock && e.placed.placement == PlaceCPUs:
		e.fired.n += now.Sub(e.fired.at).Seconds() * e.base * float64(len(e.options.CPUs))
	default:
		e.fired.n += float64(entered - e.fired.entered)
	}
	e.fired.at, e.fired.entered = now, entered
}
