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

// targetBlock is the mean length of a block for timers that run only while a target
// runs.
const targetBlock = time.Second

// ownPeriods is how many periods a timer that runs only while a target runs must have
// run before it gets a new period. The new period restarts the timer, which loses the
// part of a period that has passed. Restarted with every block, a timer that runs rarely
// would never fire.
const ownPeriods = 50

// ownTimer is the timer of an event that runs only while a target runs.
type ownTimer struct {
	base float64       // rate that its period was drawn for
	ran  time.Duration // how long it had run at that draw
	seen time.Duration // how long it had run at the last look
}

// drawBlocks gives all events new periods at the start of each block, until the sampler
// is closed. All CPUs share the edge between blocks, so there is one wakeup for all.
func (s *Sampler) drawBlocks() {
	timer := time.NewTimer(s.events.left())
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.events.redrawn: // another goroutine began a block: a new rate, or events moved
		case <-timer.C:
			s.events.mu.Lock()
			s.redraw()
			s.events.mu.Unlock()
		}
		timer.Reset(s.events.left())
	}
}

// left returns the time until the current block ends.
func (e *eventSet) left() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.edge)
}

// wake tells drawBlocks that a new block has begun.
func (e *eventSet) wake() {
	select {
	case e.redrawn <- struct{}{}:
	default:
	}
}

// mean returns the period of the base rate. The caller holds the events' lock, here and
// below unless a function takes it.
func (e *eventSet) mean() time.Duration {
	return time.Duration(math.Round(float64(time.Second) / e.base))
}

// begin starts a block and draws its length.
func (s *Sampler) begin() {
	e := &s.events
	if e.placed.placement == PlaceCPUs {
		e.block = stats.DrawBlock(s.options.Rand, e.mean())
	} else {
		e.block = stats.DrawLength(s.options.Rand, targetBlock)
	}
	if e.placed.placement == PlaceThreads { // for threads that the table of weights has no room for
		atomic.StoreUint64(&s.shared.Value.Cpu[0].Period, uint64(e.mean()))
	}
	e.edge = time.Now().Add(e.block)
}

// draw returns a period for a timer, and how much more than the period its first sample
// weighs: see stats.FirstWeight.
func (s *Sampler) draw() (period, first time.Duration) {
	if s.options.Fixed {
		return s.events.mean(), 0
	}
	period = stats.DrawPeriod(s.options.Rand, s.events.mean())
	return period, stats.FirstWeight(period) - period
}

// drawFor draws the period of an event on a CPU, or on a thread if cpu is -1. It stores
// the weight of the event's samples where the BPF programs read it.
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
		return s.events.mean(), nil // the weight of threads without an entry in the table
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

// redraw starts a new block and gives events new periods. Timers that run only while a
// target runs get one only if they have run for long enough.
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

// running returns how long an event has run since it was opened, and whether its thread
// has ended. The kernel does not close the event of a thread that ends.
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

// due reports whether a timer may be restarted: it has run for long enough, or the base
// rate has changed.
func (t *ownTimer) due(ran time.Duration, base float64, mean time.Duration) bool {
	if t.base == base && ran-t.ran < ownPeriods*mean {
		return false
	}
	t.base, t.ran = base, ran
	return true
}

// setBase applies a new requested rate to the timers at once. It is called at the edge of
// a window, so that the rate holds for the whole window.
func (s *Sampler) setBase(asked float64) {
	e := &s.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = asked
	s.changeBase(e.placed.rate(asked))
}

// changeBase sets the base rate, the requested rate as far as the budget allows it, and
// applies it to the timers.
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

// byFrequency reports whether the kernel adjusts the event's period to a frequency.
func (o *Options) byFrequency() bool {
	return !o.Event.Clock && !o.Event.Trace && o.Count == 0
}
