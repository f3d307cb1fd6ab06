// Package table holds what BPF samplers share: it loads a sampler's program with the
// maps that bpf/include/aggregator.h fills, swaps and drains their buffers, and builds
// windows from them.
//
//	Tracker, once per machine: forks, births, exits, the kernel's list of threads
//	   -> Targets of each table: which processes it samples, at which rate
//	   -> exact times of each table's threads, since the edge of its last window
//	Table, one per sampler: rows, stacks, counters
//	   Cut: apply the rates, swap the buffers, read exact times -> Edge
//	   Window: drain the buffer, find what frames point at -> profile.Window
package table

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// Options say what a table holds. Unwinder is needed, and either All, PIDs or Cgroup.
type Options struct {
	Unwinder *unwind.Unwinder
	Tracker  *Tracker // nil: one of its own
	Log      *slog.Logger

	All       bool
	PIDs      []int  // and all their descendants from now on
	Cgroup    string // a cgroup2 directory
	ByProcess bool   // the sampler's program chooses by process even for a cgroup: PIDs are its members
	Rate      float64
	Threads   bool          // keep threads apart
	Slot      time.Duration // keep steps of this length apart; 0: none
	OffCPU    bool          // exact times are those off the CPU; else those on it

	Squares []float64 // the unit of the kernel's squares, by value type; none: 0

	// Context returns the context of rows with a reason of the sampler and what their
	// thread carried; nil: rows have none.
	Context func(reason, carried uint16) profile.Context

	// Skip returns how many of the innermost kernel frames of a stack are left out; nil: none.
	Skip func(innermost []uint64) int

	OnBirth func() // a target has started a thread or a child, after Alert

	Naming
}

// Naming is what a sampler asks about the code that it has seen; nil: nobody knows.
type Naming struct {
	OnFile    func(unwind.File)                                                 // each file that code was seen in
	Kernel    func(address uint64) profile.Location                             // what a kernel address is
	Anonymous func(pid int, address uint64) (profile.Location, []profile.Frame) // what code without a file is

	// Named tells what a language's frame shows, the calls inlined there innermost
	// first: it is asked while the process may still live.
	Named func(pid int, f unwind.Frame) []profile.Frame
}

// onlyTargets reports whether the programs choose by process: else the events do.
func (o *Options) onlyTargets() bool {
	return !o.All && (o.Cgroup == "" || o.ByProcess)
}

// squares returns the squares of a row's value of type i.
func (o *Options) squares(i int, kernel uint64) float64 {
	if i >= len(o.Squares) {
		return 0
	}
	return o.Squares[i] * float64(kernel)
}

// Table is the rows, stacks and counters of one sampler. It is safe for concurrent use.
type Table struct {
	Targets *Targets

	options Options
	log     *slog.Logger
	tracker *Tracker
	alone   bool // the tracker is closed with it
	number  int  // among the tracker's tables
	joined  bool
	objects objects
	shared  *bpf.Mapped[kernelShared]
	arenas  [2]*bpf.Mapped[kernelArena]

	// The tracker's lock guards these.
	exact           exactTimes
	members, former map[int]bool // of the cgroup: since the last edge, and at that edge

	mu        sync.Mutex // guards all below: one Cut at a time; taken before the tracker's lock
	active    uint32     // the buffer that is filled: the lowest bit of the number of windows
	began     time.Time
	beganMono uint64
	seen      [kernelCounterCOUNTERS]uint64
	missed    missed
	drain     drainer
}

// missed are the tracker's counters at the last edge.
type missed struct{ exits, targets uint64 }

// objects are the maps of a sampler's object that all samplers have.
type objects struct {
	SharedState *ebpf.Map `ebpf:"shared_state"`
	Rows0       *ebpf.Map `ebpf:"rows_0"`
	Rows1       *ebpf.Map `ebpf:"rows_1"`
	Stacks0     *ebpf.Map `ebpf:"stacks_0"`
	Stacks1     *ebpf.Map `ebpf:"stacks_1"`
	Arena0      *ebpf.Map `ebpf:"arena_0"`
	Arena1      *ebpf.Map `ebpf:"arena_1"`
	Counters    *ebpf.Map `ebpf:"counters"`
}

// New begins to follow the targets' forks. Load must follow.
func New(o Options) (*Table, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Named == nil {
		o.Named = func(int, unwind.Frame) []profile.Frame {
			return []profile.Frame{{Function: "[function of a language]"}}
		}
	}
	t := &Table{options: o, log: o.Log, tracker: o.Tracker, members: map[int]bool{}, exact: newExactTimes(o.OffCPU, o.onlyTargets())}
	t.Targets = newTargets(t, o.PIDs, o.Rate)
	if t.tracker == nil {
		tracker, err := NewTracker(o.Log)
		if err != nil {
			return nil, err
		}
		t.tracker, t.alone = tracker, true
	}
	var err error
	if t.number, err = t.tracker.join(t); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.joined = true
	t.missed = t.missedSoFar()
	return t, nil
}

func (t *Table) bit() uint32 { return 1 << t.number }

// Load loads a sampler's object, whose own programs and maps it puts into own. Maps of
// the unwinder and the tracker are lent to it. The plan holds for the first window.
func Load[T any](t *Table, spec *ebpf.CollectionSpec, own *T, plan Plan) error {
	o := t.options
	if err := Set(spec, map[string]any{"only_targets": Flag(o.onlyTargets()), "table_number": uint32(t.number),
		"with_threads": Flag(o.Threads), "slot_ns": uint64(o.Slot)}); err != nil {
		return err
	}
	lent, err := o.Unwinder.Lend(spec)
	if err != nil {
		return err
	}
	lent.MapReplacements["targets"] = t.tracker.objects.Targets
	if err := spec.LoadAndAssign(&struct {
		Own  *T
		Ours *objects
	}{own, &t.objects}, lent); err != nil {
		return bpf.Explain("load the sampler", err)
	}
	if t.shared, err = bpf.Map[kernelShared](t.objects.SharedState); err != nil {
		return err
	}
	for i, m := range []*ebpf.Map{t.objects.Arena0, t.objects.Arena1} {
		if t.arenas[i], err = bpf.Map[kernelArena](m); err != nil {
			return err
		}
	}
	return t.Targets.apply(orKeepAll(plan), 0, 1)
}

func orKeepAll(plan Plan) Plan {
	if plan == nil {
		return keepAll
	}
	return plan
}

// Set sets load-time constants of an object.
func Set(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// Flag is a load-time constant that is on or off.
func Flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// Wanted reports whether a process is sampled, as far as programs can tell by process.
func (t *Table) Wanted(pid int) bool {
	return t.options.All || t.options.Cgroup != "" || t.Targets.Has(pid)
}

// Start begins the first window.
func (t *Table) Start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.readExact(); err != nil {
		return err
	}
	t.began, t.beganMono = time.Now(), bpf.Clock(unix.CLOCK_MONOTONIC)
	atomic.StoreUint64(&t.shared.Value.Control.WindowStart, t.beganMono)
	return nil
}

// Edge is a window that has ended, but for its rows.
type Edge struct {
	Head    profile.Head                // its start, duration and slot
	Used    map[ThreadID]profile.Thread // exact times
	Dropped map[int]bool                // processes that are no targets from here on

	start  uint64 // CLOCK_MONOTONIC
	Buffer uint32 // the buffer that it filled
}

// Cut ends the window that is being filled, begins the next by the plan, calls then at
// that moment, and waits until no program writes to the one that ended. Window must
// follow before the next Cut: the caller makes one at a time.
func (t *Table) Cut(plan Plan, then func(*Edge)) (*Edge, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &Edge{Buffer: t.active, start: t.beganMono}
	if err := t.Targets.apply(orKeepAll(plan), 1-t.active); err != nil {
		return nil, err
	}
	now, mono := time.Now(), bpf.Clock(unix.CLOCK_MONOTONIC)
	control := &t.shared.Value.Control
	atomic.StoreUint64(&control.WindowStart, mono)
	t.active = uint32(atomic.AddUint64(&control.Windows, 1) & 1)
	e.Head = profile.Head{Start: t.began, Duration: time.Duration(mono - t.beganMono), Slot: t.options.Slot}
	then(e)
	var err error
	if e.Used, err = t.readExact(); err != nil {
		return nil, err
	}
	e.Dropped = t.Targets.forgetDropped()
	t.quiesce()
	t.options.Unwinder.Develop() // the walks that ended have taken their photographs
	t.began, t.beganMono = now, mono
	return e, nil
}

// readExact returns the exact times since the last edge, and makes now one.
func (t *Table) readExact() (map[ThreadID]profile.Thread, error) {
	t.tracker.mu.Lock()
	defer t.tracker.mu.Unlock()
	if err := t.turnMembers(); err != nil {
		return nil, err
	}
	t.exact.entering = t.Targets.entered()
	now := bpf.Clock(unix.CLOCK_BOOTTIME)
	if err := t.tracker.drainExits(); err != nil {
		return nil, err
	}
	return t.exact.cut(t.tracker, t.bit(), now, t.wantedExact)
}

// quiesce waits until no program that may still fill the old buffer runs.
func (t *Table) quiesce() {
	type begun struct {
		cpu     int
		entered uint64
	}
	var running []begun
	for i := range t.shared.Value.Cpu {
		c := &t.shared.Value.Cpu[i]
		if entered := atomic.LoadUint64(&c.Entered); entered != atomic.LoadUint64(&c.Left) {
			running = append(running, begun{i, entered})
		}
	}
	deadline := time.Now().Add(time.Second)
	for _, r := range running {
		c := &t.shared.Value.Cpu[r.cpu]
		for atomic.LoadUint64(&c.Left) < r.entered && time.Now().Before(deadline) {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// Samples returns how many samples have begun so far.
func (t *Table) Samples() (n uint64) {
	for i := range t.shared.Value.Cpu {
		n += atomic.LoadUint64(&t.shared.Value.Cpu[i].Entered)
	}
	return n
}

// Births returns how many threads and children targets have started so far.
func (t *Table) Births() uint64 {
	return atomic.LoadUint64(&t.tracker.shared.Value.Births[t.number])
}

// Alert chooses whether the next birth calls OnBirth.
func (t *Table) Alert(on bool) {
	if on {
		atomic.OrUint32(&t.tracker.shared.Value.Alert, t.bit())
	} else {
		atomic.AndUint32(&t.tracker.shared.Value.Alert, ^t.bit())
	}
}

// ThreadTimes is what a thread of this machine has used since it was created.
type ThreadTimes struct {
	ThreadID
	Runtime, Started uint64 // ns
	Switches         uint64
	Target           bool
}

// EachThread lists all threads of this machine.
func (t *Table) EachThread(each func(ThreadTimes)) error {
	t.tracker.mu.Lock()
	defer t.tracker.mu.Unlock()
	return t.tracker.snapshot(func(k *kernelThreadTimes) {
		each(ThreadTimes{ThreadID: ThreadID{int(k.Tgid), int(k.Tid)}, Runtime: k.Runtime, Started: k.Started,
			Switches: k.Switches, Target: k.Tables&t.bit() != 0})
	})
}

// Full tells how full the kernel's tables are of the window that is filled, from
// 0 to 1.
func (t *Table) Full() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	arena := t.arenas[t.active].Value
	words, rows := float64(atomic.LoadUint64(&arena.Next)), float64(atomic.LoadUint64(&arena.Rows))
	t.tracker.mu.Lock()
	exits := float64(len(t.exact.used))
	t.tracker.mu.Unlock()
	return min(1, max(words/float64(len(arena.Words)), rows/maxRows, exits/maxUsed))
}

// addLosses moves what was counted since the last edge into the head.
func (t *Table) addLosses(h *profile.Head, buffer uint32) {
	var delta [kernelCounterCOUNTERS]int64
	var values []uint64
	for i := range delta {
		if err := t.objects.Counters.Lookup(uint32(i), &values); err != nil {
			continue
		}
		var sum uint64
		for _, v := range values {
			sum += v
		}
		delta[i] = int64(sum - t.seen[i])
		t.seen[i] = sum
	}
	now := t.missedSoFar()
	exits, targets := int64(now.exits-t.missed.exits), int64(now.targets-t.missed.targets)+t.Targets.refusedIn(buffer)
	t.missed = now
	t.tracker.mu.Lock()
	exits += t.exact.crowded
	t.exact.crowded = 0
	t.tracker.mu.Unlock()
	for _, l := range []profile.Loss{
		{Reason: profile.LossDropped, Detail: "more distinct stacks than the kernel's table holds", N: delta[kernelCounterLOST_ROWS], Value: delta[kernelCounterLOST_ROWS_WEIGHT]},
		{Reason: profile.LossDropped, Detail: "a sample interrupted a sample", N: delta[kernelCounterLOST_NESTED], Value: delta[kernelCounterLOST_NESTED_WEIGHT]},
		{Reason: profile.LossDropped, Detail: "times of samples: the ring was full", N: delta[kernelCounterLOST_TIMES]},
		{Reason: profile.LossTargets, Detail: "more than the kernel's table holds", N: targets},
		{Reason: profile.LossExact, Detail: "of threads that exited: the ring was full", N: exits},
	} {
		h.AddLoss(l)
	}
}

func (t *Table) missedSoFar() missed {
	tracking := t.tracker.shared.Value
	return missed{atomic.LoadUint64(&tracking.LostExits[t.number]), atomic.LoadUint64(&tracking.LostTargets[t.number])}
}

// Close releases everything in the kernel. The sampler's programs must be gone.
func (t *Table) Close() error {
	var errs []error
	if t.joined {
		errs = append(errs, t.tracker.leave(t))
	}
	errs = append(errs, t.shared.Close(), t.arenas[0].Close(), t.arenas[1].Close())
	o := &t.objects
	for _, m := range []io.Closer{o.SharedState, o.Rows0, o.Rows1, o.Stacks0, o.Stacks1, o.Arena0, o.Arena1, o.Counters} {
		errs = append(errs, m.Close())
	}
	if t.alone {
		errs = append(errs, t.tracker.Close())
	}
	return errors.Join(errs...)
}
