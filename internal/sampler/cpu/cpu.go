// Package cpu samples where threads are, by clocks, counters and tracepoints.
//
//	event (event.go) -> opened where it costs least (open.go)
//	   -> its period drawn anew, block by block (phase.go)
//	   -> cpu.bpf.c walks the stacks and adds up rows in the kernel
//	Cut flips the kernel's two buffers (cpu.go), drains the one just filled
//	   (drain.go), adds exact times (exact.go): a profile.Window
package cpu

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// Options say what to sample. Unwinder, CPUs and Event are needed, and either
// All, PIDs or Cgroup.
type Options struct {
	Unwinder *unwind.Unwinder
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

	OnFile    func(unwind.File)                                                 // each file that code was seen in
	Kernel    func(address uint64) profile.Location                             // what a kernel address is
	Anonymous func(pid int, address uint64) (profile.Location, []profile.Frame) // what code without a file is

	// Named tells what a language's frame shows, the calls inlined there innermost
	// first: it is asked while the process may still live.
	Named func(pid int, f unwind.Frame) []profile.Frame

	// For benchmarks and tests.
	MeasureCost bool       // fill Costs
	Empty       bool       // take interrupts, do nothing
	PassThrough bool       // let the kernel write its own records too
	Tap         *Tap       // and read them
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
	shared  *bpf.Mapped[kernelShared]
	arenas  [2]*bpf.Mapped[kernelArena]
	links   []link.Link
	exact   *exactTimes
	times   *timedSamples

	stop chan struct{}
	done sync.WaitGroup

	events eventSet
	births *ringbuf.Reader // of the targets, while it is waited for one; nil: events do not move
	late   late

	targetsMu sync.Mutex // guards all to the next one
	targets   map[int]float64
	refused   [2]int64        // of them, those the kernel's table had no room for, by the window's buffer
	dropped   map[int]bool    // of the targets, those that are none from the next edge on
	fresh     map[int]bool    // and those that are sampled from the next edge on
	entering  map[int]bool    // those that were fresh at the last edge
	held      map[int]int     // fresh ones that stay so, by the process of AimLater that has to be released
	gone      map[uint32]bool // of the kernel's targets, at the last edge
	again     map[int]bool    // targets that were aimed at since the last edge: a new process may have the pid of one that ended

	mu        sync.Mutex // guards all below: one Cut at a time
	active    uint32
	began     time.Time
	beganMono uint64
	seen      [kernelCounterCOUNTERS]uint64
	idle      time.Duration // of all CPUs since the machine started
	drain     drainer
	members   map[int]bool // of the cgroup, at the last edge or at a look since
	ended     []int        // processes that had ended when the ring of exits was last read
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
	if o.Named == nil {
		o.Named = func(int, unwind.Frame) []profile.Frame {
			return []profile.Frame{{Function: "[function of a language]"}}
		}
	}
	if o.Count == 0 {
		if err := CheckFrequency(o.Frequency); err != nil {
			return nil, err
		}
	}
	if o.Event.Trace && o.Cgroup != "" {
		// A tracepoint knows no cgroups: its processes, and their children, are the targets.
		members, err := cgroupMembers(o.Cgroup)
		if err != nil {
			return nil, err
		}
		o.PIDs = slices.Collect(maps.Keys(members))
	}
	s := &Sampler{options: o, log: o.Log, stop: make(chan struct{}), targets: map[int]float64{}, dropped: map[int]bool{}, fresh: map[int]bool{}, held: map[int]int{}, again: map[int]bool{}}
	for _, pid := range o.PIDs {
		s.targets[pid] = o.Frequency
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sampler) prepare() (err error) {
	if err := s.load(); err != nil {
		return err
	}
	if s.events.asked, err = s.applyRates(0, 1); err != nil {
		return err
	}
	s.events.base = s.events.asked
	s.events.redrawn = make(chan struct{}, 1)
	if s.exact, err = newExactTimes(s.objects.ListThreads, s.objects.Exits, s.options.onlyTargets()); err != nil {
		return err
	}
	if s.options.Timed {
		if s.times, err = newTimedSamples(s.objects.Times); err != nil {
			return err
		}
	}
	if s.options.movable() {
		if s.births, err = ringbuf.NewReader(s.objects.Births); err != nil {
			return fmt.Errorf("hear of births: %w", err)
		}
	}
	return s.attachTask()
}

// Start begins the first window.
func (s *Sampler) Start() error {
	first, err := s.placeEvents() // first: it may watch the machine for a moment
	if err != nil {
		return err
	}
	wanted, err := s.wantedNow()
	if err != nil {
		return err
	}
	// Events are opened before the exact times are read and enabled after: opening them may
	// take a second on a busy machine, in which exact time would have no samples.
	if err := s.openEvents(first); err != nil {
		return err
	}
	if err := s.exact.start(wanted); err != nil {
		return err
	}
	s.idleSince()
	s.began, s.beganMono = time.Now(), bpf.Clock(unix.CLOCK_MONOTONIC)
	s.shared.Value.Control.WindowStart = s.beganMono
	if err := s.enableEvents(); err != nil {
		return err
	}
	s.done.Go(s.listen)
	if s.births != nil {
		s.done.Go(func() { s.followBirths(s.births) })
		s.done.Go(s.watch)
	}
	if s.times != nil {
		s.done.Go(func() { s.times.follow(s.stop) })
	}
	if s.options.Event.Clock && !s.options.Fixed {
		s.done.Go(s.drawBlocks)
	}
	return nil
}

// load loads the programs with this sampler's choices built in.
func (s *Sampler) load() error {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read embedded BPF object: %w", err)
	}
	o := s.options
	choices := map[string]any{
		"only_targets": flag(o.onlyTargets()),
		"count_events": flag(!o.Event.Clock && !o.Event.Trace),
		"square_shift": uint32(10),
		"with_threads": flag(o.Threads),
		"with_delta":   flag(o.Second != nil),
		"with_times":   flag(o.Timed),
		"with_costs":   flag(o.MeasureCost),
		"without_walk": flag(o.Empty),
		"pass_through": flag(o.PassThrough || o.Tap != nil),
		"slot_ns":      uint64(o.Slot),
		"user_only":    flag(o.Event.User),
		"kernel_only":  flag(o.Event.Kernel),
		"keep_one_in":  uint32(1),
	}
	if !o.Event.Clock {
		choices["square_shift"] = uint32(0)
	}
	if o.thinned() {
		choices["keep_one_in"] = uint32(o.Count)
	}
	for name, value := range choices {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if !o.Timed {
		spec.Maps["times"].MaxEntries = 4096
	}
	lent, err := o.Unwinder.Lend(spec)
	if err != nil {
		return err
	}
	if err := s.objects.load(spec, o.Event, lent); err != nil {
		return bpf.Explain("load the sampler", err)
	}
	if s.shared, err = bpf.Map[kernelShared](s.objects.SharedState); err != nil {
		return err
	}
	for i, m := range []*ebpf.Map{s.objects.Arena0, s.objects.Arena1} {
		if s.arenas[i], err = bpf.Map[kernelArena](m); err != nil {
			return err
		}
	}
	return nil
}

// thinned tells whether the programs themselves keep one of Count events, at
// random: the kernel's every Count-th may be in step with what the program does.
// A hardware counter counts by itself; to look at each of its events is no choice.
func (o *Options) thinned() bool { return !o.Event.Clock && !o.Event.PMU && o.Count > 1 }

// onlyTargets tells whether the programs choose by process: else the events do.
func (o *Options) onlyTargets() bool {
	return !o.All && (o.Cgroup == "" || o.Event.Trace)
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// attachTask follows forks and exits in the kernel.
func (s *Sampler) attachTask() error {
	programs := []*ebpf.Program{s.objects.OnExit, s.objects.OnFree}
	if s.options.onlyTargets() {
		programs = append(programs, s.objects.OnFork)
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return bpf.Explain("follow processes", err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

// OnTask tells the sampler of a fork or a new thread; wire it to the unwinder's.
func (s *Sampler) OnTask(e lifecycle.Event) {
	switch e.Kind {
	case lifecycle.Fork:
		if s.adopt(e.Parent, e.PID) {
			s.followBirth(threadID{e.PID, e.PID})
		}
	case lifecycle.Thread:
		s.followBirth(threadID{e.PID, e.TID})
	}
}

// adopt makes a target's child a target. The kernel's program mostly has done
// so already; it had not where the fork came before it was attached.
func (s *Sampler) adopt(parent, child int) bool {
	if errors.Is(unix.Kill(child, 0), unix.ESRCH) {
		return false // we hear of the fork after the exit, and nobody would forget the target
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	hz, ok := s.targets[parent]
	if !ok {
		return false
	}
	s.targets[child] = hz
	if s.fresh[parent] {
		s.fresh[child] = true
	}
	if by, ok := s.held[parent]; ok {
		s.held[child] = by
	}
	var t kernelTarget
	if s.objects.Targets.Lookup(uint32(parent), &t) == nil {
		err := s.objects.Targets.Update(uint32(child), &t, ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) && !errors.Is(err, unix.E2BIG) { // a full table is counted: see applyRates
			s.log.Warn("sample a child", "pid", child, "error", err)
		}
	}
	return true
}

// Wanted tells whether a process is a target.
func (s *Sampler) Wanted(pid int) bool {
	if s.options.All || s.options.Cgroup != "" {
		return true
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	_, ok := s.targets[pid]
	return ok
}

// Cut ends a window; see sampler.Sampler.
func (s *Sampler) Cut() (*profile.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := s.active
	base, err := s.applyRates(int(1 - full)) // for the window that begins now
	if err != nil {
		return nil, err
	}
	s.active = 1 - full
	now, mono := time.Now(), bpf.Clock(unix.CLOCK_MONOTONIC)
	atomic.StoreUint64(&s.shared.Value.Control.WindowStart, mono)
	atomic.StoreUint32(&s.shared.Value.Control.Active, s.active)
	head, start := s.head(mono), s.beganMono
	s.setBase(base)
	wanted, err := s.wantedNow()
	if err != nil {
		return nil, err
	}
	s.exact.entering = s.entering
	used, err := s.exact.cut(wanted)
	if err != nil {
		return nil, err
	}
	s.forgetDropped()
	s.quiesce()
	s.options.Unwinder.Develop() // the walks that ended have taken their photographs
	s.losses(&head, full, used)
	s.began, s.beganMono = now, mono
	return s.drain.window(s, head, start, full, used)
}

// Full tells how full the kernel's tables are of the window that is filled, from
// 0 to 1.
func (s *Sampler) Full() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	arena := s.arenas[s.active].Value
	words, rows := float64(atomic.LoadUint64(&arena.Next)), float64(atomic.LoadUint64(&arena.Rows))
	return min(1, max(words/float64(len(arena.Words)), rows/maxRows, float64(len(s.exact.used))/maxUsed))
}

// quiesce waits until no program that may still fill the old buffer runs.
func (s *Sampler) quiesce() {
	type begun struct {
		cpu     int
		entered uint64
	}
	var running []begun
	for i := range s.shared.Value.Cpu {
		c := &s.shared.Value.Cpu[i]
		if entered := atomic.LoadUint64(&c.Entered); entered != atomic.LoadUint64(&c.Left) {
			running = append(running, begun{i, entered})
		}
	}
	deadline := time.Now().Add(time.Second)
	for _, r := range running {
		c := &s.shared.Value.Cpu[r.cpu]
		for atomic.LoadUint64(&c.Left) < r.entered && time.Now().Before(deadline) {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

func (s *Sampler) head(now uint64) profile.Head {
	o := s.options
	h := profile.Head{Start: s.began, Duration: time.Duration(now - s.beganMono), Design: profile.DesignPeriodic, Slot: o.Slot}
	base := profile.ValueType{Kind: o.Event.Name, Unit: o.Event.Unit}
	switch {
	case o.Event.Clock:
		base = profile.CPUTime(int64(float64(time.Second) / s.frequency()))
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
	for _, why := range []string{s.throttling(), s.lowered()} {
		if why != "" {
			h.Comments = append(h.Comments, why)
		}
	}
	return h
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

// losses moves what was counted since the last cut into the head: by the programs,
// and by us.
func (s *Sampler) losses(h *profile.Head, buffer uint32, used map[threadID]profile.Thread) {
	var delta [kernelCounterCOUNTERS]int64
	var values []uint64
	for i := range delta {
		if err := s.objects.Counters.Lookup(uint32(i), &values); err != nil {
			continue
		}
		var sum uint64
		for _, v := range values {
			sum += v
		}
		delta[i] = int64(sum - s.seen[i])
		s.seen[i] = sum
	}
	s.targetsMu.Lock()
	delta[kernelCounterLOST_TARGETS] += s.refused[buffer]
	s.targetsMu.Unlock()
	delta[kernelCounterLOST_EXITS] += s.exact.crowded
	s.exact.crowded = 0
	for _, l := range []profile.Loss{
		{Reason: profile.LossDropped, Detail: "more distinct stacks than the kernel's table holds", N: delta[kernelCounterLOST_ROWS], Value: delta[kernelCounterLOST_ROWS_WEIGHT]},
		{Reason: profile.LossDropped, Detail: "a sample interrupted a sample", N: delta[kernelCounterLOST_NESTED], Value: delta[kernelCounterLOST_NESTED_WEIGHT]},
		{Reason: profile.LossDropped, Detail: "times of samples: the ring was full", N: delta[kernelCounterLOST_TIMES]},
		{Reason: profile.LossTargets, Detail: "more than the kernel's table holds", N: delta[kernelCounterLOST_TARGETS]},
		s.lateLoss(used),
		{Reason: profile.LossExact, Detail: "of threads that exited: the ring was full", N: delta[kernelCounterLOST_EXITS]},
	} {
		h.AddLoss(l)
	}
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
	select {
	case <-s.stop:
		return nil
	default:
		close(s.stop)
	}
	if s.births != nil {
		s.births.Close() // ends followBirths
	}
	s.done.Wait()
	errs := []error{s.events.close()}
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	if s.exact != nil {
		errs = append(errs, s.exact.close())
	}
	if s.times != nil {
		errs = append(errs, s.times.close())
	}
	errs = append(errs, s.shared.Close(), s.arenas[0].Close(), s.arenas[1].Close())
	return errors.Join(append(errs, s.objects.close())...)
}
