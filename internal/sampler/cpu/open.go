package cpu

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// Placement says on what an event is opened.
type Placement uint8

const (
	PlaceByCost  Placement = iota // decide; see place
	PlaceCPUs                     // on each CPU: whoever runs there is interrupted
	PlaceThreads                  // on each thread: switching to and from it costs more
	PlaceCgroup                   // on each CPU, while the cgroup's threads run
)

// eventSet is the events that are open.
type eventSet struct {
	mu       sync.Mutex // guards all below
	decision decision
	base     float64       // Hz
	block    time.Duration // length of the block under way
	edge     time.Time     // its end
	period   uint64        // the timer's now, for threads that come later
	redrawn  chan struct{} // tells drawBlocks that edge is another; not guarded
	open     []openEvent
	seconds  []int
	cgroup   *os.File
	closed   bool
	fired    float64   // interrupts of timers at each CPU,
	counted  time.Time // up to here
}

type openEvent struct {
	fd      int
	cpu     int // -1 for a thread's
	process int // whose thread
	link    link.Link
	base    float64 // rate it was last drawn for
	entered uint64  // samples on its CPU, then
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

// frequency is the base rate now.
func (s *Sampler) frequency() float64 {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.base
}

// openEvents opens the events where they belong and lets them run.
func (s *Sampler) openEvents(chosen decision) (err error) {
	o := s.options
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	e := &s.events
	e.decision = chosen
	if o.Event.Clock {
		s.begin()
		s.countTimers()
	}
	if chosen.placement == PlaceCgroup && !o.Event.Trace {
		if e.cgroup, err = os.Open(chosen.cgroup); err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
	}
	if o.Second != nil {
		if err := s.openSecond(); err != nil {
			return err
		}
	}
	switch {
	case o.Event.Trace:
		// A program on a tracepoint sees every hit on the machine, whatever
		// event it is attached through: open one.
		return s.openOne(-1, o.CPUs[0], 0, s.objects.OnSample)
	case chosen.placement == PlaceThreads:
		s.shared.Value.Control.SharedPeriod = 1
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

// whose gives what events on a CPU count: everybody, or the cgroup's threads.
func (e *eventSet) whose() (pid, flags int) {
	if e.cgroup != nil {
		return int(e.cgroup.Fd()), unix.PERF_FLAG_PID_CGROUP
	}
	return -1, 0
}

// openThreads opens an event for each thread of each target.
func (s *Sampler) openThreads() error {
	s.targetsMu.Lock()
	pids := slices.Collect(maps.Keys(s.targets)) // with the children forked since they were named
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
			if err := s.openThread(pid, tid); err != nil {
				return err
			}
		}
	}
	return nil
}

// followThreads opens an event for each thread of a new target, where threads
// have events.
func (s *Sampler) followThreads(pid int) {
	tids, err := proc.FS{}.ThreadIDs(pid)
	if err != nil && !errors.Is(err, proc.ErrNotFound) {
		s.log.Warn("sample threads", "pid", pid, "error", err)
	}
	for _, tid := range tids {
		s.followThread(pid, tid)
	}
}

// followThread opens an event for a new thread of a target.
func (s *Sampler) followThread(pid, tid int) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if s.events.decision.placement != PlaceThreads || s.events.closed || !s.Wanted(pid) {
		return
	}
	if err := s.openThread(pid, tid); err != nil {
		s.log.Warn("sample new thread", "pid", pid, "tid", tid, "error", err)
	}
}

// openThread opens an event for a thread, unless it has ended.
func (s *Sampler) openThread(pid, tid int) error {
	err := s.openOne(tid, -1, 0, s.objects.OnSample)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err == nil {
		s.events.open[len(s.events.open)-1].process = pid
	}
	return err
}

// leaveThreads closes the events of processes' threads.
func (s *Sampler) leaveThreads(processes map[int]bool) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for i := len(s.events.open) - 1; i >= 0; i-- {
		if e := s.events.open[i]; e.cpu < 0 && processes[e.process] {
			s.dropEvent(i)
		}
	}
}

// openOne opens, attaches and enables one event.
func (s *Sampler) openOne(pid, cpu, flags int, program *ebpf.Program) error {
	attr := s.options.Event.attr(s.period(cpu))
	if s.options.byFrequency() {
		attr.Sample = uint64(s.events.base)
		attr.Bits |= unix.PerfBitFreq
	}
	if s.options.Tap != nil {
		s.options.Tap.Attr(attr)
	}
	fd, err := unix.PerfEventOpen(attr, pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
	for errors.Is(err, unix.EOPNOTSUPP) && attr.Bits&(unix.PerfBitPreciseIPBit1|unix.PerfBitPreciseIPBit2) != 0 {
		attr.Bits -= unix.PerfBitPreciseIPBit1 // a step less precise
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
	s.events.open = append(s.events.open, openEvent{fd: fd, cpu: cpu, link: attached, base: s.events.base})
	if s.options.Tap != nil {
		if err := s.options.Tap.Opened(fd, cpu); err != nil {
			return err
		}
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable event %s: %w", s.options.Event.Name, err)
	}
	return nil
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

// openSecond opens the counter that is read at each sample.
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

// period is what an event is opened with, and tells the programs its weight.
func (s *Sampler) period(cpu int) uint64 {
	o := s.options
	switch {
	case o.Event.Trace:
		for i := range s.shared.Value.Cpu {
			s.shared.Value.Cpu[i].Period = 1
		}
		return 1
	case !o.Event.Clock && o.thinned():
		return 1
	case !o.Event.Clock:
		return max(o.Count, 1)
	case cpu < 0 && s.events.period != 0:
		return s.events.period
	}
	return uint64(s.drawFor(cpu))
}

func (s *Sampler) dropEvent(i int) {
	e := s.events.open[i]
	e.link.Close()
	unix.Close(e.fd)
	s.events.open = append(s.events.open[:i], s.events.open[i+1:]...)
}
