// Package dump finds where every thread of a process stands at one moment, and stops none of them.
//
//	tables of its code (package unwind) -> an iterator over its threads reads
//	those off their CPUs (dump.bpf.c) -> those that ran meanwhile are read
//	again, those that run on are caught by a timer each (catch.go)
//	-> places and functions of languages are named: a Snapshot
//
// Threads are read one after another, some microseconds each: a snapshot shows
// each thread as it was at its own instant, not all of them at one.
package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// Options say what to look at. PID is needed.
type Options struct {
	PID        int
	CacheDir   string       // of unwinding tables and symbols; "": none
	CacheMax   int64        // bytes of CacheDir; 0: diskcache.DefaultLimit
	Debuginfod []string     // servers asked for debug files
	Log        *slog.Logger // nil: silent
}

// Snapshot is where a process stands.
type Snapshot struct {
	PID     int
	Name    string
	Taken   time.Time
	Threads []Thread // in the order of their numbers, which is mostly that of their creation
}

// Thread is where one thread stands.
type Thread struct {
	TID     int
	Name    string
	State   State
	Syscall string        // that it is in; empty: none
	Wait    string        // the kernel function it waits in; empty: it does not wait, or the kernel hides its names
	CPU     time.Duration // that it used so far

	// Frames are innermost first, the kernel's before the user's. There are
	// none where Running is set and no timer caught it.
	Frames []profile.Frame
	End    profile.End // how the walk of the user stack ended
}

// State is what the scheduler does with a thread.
type State string

const (
	Running   State = "running" // on a CPU
	Runnable  State = "runnable"
	Sleeping  State = "sleeping"
	Blocked   State = "uninterruptible"
	Stopped   State = "stopped"
	Traced    State = "traced"
	Zombie    State = "zombie"
	Parked    State = "parked"
	Otherwise State = "other"
)

// Bits of task_struct's __state and exit_state, as include/linux/sched.h has
// them since 4.14.
const (
	taskInterruptible   = 0x1
	taskUninterruptible = 0x2
	taskStopped         = 0x4
	taskTraced          = 0x8
	exitDead            = 0x10
	exitZombie          = 0x20
	taskParked          = 0x40
	taskDead            = 0x80
)

func stateOf(s *kernelStanding) State {
	switch bits := s.State; {
	case s.Flags&standingRuns != 0:
		return Running
	case bits&(exitDead|exitZombie|taskDead) != 0:
		return Zombie
	case bits&taskTraced != 0:
		return Traced
	case bits&taskStopped != 0:
		return Stopped
	case bits&taskParked != 0:
		return Parked
	case bits&taskUninterruptible != 0:
		return Blocked
	case bits&taskInterruptible != 0:
		return Sleeping
	case bits == 0:
		return Runnable
	}
	return Otherwise
}

// Flags of dump.bpf.c.
const (
	standingOnCPU  = 1
	standingMoved  = 2
	standingCaught = 4
	standingRuns   = standingOnCPU | standingCaught
)

// rounds bounds how often threads are looked at until each stood still for
// once, or was caught.
const rounds = 5

// Take looks at all threads of a process.
func Take(ctx context.Context, o Options) (*Snapshot, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	stat, err := proc.FS{}.Check(o.PID)
	if err != nil {
		return nil, err
	}
	cache := diskcache.OpenIfPossible(o.CacheDir, diskcache.Options{Limit: o.CacheMax, Log: o.Log})
	defer cache.Close()
	unwinder, err := unwind.New(unwind.Options{Source: unwind.Proc{}, Log: o.Log, Eager: true, Tables: cache,
		Wanted: func(pid int) bool { return pid == o.PID }})
	if err != nil {
		return nil, err
	}
	defer unwinder.Close()
	if err := unwinder.Start(); err != nil {
		return nil, err
	}
	if err := unwinder.Track(o.PID); err != nil {
		return nil, fmt.Errorf("read process %d: %w", o.PID, err)
	}
	reader, err := newReader(unwinder, o.PID)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	taken := time.Now()
	standing, err := reader.read(ctx)
	if err != nil {
		return nil, err
	}
	if len(standing) == 0 {
		if _, err := (proc.FS{}).Check(o.PID); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%d is a thread, not a process: give the process's number", o.PID)
	}
	unwinder.Develop()
	n := newNamer(o, cache, unwinder)
	defer n.close()
	s := &Snapshot{PID: o.PID, Name: stat.Comm, Taken: taken}
	for i := range standing {
		s.Threads = append(s.Threads, n.thread(ctx, &standing[i]))
	}
	return s, nil
}

// Probe tells whether the programs of this package load.
func Probe(u *unwind.Unwinder) error {
	r, err := newReader(u, 0)
	if err != nil {
		return err
	}
	return r.close()
}

// reader is the programs, loaded for one process.
type reader struct {
	objects kernelObjects
	list    *link.Iter
}

func newReader(u *unwind.Unwinder, pid int) (*reader, error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read embedded BPF object: %w", err)
	}
	if err := spec.Variables["wanted"].Set(uint32(pid)); err != nil {
		return nil, fmt.Errorf("set wanted: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	spec.Maps["places"].MaxEntries = min(spec.Maps["places"].MaxEntries, uint32(1+cpus))
	r := &reader{}
	lent, err := u.Lend(spec)
	if err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&r.objects, lent); err != nil {
		return nil, bpf.Explain("load the reader of threads", err)
	}
	if r.list, err = link.AttachIter(link.IterOptions{Program: r.objects.ListStanding}); err != nil {
		return nil, errors.Join(bpf.Explain("attach the reader of threads", err), r.objects.Close())
	}
	return r, nil
}

func (r *reader) close() error { return errors.Join(r.list.Close(), r.objects.Close()) }

// read looks at the threads until each has a stack, or rounds are over.
func (r *reader) read(ctx context.Context) ([]kernelStanding, error) {
	found := map[uint32]kernelStanding{}
	for range rounds {
		current, err := r.iterate()
		if err != nil {
			return nil, err
		}
		var runs []uint32
		unsettled := false
		for _, s := range current {
			if old, ok := found[s.Tid]; ok && settled(old) {
				continue
			}
			if s.Flags&standingMoved != 0 { // its stack is of no single moment
				s.User, s.Kernel, s.Flags, s.End = 0, 0, standingOnCPU, uint32(profile.EndUnknown)
				unsettled = true
			} else if s.Flags&standingOnCPU != 0 {
				s.End = uint32(profile.EndUnknown)
				runs, unsettled = append(runs, s.Tid), true
			}
			found[s.Tid] = s
		}
		if !unsettled {
			break
		}
		if len(runs) > 0 {
			caught, err := r.catch(ctx, runs)
			if err != nil {
				return nil, err
			}
			for _, s := range caught {
				found[s.Tid] = s
			}
		}
	}
	out := make([]kernelStanding, 0, len(found))
	for _, s := range found {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b kernelStanding) int { return int(a.Tid) - int(b.Tid) })
	return out, nil
}

func settled(s kernelStanding) bool { return s.Flags&standingOnCPU == 0 }

const standingSize = int(unsafe.Sizeof(kernelStanding{}))

// iterate reads every thread of the process once.
func (r *reader) iterate() (out []kernelStanding, err error) {
	list, err := r.list.Open()
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	defer list.Close()
	buffer := make([]byte, 64*standingSize)
	held := 0
	for {
		n, err := list.Read(buffer[held:])
		held += n
		at := 0
		for ; at+standingSize <= held; at += standingSize {
			out = append(out, decode(buffer[at:]))
		}
		held = copy(buffer, buffer[at:held])
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
	}
}

// decode copies one record, with counts that cannot lead astray.
func decode(b []byte) kernelStanding {
	s := *(*kernelStanding)(unsafe.Pointer(&b[0]))
	s.User = min(s.User, uint32(len(s.UserFrames)))
	s.Kernel = min(s.Kernel, uint32(len(s.KernelFrames)))
	return s
}
