package cpu

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/sampler/table"
)

// Placement says what events are opened on.
type Placement uint8

const (
	PlaceByCost  Placement = iota // the sampler decides; see place
	PlaceCPUs                     // on each CPU: interrupts whatever runs there
	PlaceThreads                  // on each thread: its context switches cost more
	PlaceCgroup                   // on each CPU, counting only while threads of the cgroup run
)

// eventSet is the open events and where they are placed.
type eventSet struct {
	options *Options
	log     *slog.Logger
	objects *kernelParts
	table   *table.Table
	timers  timers
	redrawn chan struct{} // tells drawBlocks that edge has changed

	mu      sync.Mutex // guards all below
	placed  placed
	mover   mover         // decides where they go next
	asked   float64       // Hz requested
	base    float64       // Hz after the budget
	block   time.Duration // length of the current block
	edge    time.Time     // its end
	open    []openEvent
	seconds []int
	cgroup  *os.File
	closed  bool
	fired   interrupts
	enabled bool // events are enabled as they are opened
}

// openEvent is one running event.
type openEvent struct {
	fd   int
	link link.Link
	cpu  int            // -1: the event is on a thread
	of   table.ThreadID // that thread
	own  ownTimer       // for an event that runs only while a target runs
}

func (e *eventSet) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	var errs []error
	for _, o := range e.open {
		errs = append(errs, o.link.Close(), unix.Close(o.fd))
	}
	for _, fd := range e.seconds {
		errs = append(errs, unix.Close(fd))
	}
	if e.cgroup != nil {
		errs = append(errs, e.cgroup.Close())
	}
	e.open, e.seconds, e.cgroup = nil, nil, nil
	return errors.Join(append(errs, e.timers.shared.Close())...)
}

// rates returns the requested rate, the one in use after the budget, and the highest that
// the budget allows; 0: no limit.
func (e *eventSet) rates() (asked, base, most float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked, e.base, e.placed.cap
}

// openFirst opens the first events.
func (e *eventSet) openFirst(first placed) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.placed = first
	e.base = first.rate(e.asked)
	if e.options.movable() && first.placement == PlaceCPUs {
		e.mover.guard(time.Now(), e.table.Births())
	}
	if e.options.Second != nil {
		if err := e.openSecond(); err != nil {
			return err
		}
	}
	return e.openPlaced()
}

// enableAll enables the events that are open, and from now on each that is opened.
func (e *eventSet) enableAll() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.enabled = true
	for _, o := range e.open {
		if err := e.enable(o.fd); err != nil {
			return err
		}
	}
	return nil
}

func (e *eventSet) enable(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable event %s: %w", e.options.Event.Name, err)
	}
	return nil
}

// openPlaced opens the events where they are placed. The caller holds the events' lock,
// here and below unless a function takes it.
func (e *eventSet) openPlaced() (err error) {
	o := e.options
	if o.Event.Clock {
		e.begin()
		e.countInterrupts()
	}
	onThreads := e.placed.placement == PlaceThreads
	atomic.StoreUint32(&e.timers.shared.Value.OnThreads, table.Flag(onThreads))
	e.table.Alert(onThreads && e.mover.state == apart) // before threads are listed
	if e.placed.placement == PlaceCgroup && !o.Event.Trace && e.cgroup == nil {
		if e.cgroup, err = os.Open(e.placed.cgroup); err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
	}
	switch {
	case o.Event.Trace:
		// A program attached to a tracepoint sees every hit on the machine,
		// whichever event it is attached through, so one event is enough.
		return e.openOne(-1, o.CPUs[0], 0, e.objects.OnSample)
	case onThreads:
		return e.openThreads()
	}
	pid, flags := e.whose()
	for _, cpu := range o.CPUs {
		if err := e.openOne(pid, cpu, flags, e.objects.OnSample); err != nil {
			return err
		}
	}
	return nil
}

// whose returns the pid and flags that make an event on a CPU count everything, or only
// the threads of the cgroup.
func (e *eventSet) whose() (pid, flags int) {
	if e.cgroup != nil {
		return int(e.cgroup.Fd()), unix.PERF_FLAG_PID_CGROUP
	}
	return -1, 0
}

// openThreads opens an event for each thread of each target.
func (e *eventSet) openThreads() error {
	for _, pid := range e.table.Targets.List() { // includes children forked since the targets were named
		tids, err := proc.FS{}.ThreadIDs(pid)
		if errors.Is(err, proc.ErrNotFound) {
			continue // exited meanwhile
		}
		if err != nil {
			return fmt.Errorf("list threads of process %d: %w", pid, err)
		}
		for _, tid := range tids {
			if _, err := e.openThread(table.ThreadID{PID: pid, TID: tid}); err != nil {
				return err
			}
		}
	}
	return nil
}

// followThreads opens an event for each thread of new targets, if events are on
// threads.
func (e *eventSet) followThreads(pids []int) {
	for _, pid := range pids {
		tids, err := proc.FS{}.ThreadIDs(pid)
		if err != nil && !errors.Is(err, proc.ErrNotFound) {
			e.log.Warn("sample threads", "pid", pid, "error", err)
		}
		for _, tid := range tids {
			e.followThread(table.ThreadID{PID: pid, TID: tid})
		}
	}
}

// followThread opens an event for a thread of a target, if events are on threads.
// follows reports whether they are, opened whether the event was opened before the thread
// ended.
func (e *eventSet) followThread(id table.ThreadID) (opened, follows bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.placed.placement != PlaceThreads || e.closed || !e.table.Wanted(id.PID) {
		return false, false
	}
	opened, err := e.openThread(id)
	if err != nil {
		e.log.Warn("sample new thread", "pid", id.PID, "tid", id.TID, "error", err)
	}
	return opened, true
}

// openThread opens an event for a thread, unless it has ended.
func (e *eventSet) openThread(id table.ThreadID) (opened bool, err error) {
	err = e.openOne(id.TID, -1, 0, e.objects.OnSample)
	if errors.Is(err, unix.ESRCH) {
		e.timers.forget(id.TID)
		return false, nil
	}
	if err == nil {
		e.open[len(e.open)-1].of = id
	}
	return err == nil, err
}

// leaveThreads closes the events on the threads of these processes.
func (e *eventSet) leaveThreads(processes map[int]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.open) - 1; i >= 0; i-- {
		if o := e.open[i]; o.cpu < 0 && processes[o.of.PID] {
			e.dropEvent(i)
		}
	}
}

// openOne opens and attaches one event, and enables it unless enableEvents will.
func (e *eventSet) openOne(pid, cpu, flags int, program *ebpf.Program) error {
	timer, err := e.period(pid, cpu)
	if err != nil {
		return err
	}
	attr := e.options.Event.attr(timer)
	if e.options.byFrequency() {
		attr.Sample = uint64(e.base)
		attr.Bits |= unix.PerfBitFreq
	}
	if e.options.Tap != nil {
		e.options.Tap.Attr(attr)
	}
	fd, err := unix.PerfEventOpen(attr, pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
	for errors.Is(err, unix.EOPNOTSUPP) && attr.Bits&(unix.PerfBitPreciseIPBit1|unix.PerfBitPreciseIPBit2) != 0 {
		attr.Bits -= unix.PerfBitPreciseIPBit1 // one step less precise
		fd, err = unix.PerfEventOpen(attr, pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
	}
	if err != nil {
		return e.openError(err)
	}
	attached, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: program, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("attach to event %s: %w", e.options.Event.Name, err)
	}
	e.open = append(e.open, openEvent{fd: fd, cpu: cpu, link: attached, own: ownTimer{base: e.base}})
	if e.options.Tap != nil {
		if err := e.options.Tap.Opened(fd, cpu); err != nil {
			return err
		}
	}
	if !e.enabled {
		return nil
	}
	return e.enable(fd)
}

func (e *eventSet) openError(err error) error {
	name := e.options.Event.Name
	switch {
	case e.options.Event.PMU && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)):
		return fmt.Errorf("event %q needs a hardware performance counter, and this machine has none (virtual machines often hide it): use cpu-clock", name)
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return fmt.Errorf("open event %q: %w: %s", name, err, proc.AsRoot(" or give atys CAP_PERFMON (\"atys doctor\" shows how)", "CAP_PERFMON"))
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("open event %q: %w: raise the limit with \"ulimit -n\"", name, err)
	}
	return fmt.Errorf("open event %q: %w", name, err)
}

// openSecond opens the counters of the second event, which the programs read at each
// sample.
func (e *eventSet) openSecond() error {
	pid, flags := e.whose()
	for _, cpu := range e.options.CPUs {
		fd, err := unix.PerfEventOpen(e.options.Second.counting(), pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open second event %q: %w", e.options.Second.Name, err)
		}
		e.seconds = append(e.seconds, fd)
		if err := e.objects.DeltaEvents.Update(uint32(cpu), uint32(fd), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("read event %q at samples: %w", e.options.Second.Name, err)
		}
	}
	return nil
}

// period returns the period to open an event with. For clocks and tracepoints it also
// stores the weight of a sample where the BPF programs read it.
func (e *eventSet) period(tid, cpu int) (uint64, error) {
	o := e.options
	switch {
	case o.Event.Trace:
		for i := range e.timers.shared.Value.Cpu {
			e.timers.shared.Value.Cpu[i].Period = 1
		}
		return 1, nil
	case !o.Event.Clock && o.thinned():
		return 1, nil
	case !o.Event.Clock:
		return max(o.Count, 1), nil
	}
	timer, err := e.timers.draw(e.mean(), cpu, tid)
	return uint64(timer), err
}

// dropAll closes all events.
func (e *eventSet) dropAll() {
	for i := len(e.open) - 1; i >= 0; i-- {
		e.dropEvent(i)
	}
}

func (e *eventSet) dropEvent(i int) {
	o := e.open[i]
	o.link.Close()
	unix.Close(o.fd)
	if o.cpu < 0 {
		e.timers.forget(o.of.TID)
	}
	e.open = slices.Delete(e.open, i, i+1)
}
