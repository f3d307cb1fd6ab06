package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/stats"
)

// targetBlock is the mean length of blocks where the timer runs only while a
// target does.
const targetBlock = time.Second

// ownPeriods is for how many periods a timer that runs only while a target does has
// run before it is started afresh with a new one: what it has run of a period is
// lost, and one that runs rarely would never fire.
const ownPeriods = 50

// ownTimer is the timer of an event that runs only while a target does.
type ownTimer struct {
	base float64       // rate it was last drawn for
	ran  time.Duration // up to then
	seen time.Duration // up to the last look
}

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

// wake has drawBlocks know that the block under way is another.
func (e *eventSet) wake() {
	select {
	case e.redrawn <- struct{}{}:
	default:
	}
}

// mean is the period of the base rate. Who calls it holds the events' lock, here
// and below.
func (e *eventSet) mean() time.Duration {
	return time.Duration(math.Round(float64(time.Second) / e.base))
}

// begin begins a block.
func (s *Sampler) begin() {
	e := &s.events
	if e.placed.placement == PlaceCPUs {
		e.block = stats.DrawBlock(s.options.Rand, e.mean())
	} else {
		e.block = stats.DrawLength(s.options.Rand, targetBlock)
	}
	if e.placed.placement == PlaceThreads { // of those that the table of weights has no room for
		atomic.StoreUint64(&s.shared.Value.Cpu[0].Period, uint64(e.mean()))
	}
	e.edge = time.Now().Add(e.block)
}

// draw gives a timer its period, and how much more than that its first sample
// weighs: see stats.FirstWeight.
func (s *Sampler) draw() (period, first time.Duration) {
	if s.options.Fixed {
		return s.events.mean(), 0
	}
	period = stats.DrawPeriod(s.options.Rand, s.events.mean())
	return period, stats.FirstWeight(period) - period
}

// drawFor draws a timer for an event of a CPU, or of a thread (-1), and tells the
// programs what its samples weigh.
func (s *Sampler) drawFor(cpu, tid int) (period time.Duration, err error) {
	period, first := s.draw()
	if cpu >= 0 {
		state := &s.shared.Value.Cpu[cpu]
		atomic.StoreUint64(&state.Period, uint64(period))
		atomic.StoreUint64(&state.First, uint64(first))
		return period, nil
	}
	err = s.objects.Weights.Put(uint32(tid), kernelTimerWeight{Period: uint64(period), First: uint64(first)})
	if errors.Is(err, unix.E2BIG) {
		return s.events.mean(), nil // which is what samples of the others weigh
	}
	if err != nil {
		return 0, fmt.Errorf("tell what samples of thread %d weigh: %w", tid, err)
	}
	return period, nil
}

func (s *Sampler) forgetWeight(tid int) {
	if err := s.objects.Weights.Delete(uint32(tid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		s.log.Debug("forget what samples weigh", "tid", tid, "error", err)
	}
}

// redraw begins a new block: events get new periods, those of targets as far as
// they have run for long enough.
func (s *Sampler) redraw() {
	s.begin()
	e := &s.events
	for i := len(e.open) - 1; i >= 0; i-- {
		o := &e.open[i]
		if e.placed.placement != PlaceCPUs {
			ran, ended := o.running()
			if ended {
				s.dropEvent(i)
				continue
			}
			if !o.own.due(ran, e.base, e.mean()) {
				continue
			}
		}
		period, err := s.drawFor(o.cpu, o.of.tid)
		if err == nil {
			err = setPeriod(o.fd, uint64(period))
		}
		if errors.Is(err, unix.ESRCH) {
			s.dropEvent(i) // the thread is gone
		} else if err != nil {
			s.log.Warn("draw a new period", "cpu", o.cpu, "tid", o.of.tid, "error", err)
		}
	}
}

// running is how long an event has run since it was opened, and whether its thread
// has ended: an event stays after it.
func (o *openEvent) running() (ran time.Duration, ended bool) {
	var count [8]byte
	if n, err := unix.Read(o.fd, count[:]); n != len(count) || err != nil {
		return o.own.seen, o.cpu < 0
	}
	ran = time.Duration(binary.NativeEndian.Uint64(count[:]))
	still := ran == o.own.seen
	o.own.seen = ran
	return ran, still && o.cpu < 0 && errors.Is(unix.Tgkill(o.of.pid, o.of.tid, 0), unix.ESRCH)
}

// due tells whether a timer has run for long enough to start afresh.
func (t *ownTimer) due(ran time.Duration, base float64, mean time.Duration) bool {
	if t.base == base && ran-t.ran < ownPeriods*mean {
		return false
	}
	t.base, t.ran = base, ran
	return true
}

// setBase has the timers follow a new base rate at once: at the edge of a
// window, that it may hold from there on.
func (s *Sampler) setBase(asked float64) {
	e := &s.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = asked
	s.changeBase(e.placed.rate(asked))
}

// changeBase has the timers follow what is had of the rate that is asked for.
func (s *Sampler) changeBase(hz float64) {
	e := &s.events
	if e.base == hz {
		return
	}
	s.countInterrupts()
	e.base = hz
	switch {
	case s.options.Event.Clock:
		s.redraw()
		e.wake()
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
