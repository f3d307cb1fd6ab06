// Package cpu samples where threads are, by clocks, counters and tracepoints.
//
//	event (event.go) -> placed where it costs least (place.go, move.go), opened (open.go)
//	   -> its period drawn anew, block by block (phase.go)
//	   -> cpu.bpf.c weighs samples, walks the stacks, and adds to rows in the kernel
//	Cut has package table swap and drain the kernel's buffers, and adds what is special
//	   to clocks and counters: a profile.Window
package cpu

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/internal/unwind"
)

// Options say what to sample. Unwinder, CPUs and Event are needed, and either
// All, PIDs or Cgroup.
type Options struct {
	Unwinder *unwind.Unwinder
	Tracker  *table.Tracker // nil: one of its own
	CPUs     []int
	Event    Event
	Second   *Event // read at each sample of Event
	Log      *slog.Logger

	All    bool
	PIDs   []int  // and all their descendants from now on
	Cgroup string // a cgroup2 directory

	Frequency float64 // samples a second and CPU
	Count     uint64  // instead of Frequency, for events that are no clocks: sample every Count-th

	Threads bool          // keep threads apart
	Slot    time.Duration // keep steps of this length apart; 0: none
	Timed   bool          // keep each sample's time
	Fixed   bool          // do not draw periods: for comparison only
	Spread  Placement     // where events are opened; the zero value decides by cost
	Budget  float64       // of a core: what others may pay at most; 0: as much as it takes

	// OnPlaced is told, in words, where events are from now on, and what of a core
	// processes pay that are not sampled, each time that changes. It must not ask the
	// sampler anything.
	OnPlaced func(why string, bystanders float64)

	table.Naming

	// For benchmarks and tests.
	MeasureCost bool       // fill Costs
	Empty       bool       // take interrupts, do nothing
	Tap         *Tap       // let the kernel write its own records too, and read them
	Rand        *rand.Rand // nil: seeded from the system
}

// Tap reads the records that the kernel itself writes of the interrupts we
// sample: an independent witness of the same instants.
type Tap struct {
	Attr   func(*unix.PerfEventAttr) // asks for what the records hold
	Opened func(fd, cpu int) error   // maps the event's ring, before the event runs
}

// Sampler fills windows. It is safe for concurrent use.
type Sampler struct {
	options Options
	log     *slog.Logger
	objects kernelParts
	table   *table.Table
	times   *timedSamples
	events  *eventSet
	placer  *placer
	late    late

	background *sampler.Background

	mu   sync.Mutex    // guards all below: one Cut at a time
	idle time.Duration // of all CPUs since the machine started
}

// New loads the programs and follows the targets' forks from here on. Wire
// OnTask to the unwinder before its Start; samples come after our own.
func New(o Options) (*Sampler, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if o.Count == 0 {
		if err := CheckFrequency(o.Frequency); err != nil {
			return nil, err
		}
	}
	if o.Event.Trace && o.Cgroup != "" {
		// A tracepoint knows no cgroups: its processes, and their children, are the targets.
		members, err := table.CgroupMembers(o.Cgroup)
		if err != nil {
			return nil, err
		}
		o.PIDs = slices.Collect(maps.Keys(members))
	}
	s := &Sampler{options: o, log: o.Log, background: sampler.NewBackground()}
	s.events = &eventSet{options: &s.options, log: o.Log, objects: &s.objects, redrawn: make(chan struct{}, 1)}
	s.placer = &placer{options: &s.options, log: o.Log, events: s.events}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Start begins the first window.
func (s *Sampler) Start() error {
	first, err := s.placer.first() // first: it may watch the machine for a moment
	if err != nil {
		return err
	}
	// Events are opened before the exact times are read and enabled after: opening them may
	// take a second on a busy machine, in which exact time would have no samples.
	if err := s.events.openFirst(first); err != nil {
		return err
	}
	s.idleSince()
	if err := s.table.Start(); err != nil {
		return err
	}
	if err := s.events.enableAll(); err != nil {
		return err
	}
	if s.options.movable() {
		var last sight
		s.background.Every(calmEvery, func(time.Time) { last = s.placer.look(last) })
	}
	if s.times != nil {
		s.background.Every(drainTimesEvery, func(time.Time) { s.times.drain() })
	}
	if s.options.Event.Clock && !s.options.Fixed {
		s.background.Go(s.events.drawBlocks)
	}
	return nil
}

// load loads the programs with this sampler's choices built in.
func (s *Sampler) load() (err error) {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read embedded BPF object: %w", err)
	}
	o := &s.options
	squares, shift := 1.0, uint32(0)
	if o.Event.Clock {
		squares, shift = 1<<20, 10 // the kernel keeps squares of 1024 ns
	}
	if s.table, err = table.New(table.Options{
		Unwinder: o.Unwinder, Tracker: o.Tracker, Log: o.Log, All: o.All, PIDs: o.PIDs, Cgroup: o.Cgroup, ByProcess: o.Event.Trace,
		Rate: o.Frequency, Threads: o.Threads, Slot: o.Slot, Squares: []float64{squares}, OnBirth: s.placer.born,
		Naming: o.Naming}); err != nil {
		return err
	}
	s.events.table, s.placer.table = s.table, s.table
	choices := map[string]any{
		"count_events": table.Flag(!o.Event.Clock && !o.Event.Trace),
		"square_shift": shift,
		"with_delta":   table.Flag(o.Second != nil),
		"with_times":   table.Flag(o.Timed),
		"with_costs":   table.Flag(o.MeasureCost),
		"without_walk": table.Flag(o.Empty),
		"pass_through": table.Flag(o.Tap != nil),
		"user_only":    table.Flag(o.Event.User),
		"kernel_only":  table.Flag(o.Event.Kernel),
		"keep_one_in":  uint32(1),
	}
	if o.thinned() {
		choices["keep_one_in"] = uint32(o.Count)
	}
	if err := table.Set(spec, choices); err != nil {
		return err
	}
	if !o.Timed {
		spec.Maps["times"].MaxEntries = 4096
	}
	spec.Programs["on_sample"] = spec.Programs["on_event"]
	if o.Event.Trace {
		spec.Programs["on_sample"] = spec.Programs["on_tracepoint"]
	}
	plan := s.plan()
	if err := table.Load(s.table, spec, &s.objects, plan.probabilities); err != nil {
		return err
	}
	s.events.asked, s.events.base = plan.base, plan.base
	s.events.timers = timers{options: o, log: s.log, weights: s.objects.Weights}
	if s.events.timers.shared, err = bpf.Map[kernelTimers](s.objects.Timers); err != nil {
		return err
	}
	if o.Timed {
		s.times, err = newTimedSamples(s.objects.Times)
	}
	return err
}

// thinned tells whether the programs themselves keep one of Count events, at
// random: the kernel's every Count-th may be in step with what the program does.
// A hardware counter counts by itself; to look at each of its events is no choice.
func (o *Options) thinned() bool { return !o.Event.Clock && !o.Event.PMU && o.Count > 1 }

// OnTask tells the sampler of a fork or a new thread; wire it to the unwinder's.
func (s *Sampler) OnTask(e lifecycle.Event) {
	switch e.Kind {
	case lifecycle.Fork:
		if s.table.Targets.Adopt(e.Parent, e.PID) {
			s.followBirth(table.ThreadID{PID: e.PID, TID: e.PID})
		}
	case lifecycle.Thread:
		s.followBirth(table.ThreadID{PID: e.PID, TID: e.TID})
	}
}

// followBirth opens an event for a thread that a target has started. The time that the
// thread used before that has no samples; if it has already ended, nor has any other.
func (s *Sampler) followBirth(id table.ThreadID) {
	opened, follows := s.events.followThread(id)
	switch {
	case !follows:
	case opened:
		s.late.until(id)
	default:
		s.late.never(id)
	}
}

// Wanted tells whether a process is sampled.
func (s *Sampler) Wanted(pid int) bool { return s.table.Wanted(pid) }

// Full tells how full the kernel's tables are of the window that is filled, from
// 0 to 1.
func (s *Sampler) Full() float64 { return s.table.Full() }

// Cut ends a window; see sampler.Sampler.
func (s *Sampler) Cut() (*profile.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	plan := s.plan() // for the window that begins now
	edge, err := s.table.Cut(plan.probabilities, func(e *table.Edge) {
		s.describe(&e.Head)
		s.events.setBase(plan.base)
	})
	if err != nil {
		return nil, err
	}
	s.events.leaveThreads(edge.Dropped)
	edge.Head.AddLoss(s.lateLoss(edge.Used))
	return s.table.Window(edge, s.times.take(edge.Buffer))
}

// describe completes the head of the window that ends now.
func (s *Sampler) describe(h *profile.Head) {
	o := s.options
	h.Design = profile.DesignPeriodic
	base := profile.ValueType{Kind: o.Event.Name, Unit: o.Event.Unit}
	switch {
	case o.Event.Clock:
		_, hz, _ := s.events.rates()
		base = profile.CPUTime(int64(float64(time.Second) / hz))
		if !o.Fixed {
			h.Design = profile.DesignRandomised
		}
	case o.Count == 1 || o.Event.Trace && o.Count == 0:
		base.Period, h.Design = 1, profile.DesignCensus
	case o.thinned():
		base.Period, h.Design = int64(o.Count), profile.DesignThinned
	default:
		base.Period = int64(o.Count)
	}
	h.Types = append(h.Types, base)
	if o.Second != nil {
		h.Types = append(h.Types, profile.ValueType{Kind: o.Second.Name, Unit: o.Second.Unit})
	}
	if o.Event.Clock && (o.Event.User || o.Event.Kernel) {
		h.MarkPartOfCPU()
	}
	if o.All {
		h.Watched = h.Duration * time.Duration(len(o.CPUs))
		h.Idle = s.idleSince()
	}
	for _, why := range []string{s.throttling(), s.events.lowered()} {
		if why != "" {
			h.Comments = append(h.Comments, why)
		}
	}
}

// idleSince is how long CPUs were idle in all since the last edge. An idle CPU
// of a virtual machine takes no samples, or too many: the kernel knows better.
func (s *Sampler) idleSince() time.Duration {
	now, err := proc.Machine{}.IdleTime()
	if err != nil {
		s.log.Debug("read idle time", "error", err)
		return 0
	}
	was := s.idle
	s.idle = now
	return max(now-was, 0)
}

// Costs tells the time programs took so far; only with MeasureCost.
func (s *Sampler) Costs() (c Cost, err error) {
	var all []kernelCost
	if err := s.objects.Costs.Lookup(uint32(0), &all); err != nil {
		return c, fmt.Errorf("read costs: %w", err)
	}
	for _, one := range all {
		c.Samples += one.Samples
		c.Frames += one.Frames
		c.Total += time.Duration(one.Ns)
		for i, n := range one.Steps {
			c.Steps[i] += n
		}
	}
	return c, nil
}

// Cost is the time samples took inside BPF.
type Cost struct {
	Samples, Frames uint64
	Total           time.Duration
	Steps           [1024]uint64 // samples by time, in steps of CostStep
}

// CostStep is the width of one of Cost's steps.
const CostStep = 64 * time.Nanosecond

// Close stops sampling and releases everything in the kernel.
func (s *Sampler) Close() error {
	if !s.background.Stop() {
		return nil
	}
	s.mu.Lock() // a cut may be under way
	defer s.mu.Unlock()
	errs := []error{s.events.close()}
	if s.times != nil {
		errs = append(errs, s.times.close())
	}
	errs = append(errs, s.objects.close())
	if s.table != nil {
		errs = append(errs, s.table.Close())
	}
	return errors.Join(errs...)
}
