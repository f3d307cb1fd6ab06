package cpu

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/stats"
)

// targetBlock is the mean length of blocks where the timer runs only while a
// target does.
const targetBlock = time.Second

// targetSamples is how many samples a cgroup's timer takes before it is started
// afresh with a new period: one that runs rarely must be left alone long enough
// to be sampled at all.
const targetSamples = 20

// drawBlocks gives all events new periods, block by block, until the sampler is
// closed. One edge for all CPUs wakes us once, however many there are.
func (s *Sampler) drawBlocks() {
	timer := time.NewTimer(s.events.left())
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.events.redrawn: // by another, with the base rate
		case <-timer.C:
			s.events.mu.Lock()
			s.redraw()
			s.events.mu.Unlock()
		}
		timer.Reset(s.events.left())
	}
}

// left is how long the block under way still lasts.
func (e *eventSet) left() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.edge)
}

// mean is the period of the base rate. Who calls it holds the events' lock, here
// and below.
func (e *eventSet) mean() time.Duration {
	return time.Duration(math.Round(float64(time.Second) / e.base))
}

// begin begins a block.
func (s *Sampler) begin() {
	e := &s.events
	if e.decision.placement == PlaceCPUs {
		e.block = stats.DrawBlock(s.options.Rand, e.mean())
	} else {
		e.block = stats.DrawLength(s.options.Rand, targetBlock)
	}
	e.edge = time.Now().Add(e.block)
}

// draw gives a timer of this block and what its samples weigh. How long a
// target runs of the block is not known: there a sample weighs the period itself.
func (s *Sampler) draw() (timer, weight time.Duration) {
	e := &s.events
	if s.options.Fixed {
		return e.mean(), e.mean()
	}
	timer = stats.DrawPeriod(s.options.Rand, e.mean())
	if e.decision.placement != PlaceCPUs {
		return timer, timer
	}
	return timer, stats.BlockWeight(e.block, timer)
}

// drawFor draws a timer for events of a CPU, or of threads (-1), and tells the
// programs its weight.
func (s *Sampler) drawFor(cpu int) time.Duration {
	timer, weight := s.draw()
	atomic.StoreUint64(&s.shared.Value.Cpu[max(cpu, 0)].Period, uint64(weight))
	s.events.period = uint64(timer)
	return timer
}

// redraw begins a new block: each CPU, or all threads together, get a new period.
func (s *Sampler) redraw() {
	s.begin()
	timers := map[int]time.Duration{}
	e := &s.events
	for i := 0; i < len(e.open); i++ {
		o := &e.open[i]
		timer, ok := timers[o.cpu]
		if !ok {
			if !s.due(o) {
				continue
			}
			timer = s.drawFor(o.cpu)
			timers[o.cpu] = timer
		}
		if err := setPeriod(o.fd, uint64(timer)); errors.Is(err, unix.ESRCH) {
			s.dropEvent(i) // the thread is gone
			i--
		}
	}
}

// due tells whether an event has taken enough samples to start afresh.
func (s *Sampler) due(o *openEvent) bool {
	if s.events.decision.placement != PlaceCgroup || o.base != s.events.base {
		o.base = s.events.base
		return true
	}
	entered := atomic.LoadUint64(&s.shared.Value.Cpu[o.cpu].Entered)
	if entered-o.entered < targetSamples {
		return false
	}
	o.entered = entered
	return true
}

// setBase has the timers follow a new base rate at once: at the edge of a
// window, that it may hold from there on.
func (s *Sampler) setBase(hz float64) {
	e := &s.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base == hz {
		return
	}
	s.countTimers()
	e.base = hz
	switch {
	case s.options.Event.Clock:
		s.redraw()
		select {
		case e.redrawn <- struct{}{}:
		default:
		}
	case s.options.byFrequency():
		for _, o := range e.open {
			if err := setPeriod(o.fd, uint64(hz)); err != nil {
				s.log.Warn("change the frequency", "event", s.options.Event.Name, "error", err)
			}
		}
	}
}

// byFrequency tells whether the kernel itself keeps the event at a frequency.
func (o *Options) byFrequency() bool {
	return !o.Event.Clock && !o.Event.Trace && o.Count == 0
}
