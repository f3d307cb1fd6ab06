package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
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
func (e *eventSet) drawBlocks(stop <-chan struct{}) {
	timer := time.NewTimer(e.left())
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-e.redrawn: // another goroutine began a block: a new rate, or events moved
		case <-timer.C:
			e.mu.Lock()
			e.redraw()
			e.mu.Unlock()
		}
		timer.Reset(e.left())
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
func (e *eventSet) begin() {
	if e.placed.placement == PlaceCPUs {
		e.block = stats.DrawBlock(e.options.Rand, e.mean())
	} else {
		e.block = stats.DrawLength(e.options.Rand, targetBlock)
	}
	if e.placed.placement == PlaceThreads { // for threads that the table of weights has no room for
		atomic.StoreUint64(&e.timers.shared.Value.Cpu[0].Period, uint64(e.mean()))
	}
	e.edge = time.Now().Add(e.block)
}

// timers are the periods of timers, where the BPF programs read what samples weigh.
type timers struct {
	options *Options
	log     *slog.Logger
	shared  *bpf.Mapped[kernelTimers]
	weights *ebpf.Map // of threads
}

// draw draws a period for the timer of a CPU, or of a thread if cpu is -1, and stores the
// weight of its samples. The first one weighs more than the period: see stats.FirstWeight.
func (t *timers) draw(mean time.Duration, cpu, tid int) (period time.Duration, err error) {
	period, first := mean, time.Duration(0)
	if !t.options.Fixed {
		period = stats.DrawPeriod(t.options.Rand, mean)
		first = stats.FirstWeight(period) - period
	}
	if cpu >= 0 {
		timer := &t.shared.Value.Cpu[cpu]
		atomic.StoreUint64(&timer.Period, uint64(period))
		atomic.StoreUint64(&timer.First, uint64(first))
		return period, nil
	}
	err = t.weights.Put(uint32(tid), kernelTimerWeight{Period: uint64(period), First: uint64(first)})
	if errors.Is(err, unix.E2BIG) {
		return mean, nil // the weight of threads without an entry in the table
	}
	if err != nil {
		return 0, fmt.Errorf("store the weight of samples of thread %d: %w", tid, err)
	}
	return period, nil
}

// forget removes the weight of a thread's samples.
func (t *timers) forget(tid int) {
	if err := t.weights.Delete(uint32(tid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.log.Debug("forget the weight of samples", "tid", tid, "error", err)
	}
}

// redraw starts a new block and gives events new periods. Timers that run only while a
// target runs get one only if they have run for long enough.
func (e *eventSet) redraw() {
	e.begin()
	for i := len(e.open) - 1; i >= 0; i-- {
		o := &e.open[i]
		if e.placed.placement != PlaceCPUs {
			ran, ended := o.running()
			if ended {
				e.dropEvent(i)
				continue
			}
			if !o.own.due(ran, e.base, e.mean()) {
				continue
			}
		}
		period, err := e.timers.draw(e.mean(), o.cpu, o.of.TID)
		if err == nil {
			err = setPeriod(o.fd, uint64(period))
		}
		if errors.Is(err, unix.ESRCH) {
			e.dropEvent(i) // the thread is gone
		} else if err != nil {
			e.log.Warn("draw a new period", "cpu", o.cpu, "tid", o.of.TID, "error", err)
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
	return ran, still && o.cpu < 0 && errors.Is(unix.Tgkill(o.of.PID, o.of.TID, 0), unix.ESRCH)
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
func (e *eventSet) setBase(asked float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = asked
	e.changeBase(e.placed.rate(asked))
}

// changeBase sets the base rate, the requested rate as far as the budget allows it, and
// applies it to the timers.
func (e *eventSet) changeBase(hz float64) {
	if e.base == hz {
		return
	}
	e.countInterrupts()
	e.base = hz
	switch {
	case e.options.Event.Clock:
		e.redraw()
		e.wake()
	case e.options.byFrequency():
		for _, o := range e.open {
			if err := setPeriod(o.fd, uint64(hz)); err != nil {
				e.log.Warn("change the frequency", "event", e.options.Event.Name, "error", err)
			}
		}
	}
}

// byFrequency reports whether the kernel adjusts the event's period to a frequency.
func (o *Options) byFrequency() bool {
	return !o.Event.Clock && !o.Event.Trace && o.Count == 0
}
