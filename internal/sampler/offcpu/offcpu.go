// Package offcpu samples why threads wait: blocked, or in the run queue.
//
//	offcpu.bpf.c runs after each context switch of a target, and keeps a wait of d ns with
//	   probability min(1, d/T)
//	follow adapts the threshold T to a budget of stack walks a second (threshold.go)
//	Cut has package table swap and drain the buffers, and cuts the waits that go on
//
// A window has two value types: nanoseconds off the CPU, scaled to exact times, and the
// number of waits. A wait that was blocked first and then queued counts once in each
// context. What a wait had lasted at the edge of a window has the kernel's part of its
// stack only.
package offcpu

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/internal/unwind"
)

// Kind is the kind of an off-CPU window: its first value type.
const Kind = "off-cpu"

// DefaultWalks is the budget of stack walks a second where none is chosen: about half a
// percent of a core.
const DefaultWalks = 150

// Options say what to sample. Unwinder is needed, and either All or PIDs.
type Options struct {
	Unwinder *unwind.Unwinder
	Tracker  *table.Tracker // nil: one of its own
	Log      *slog.Logger

	All     bool
	PIDs    []int   // and all their descendants from now on
	Threads bool    // keep threads apart
	Walks   float64 // budget of stack walks a second; 0: DefaultWalks

	// KernelName returns the function at a kernel address; "": it is not known. nil: none is,
	// and stacks begin with the frames of the scheduler.
	KernelName func(address uint64) string

	table.Naming
}

// Sampler fills windows. It is safe for concurrent use.
type Sampler struct {
	options Options
	table   *table.Table
	objects objects
	waiting *bpf.Mapped[kernelWaiting]
	edges   *link.Iter
	hook    link.Link

	background *sampler.Background

	mu sync.Mutex // one Cut at a time
}

// objects is what is loaded of the object, beside the table's maps.
type objects struct {
	OnSwitchedIn *ebpf.Program `ebpf:"on_switched_in"`
	CutWaits     *ebpf.Program `ebpf:"cut_waits"`
	Waiting      *ebpf.Map     `ebpf:"waiting_state"`
}

// New loads the programs and follows the targets' forks from here on. Wire OnTask to the
// unwinder before its Start.
func New(o Options) (*Sampler, error) {
	if o.Walks == 0 {
		o.Walks = DefaultWalks
	}
	if !Supported() {
		return nil, errors.New("sample time off the CPU: this kernel has no tracepoint sched_exit_tp, which came with Linux 6.17")
	}
	s := &Sampler{options: o, background: sampler.NewBackground()}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sampler) load() (err error) {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read embedded BPF object: %w", err)
	}
	o := s.options
	if s.table, err = table.New(table.Options{
		Unwinder: o.Unwinder, Tracker: o.Tracker, Log: o.Log, All: o.All, PIDs: o.PIDs, Threads: o.Threads, OffCPU: true,
		Squares: []float64{1 << 20, 1}, Context: contextOf,
		Skip: o.switching, Naming: o.Naming}); err != nil {
		return err
	}
	if err := table.Load(s.table, spec, &s.objects, nil); err != nil {
		return err
	}
	if s.waiting, err = bpf.Map[kernelWaiting](s.objects.Waiting); err != nil {
		return err
	}
	atomic.StoreUint64(&s.waiting.Value.Threshold, uint64(firstThreshold))
	atomic.StoreUint64(&s.waiting.Value.Quota, max(1, uint64(2*o.Walks*adaptEvery.Seconds())))
	if s.edges, err = link.AttachIter(link.IterOptions{Program: s.objects.CutWaits}); err != nil {
		return fmt.Errorf("attach iterator of waiting threads: %w", err)
	}
	return nil
}

// switching returns how many of the innermost kernel frames show how threads are switched,
// which is the same for all waits: our program, what runs it, and the scheduler. How many there
// are depends on the kernel, and on how many programs run at its tracepoint. Stacks at edges
// have none: the kernel leaves out all functions that it counts as the scheduler's, which are
// some more.
func (o *Options) switching(innermost []uint64) (n int) {
	if o.KernelName == nil {
		return 0
	}
	for i, address := range innermost {
		if name, _, _ := strings.Cut(o.KernelName(address), "."); name == "__schedule" {
			n = i + 1
			break
		}
	}
	for n < len(innermost) && scheduler.MatchString(o.KernelName(innermost[n])) {
		n++
	}
	return n
}

// scheduler matches functions through which threads come to __schedule, whatever they do. A
// compiler adds a suffix to those that it has changed, such as ".isra.0".
var scheduler = regexp.MustCompile(`^(schedule|schedule_preempt_disabled|schedule_rtlock|(dynamic_)?preempt_schedule(_\w+)?|(__|dynamic_)cond_resched)(\..*)?$`)

// contextOf is the context of a reason.
func contextOf(reason, _ uint16) profile.Context {
	switch kernelReason(reason) {
	case kernelReasonREASON_BLOCKED:
		return profile.Context{Reason: "blocked"}
	case kernelReasonREASON_RUN_QUEUE:
		return profile.Context{Reason: "run queue"}
	}
	return profile.Context{}
}

// Start begins the first window.
func (s *Sampler) Start() error {
	if err := s.table.Start(); err != nil {
		return err
	}
	var err error
	if s.hook, err = link.AttachTracing(link.TracingOptions{Program: s.objects.OnSwitchedIn}); err != nil {
		return bpf.Explain("sample time off the CPU", err)
	}
	if err := s.cutWaits(); err != nil { // from here on, waits are known
		return err
	}
	s.follow()
	return nil
}

// cutWaits cuts the waits of all threads, and begins to measure those of new targets.
func (s *Sampler) cutWaits() error {
	list, err := s.edges.Open()
	if err != nil {
		return fmt.Errorf("list waiting threads: %w", err)
	}
	defer list.Close()
	if _, err := io.Copy(io.Discard, list); err != nil {
		return fmt.Errorf("list waiting threads: %w", err)
	}
	return nil
}

// OnTask tells the sampler of a fork; wire it to the unwinder's.
func (s *Sampler) OnTask(e lifecycle.Event) {
	if e.Kind == lifecycle.Fork {
		s.table.Targets.Adopt(e.Parent, e.PID)
	}
}

// Wanted tells whether a process is sampled.
func (s *Sampler) Wanted(pid int) bool { return s.table.Wanted(pid) }

// Aim makes processes targets, with their later children, and others no longer,
// from the next window's edge on. It tells whether any of them was none before.
func (s *Sampler) Aim(add, drop []int) (fresh bool) {
	return len(s.table.Targets.Aim(add, drop, false)) > 0
}

// Full tells how full the kernel's tables are of the window that is filled, from
// 0 to 1.
func (s *Sampler) Full() float64 { return s.table.Full() }

// Cut ends a window; see sampler.Sampler.
func (s *Sampler) Cut() (*profile.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cutting error
	edge, err := s.table.Cut(nil, func(e *table.Edge) {
		e.Head.Design = profile.DesignSizeBiased
		e.Head.Types = []profile.ValueType{
			{Kind: Kind, Unit: "nanoseconds", Base: profile.BaseWall, Variance: profile.Measured},
			{Kind: "waits", Unit: "count", Variance: profile.Measured}}
		cutting = s.cutWaits()
	})
	if err := errors.Join(err, cutting); err != nil {
		return nil, err
	}
	return s.table.Window(edge, nil)
}

// Close stops sampling and releases everything in the kernel.
func (s *Sampler) Close() error {
	if !s.background.Stop() {
		return nil
	}
	s.mu.Lock() // a cut may be under way
	defer s.mu.Unlock()
	var errs []error
	if s.hook != nil {
		errs = append(errs, s.hook.Close())
	}
	if s.edges != nil {
		errs = append(errs, s.edges.Close())
	}
	errs = append(errs, s.waiting.Close())
	for _, part := range []io.Closer{s.objects.OnSwitchedIn, s.objects.CutWaits, s.objects.Waiting} {
		errs = append(errs, part.Close())
	}
	if s.table != nil {
		errs = append(errs, s.table.Close())
	}
	return errors.Join(errs...)
}

// follow adapts the threshold until the sampler is closed.
func (s *Sampler) follow() {
	w := s.waiting.Value
	before := time.Now()
	s.background.Every(adaptEvery, func(now time.Time) {
		kept := atomic.LoadUint64(&w.Kept)
		walks := float64(kept-w.Mark) / now.Sub(before).Seconds()
		atomic.StoreUint64(&w.Threshold, uint64(adapt(time.Duration(w.Threshold), walks, s.options.Walks)))
		atomic.StoreUint64(&w.Mark, kept)
		before = now
	})
}
