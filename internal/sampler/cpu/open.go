package cpu

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
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
	redrawn chan struct{} // tells drawBlocks that edge has changed; not guarded

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
	cpu  int      // -1: the event is on a thread
	of   threadID // that thread
	own  ownTimer // for an event that runs only while a target runs
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
	return errors.Join(errs...)
}

// frequency returns the current base rate.
func (s *Sampler) frequency() float64 {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.base
}

// asked returns the requested rate, before the budget.
func (s *Sampler) asked() float64 {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.asked
}

// openEvents opens the first events.
func (s *Sampler) openEvents(first placed) error {
	o := s.options
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	e := &s.events
	e.placed = first
	e.base = first.rate(e.asked)
	if o.movable() && first.placement == PlaceCPUs {
		e.mover.guard(time.Now(), atomic.LoadUint64(&s.shared.Value.Control.Births))
	}
	if o.Second != nil {
		if err := s.openSecond(); err != nil {
			return err
		}
	}
	return s.openPlaced()
}

// enableEvents enables the events that are open, and from now on each that is opened.
func (s *Sampler) enableEvents() error {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	s.events.enabled = true
	for _, o := range s.events.open {
		if err := s.enable(o.fd); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sampler) enable(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable event %s: %w", s.options.Event.Name, err)
	}
	return nil
}

// openPlaced opens the events where they are placed. The caller holds the events' lock,
// here and below unless a function takes it.
func (s *Sampler) openPlaced() (err error) {
	o, e := s.options, &s.events
	if o.Event.Clock {
		s.begin()
		s.countInterrupts()
	}
	onThreads := e.placed.placement == PlaceThreads
	atomic.StoreUint32(&s.shared.Value.Control.OnThreads, flag(onThreads))
	atomic.StoreUint32(&s.shared.Value.Control.Alert, flag(onThreads && e.mover.state == apart)) // before threads are listed
	if e.placed.placement == PlaceCgroup && !o.Event.Trace && e.cgroup == nil {
		if e.cgroup, err = os.Open(e.placed.cgroup); err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
	}
	switch {
	case o.Event.Trace:
		// A program attached to a tracepoint sees every hit on the machine,
		// whichever event it is attached through, so one event is enough.
		return s.openOne(-1, o.CPUs[0], 0, s.objects.OnSample)
	case onThreads:
		return s.openThreads()
	}
	pid, flags := e.whose()
	for _, cpu := range o.CPUs {
		if err := s.openOne(pid, cpu, flags, s.objects.OnSample); err != nil {
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
func (s *Sampler) openThreads() error {
	s.targetsMu.Lock()
	pids := slices.Collect(maps.Keys(s.targets)) // includes children forked since the targets were named
	s.targetsMu.Unlock()
	for _, pid := range pids {
		tids, err := proc.FS{}.ThreadIDs(pid)
		if errors.Is(err, proc.ErrNotFound) {
			continue // exited meanwhile
		}
		if err != nil {
			return fmt.Errorf("list threads of process %d: %w", pid, err)
		}
		for _, tid := range tids {
			if _, err := s.openThread(threadID{pid, tid}); err != nil {
				return err
			}
		}
	}
	return nil
}

// followThreads opens an event for each thread of a new target, if events are on
// threads.
func (s *Sampler) followThreads(pid int) {
	tids, err := proc.FS{}.ThreadIDs(pid)
	if err != nil && !errors.Is(err, proc.ErrNotFound) {
		s.log.Warn("sample threads", "pid", pid, "error", err)
	}
	for _, tid := range tids {
		s.followThread(threadID{pid, tid})
	}
}

// followBirth opens an event for a thread that a target has started. The time that the
// thread used before that has no samples; if it has already ended, nor has any other.
func (s *Sampler) followBirth(id threadID) {
	opened, follows := s.followThread(id)
	switch {
	case !follows:
	case opened:
		s.late.until(id)
	default:
		s.late.never(id)
	}
}

// followThread opens an event for a thread of a target, if events are on threads.
// follows reports whether they are, opened whether the event was opened before the thread
// ended.
func (s *Sampler) followThread(id threadID) (opened, follows bool) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if s.events.placed.placement != PlaceThreads || s.events.closed || !s.Wanted(id.pid) {
		return false, false
	}
	opened, err := s.openThread(id)
	if err != nil {
		s.log.Warn("sample new thread", "pid", id.pid, "tid", id.tid, "error", err)
	}
	return opened, true
}

// openThread opens an event for a thread, unless it has ended.
func (s *Sampler) openThread(id threadID) (opened bool, err error) {
	err = s.openOne(id.tid, -1, 0, s.objects.OnSample)
	if errors.Is(err, unix.ESRCH) {
		s.forgetWeight(id.tid)
		return false, nil
	}
	if err == nil {
		s.events.open[len(s.events.open)-1].of = id
	}
	return err == nil, err
}

// leaveThreads closes the events on the threads of these processes.
func (s *Sampler) leaveThreads(processes map[int]bool) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for i := len(s.events.open) - 1; i >= 0; i-- {
		if e := s.events.open[i]; e.cpu < 0 && processes[e.of.pid] {
			s.dropEvent(i)
		}
	}
}

// openOne opens and attaches one event, and enables it unless enableEvents will.
func (s *Sampler) openOne(pid, cpu, flags int, program *ebpf.Program) error {
	timer, err := s.period(pid, cpu)
	if err != nil {
		return err
	}
	attr := s.options.Event.attr(timer)
	if s.options.byFrequency() {
		attr.Sample = uint64(s.events.base)
		attr.Bits |= unix.PerfBitFreq
	}
	if s.options.Tap != nil {
		s.options.Tap.Attr(attr)
	}
	fd, err := unix.PerfEventOpen(attr, pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
	for errors.Is(err, unix.EOPNOTSUPP) && attr.Bits&(unix.PerfBitPreciseIPBit1|unix.PerfBitPreciseIPBit2) != 0 {
		attr.Bits -= unix.PerfBitPreciseIPBit1 // one step less precise
		fd, err = unix.PerfEventOpen(attr, pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
	}
	if err != nil {
		return s.openError(err)
	}
	attached, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: program, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("attach to event %s: %w", s.options.Event.Name, err)
	}
	s.events.open = append(s.events.open, openEvent{fd: fd, cpu: cpu, link: attached, own: ownTimer{base: s.events.base}})
	if s.options.Tap != nil {
		if err := s.options.Tap.Opened(fd, cpu); err != nil {
			return err
		}
	}
	if !s.events.enabled {
		return nil
	}
	return s.enable(fd)
}

func (s *Sampler) openError(err error) error {
	name := s.options.Event.Name
	switch {
	case s.options.Event.PMU && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)):
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
func (s *Sampler) openSecond() error {
	pid, flags := s.events.whose()
	for _, cpu := range s.options.CPUs {
		fd, err := unix.PerfEventOpen(s.options.Second.counting(), pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open second event %q: %w", s.options.Second.Name, err)
		}
		s.events.seconds = append(s.events.seconds, fd)
		if err := s.objects.DeltaEvents.Update(uint32(cpu), uint32(fd), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("read event %q at samples: %w", s.options.Second.Name, err)
		}
	}
	return nil
}

// period returns the period to open an event with. For clocks and tracepoints it also
// stores the weight of a sample where the BPF programs read it.
func (s *Sampler) period(tid, cpu int) (uint64, error) {
	o := s.options
	switch {
	case o.Event.Trace:
		for i := range s.shared.Value.Cpu {
			s.shared.Value.Cpu[i].Period = 1
		}
		return 1, nil
	case !o.Event.Clock && o.thinned():
		return 1, nil
	case !o.Event.Clock:
		return max(o.Count, 1), nil
	}
	timer, err := s.drawFor(cpu, tid)
	return uint64(timer), err
}

// dropAll closes all events.
func (s *Sampler) dropAll() {
	for i := len(s.events.open) - 1; i >= 0; i-- {
		s.dropEvent(i)
	}
}

func (s *Sampler) dropEvent(i int) {
	e := s.events.open[i]
	e.link.Close()
	unix.Close(e.fd)
	if e.cpu < 0 {
		s.forgetWeight(e.of.tid)
	}
	s.events.open = slices.Delete(s.events.open, i, i+1)
}
