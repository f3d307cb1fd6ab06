package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/internal/symbol"
	"atys.dev/atys/internal/unwind"
)

// Setup says how a machine's recordings are unwound and named.
type Setup struct {
	CacheDir string           // of unwinding tables and symbols; "": none
	CacheMax int64            // bytes of CacheDir; 0: diskcache.DefaultLimit
	Names    int64            // bytes of symbols in memory; 0: as many as symbol.Options has them
	Rows     uint32           // of unwinding tables, see unwind.Options
	Eager    bool             // see unwind.Options
	Account  *cputime.Account // of what the process's CPU time is spent on; may be nil
	Ready    func()           // told of targets that have become ready; see Recorder.Aim. It must not wait
	Log      *slog.Logger
}

// Machine is what the recordings of this machine share, one after another or
// several at once: who runs, the unwinder's tables, and names.
type Machine struct {
	setup    Setup
	log      *slog.Logger
	cpus     []int
	unwinder *unwind.Unwinder
	tracker  *table.Tracker
	names    *symbol.Resolver
	cache    *diskcache.Cache
	kernel   *symbol.Kernel
	managed  *managed
	calm     func() // ends the hurry of the start

	// recordings in progress. Who asks holds the unwinder's lock, so that there is
	// none here: a list is never changed, but replaced.
	recordings atomic.Pointer[[]*recording]

	mu      sync.Mutex // guards all below; not held while the unwinder is called from within it
	started bool
	jit     map[int]*symbol.JIT
}

// Open prepares this machine. Nothing is watched until the first recording.
func Open(s Setup) (m *Machine, err error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkNamespace(); err != nil {
		return nil, err
	}
	if err := bpf.RaiseLimits(); err != nil {
		s.Log.Debug("raise limits", "error", err)
	}
	cpus, err := proc.Machine{}.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	calm, err := hurry()
	if err != nil {
		s.Log.Debug("start without hurry", "error", err)
		calm = func() {}
	}
	kernel := symbol.NewKernel("/proc", "/sys", time.Now)
	cache := diskcache.OpenIfPossible(s.CacheDir, diskcache.Options{Limit: s.CacheMax, Log: s.Log})
	m = &Machine{setup: s, log: s.Log, cpus: cpus, kernel: kernel, cache: cache, managed: newManaged(s.Log), calm: calm, jit: map[int]*symbol.JIT{},
		names: symbol.New(symbol.Options{Cache: cache, MemoryBytes: s.Names, Kernel: kernel, Debuginfod: strings.Fields(os.Getenv("DEBUGINFOD_URLS"))})}
	m.recordings.Store(&[]*recording{})
	m.unwinder, err = unwind.New(unwind.Options{Source: unwind.Proc{}, CPUs: cpus, Log: s.Log, Rows: s.Rows, Tables: cache,
		Wanted: m.wanted, Eager: s.Eager, OnRuntime: m.met, OnWorker: m.worker})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.unwinder.OnTask(m.onTask)
	if m.tracker, err = table.NewTracker(s.Log); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// initialPIDNamespace is the inode of the namespace in which the kernel itself
// numbers processes; it is part of the kernel's interface.
const initialPIDNamespace = "pid:[4026531836]"

// checkNamespace refuses to run where /proc numbers processes otherwise than
// the kernel's programs do: nothing would be found.
func checkNamespace() error {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || ns == initialPIDNamespace {
		return nil
	}
	return errors.New("this container has process numbers of its own: run atys in the host's PID namespace (docker run --pid=host, or hostPID in Kubernetes)")
}

// wanted tells whether any recording has a process as its target.
func (m *Machine) wanted(pid int) bool {
	return slices.ContainsFunc(*m.recordings.Load(), func(r *recording) bool { return r.Wanted(pid) })
}

func (m *Machine) onTask(e lifecycle.Event) {
	for _, r := range *m.recordings.Load() {
		r.sampler.OnTask(e)
	}
}

// met is told of each runtime that is found.
func (m *Machine) met(pid int, language unwind.Language) {
	if language != unwind.DotNet {
		return
	}
	if slices.ContainsFunc(*m.recordings.Load(), func(r *recording) bool { return r.mayAsk && r.Wanted(pid) }) {
		m.managed.meet(pid)
	}
}

// add has a recording told of what happens, and the unwinder know what is its.
func (m *Machine) add(r *recording) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := append(slices.Clone(*m.recordings.Load()), r)
	m.recordings.Store(&all)
	if !m.started {
		m.started = true
		return m.unwinder.Start()
	}
	if !r.targets.All && r.targets.Cgroup == "" {
		return nil // which are tracked one by one
	}
	return m.unwinder.Scan()
}

func (m *Machine) remove(r *recording) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(*m.recordings.Load()), func(o *recording) bool { return o == r })
	m.recordings.Store(&rest)
}

// track has the unwinder know processes before they are sampled.
func (m *Machine) track(pids []int) error {
	for _, pid := range pids {
		if err := m.unwinder.Track(pid); err != nil {
			return fmt.Errorf("read process %d: %w", pid, err)
		}
	}
	return nil
}

// read has the unwinder know a new target.
func (m *Machine) read(pid int) {
	if err := m.unwinder.Track(pid); err != nil {
		m.log.Debug("read a new target", "pid", pid, "error", err) // mostly because it has ended
	}
}

// complete sets the labels of a window that was cut, and the names that only the process
// itself knew.
func (m *Machine) complete(w *profile.Window, of *Targets) {
	m.refresh()
	m.managed.name(w)
	w.Target = of.labels()
}

// name fills in the names of a window that was cut, or of several merged. The context
// bounds downloads of debug files only.
func (m *Machine) name(ctx context.Context, w *profile.Window) (*profile.Window, error) {
	defer m.setup.Account.Begin(cputime.Naming)()
	w, err := m.managed.finish(w)
	if err == nil {
		m.names.Name(ctx, w)
	}
	return w, err
}

// kernelName returns the function at a kernel address; "": it has no name.
func (m *Machine) kernelName(address uint64) string {
	frames, ok := m.kernel.Frames(m.kernel.Location(address))
	if !ok {
		return ""
	}
	return frames[0].Function
}

func (m *Machine) addFile(f unwind.File) { m.names.AddFile(f.BuildID, f.Path, f.Open) }

// anonymous names code that a process made at run time, by what its runtime may
// write for perf. Addresses mean nothing outside the process: without a name
// all such code of a process is one place.
func (m *Machine) anonymous(pid int, address uint64, mayAsk bool) (profile.Location, []profile.Frame) {
	if f, ok := m.jitFrame(pid, address); ok {
		return profile.Location{Kind: profile.KindJIT, Name: f.Function, File: f.File, Line: f.Line}, []profile.Frame{f}
	}
	if _, err := m.unwinder.Runtime(pid, unwind.DotNet); err == nil && mayAsk {
		return m.managed.location(pid, address), nil
	}
	return codeMade, nil
}

func (m *Machine) jitFrame(pid int, address uint64) (profile.Frame, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jit[pid]
	if j == nil {
		j = symbol.NewJIT(pid)
		if err := j.Refresh(); err != nil {
			m.log.Debug("read names of compiled code", "pid", pid, "error", err)
		}
		m.jit[pid] = j
	}
	return j.Frame(address)
}

// refresh reads what runtimes have written of their code since.
func (m *Machine) refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid, j := range m.jit {
		if err := j.Refresh(); err != nil {
			m.log.Debug("read names of compiled code", "pid", pid, "error", err)
			delete(m.jit, pid) // mostly because it is gone; if not, it is asked for again
		}
	}
}

// worker has the CPU time of one of the unwinder's workers charged to its cause.
func (m *Machine) worker(name string) (done func()) {
	cause := cputime.Following
	if name == "build" {
		cause = cputime.Tables
	}
	return m.setup.Account.Begin(cause)
}

// Limits bound what the machine's recordings take beside their samples; zero bounds
// nothing.
type Limits struct {
	Tables, Naming float64       // of a core
	SkipYoung      bool          // tables of files wait that processes have not mapped for a second
	Events         time.Duration // between two readings of process events; 0: as is usual
}

// Limit sets them.
func (m *Machine) Limit(l Limits) {
	m.unwinder.Limit(unwind.Limits{Tables: l.Tables, SkipYoung: l.SkipYoung, Events: l.Events})
	m.names.Limit(l.Naming)
}

// Shed gives up names that are in memory, which are read again where they are
// asked for.
func (m *Machine) Shed() {
	m.names.Shed()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.jit)
}

// Unwinder gives the unwinder, for its statistics.
func (m *Machine) Unwinder() *unwind.Unwinder { return m.unwinder }

// Cache returns what the cache on disk did.
func (m *Machine) Cache() diskcache.Stats { return m.cache.Stats() }

// Close releases what recordings shared. They are closed before.
func (m *Machine) Close() error {
	m.calm()
	m.managed.close()
	var errs []error
	if m.unwinder != nil {
		errs = append(errs, m.unwinder.Close())
	}
	if m.tracker != nil {
		errs = append(errs, m.tracker.Close())
	}
	return errors.Join(append(errs, m.names.Close(), m.cache.Close())...)
}
