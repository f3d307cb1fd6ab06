// Package recorder profiles this machine for one command: it finds the targets, starts the unwinder and the sampler, and names what they saw.
//
//	targets (targets.go) -> unwind.Unwinder -> cpu.Sampler -> windows, cut every few seconds
//	   -> merged as they come, named once at the end: a profile.Window
package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/symbol"
	"atys.dev/atys/internal/unwind"
)

// Options say what to record; exactly one kind of target must be given.
type Options struct {
	Targets   Targets
	Event     string
	Frequency float64
	Count     uint64
	Threads   bool
	Timed     bool
	Slot      time.Duration
	Placement cpu.Placement
	Budget    float64 // see cpu.Options
	Fixed     bool
	CacheDir  string // of symbols; "": none
	Rows      uint32 // of unwinding tables, see unwind.Options
	Log       *slog.Logger

	// MayAsk lets the runtimes of .NET be asked what their methods are called:
	// nobody else knows, and a question that is cut off can crash 3.1.
	MayAsk bool

	MeasureCost, Empty, PassThrough bool // see cpu.Options
}

// Recorder is a recording in progress.
type Recorder struct {
	options  Options
	log      *slog.Logger
	unwinder *unwind.Unwinder
	sampler  *cpu.Sampler
	names    *symbol.Resolver
	kernel   *symbol.Kernel
	managed  *managed
	calm     func() // ends the hurry of the start
	cpus     int

	mu  sync.Mutex // guards all below
	jit map[int]*symbol.JIT
}

// Start begins to record.
func Start(o Options) (r *Recorder, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	base, second, err := cpu.ParseEvents(o.Event)
	if err != nil {
		return nil, err
	}
	if o.Count == 0 {
		if err := cpu.CheckFrequency(o.Frequency); err != nil {
			return nil, err
		}
	}
	if err := checkNamespace(); err != nil {
		return nil, err
	}
	if err := bpf.RaiseLimits(); err != nil {
		o.Log.Debug("raise limits", "error", err)
	}
	cpus, err := proc.FS{}.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	calm, err := hurry()
	if err != nil {
		o.Log.Debug("start without hurry", "error", err)
		calm = func() {}
	}
	kernel := symbol.NewKernel("/proc", "/sys", time.Now)
	r = &Recorder{options: o, log: o.Log, jit: map[int]*symbol.JIT{}, managed: newManaged(o.Log),
		names:  symbol.New(symbol.Options{CacheDir: o.CacheDir, Kernel: kernel, Debuginfod: strings.Fields(os.Getenv("DEBUGINFOD_URLS"))}),
		kernel: kernel, calm: calm, cpus: len(cpus)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.unwinder, err = unwind.New(unwind.Options{Source: unwind.Proc{}, CPUs: cpus, Log: o.Log, Rows: o.Rows,
		Wanted: func(pid int) bool { return r.sampler.Wanted(pid) }, Eager: len(o.Targets.PIDs) > 0,
		OnRuntime: r.met})
	if err != nil {
		return r, err
	}
	r.sampler, err = cpu.New(cpu.Options{
		Unwinder: r.unwinder, CPUs: cpus, Event: base, Second: second, Log: o.Log,
		All: o.Targets.All, PIDs: o.Targets.PIDs, Cgroup: o.Targets.Cgroup,
		Frequency: o.Frequency, Count: o.Count, Threads: o.Threads, Slot: o.Slot, Timed: o.Timed, Fixed: o.Fixed,
		Spread: o.Placement, Budget: o.Budget, OnFile: r.addFile, Kernel: r.kernel.Location, Anonymous: r.anonymous, Named: r.unwinder.Name,
		MeasureCost: o.MeasureCost, Empty: o.Empty, PassThrough: o.PassThrough,
	})
	if err != nil {
		return r, err
	}
	return r, r.begin()
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

// begin has the unwinder know the targets before the first sample is taken.
func (r *Recorder) begin() error {
	r.unwinder.OnTask(r.sampler.OnTask)
	if err := r.unwinder.Start(); err != nil {
		return err
	}
	for _, pid := range r.options.Targets.PIDs {
		if err := r.unwinder.Track(pid); err != nil {
			return fmt.Errorf("read process %d: %w", pid, err)
		}
	}
	if err := r.sampler.Start(); err != nil {
		return err
	}
	r.log.Debug("sampling has begun")
	return nil
}

func (r *Recorder) addFile(f unwind.File) { r.names.AddFile(f.BuildID, f.Path, f.Open) }

// anonymous names code that a process made at run time, by what its runtime may
// write for perf. Addresses mean nothing outside the process: without a name
// all such code of a process is one place.
func (r *Recorder) anonymous(pid int, address uint64) (profile.Location, []profile.Frame) {
	r.mu.Lock()
	m := r.jit[pid]
	if m == nil {
		m = symbol.NewJIT(pid)
		if err := m.Refresh(); err != nil {
			r.log.Debug("read names of compiled code", "pid", pid, "error", err)
		}
		r.jit[pid] = m
	}
	r.mu.Unlock()
	if f, ok := m.Frame(address); ok {
		return profile.Location{Kind: profile.KindJIT, Name: f.Function, File: f.File, Line: f.Line}, []profile.Frame{f}
	}
	if _, err := r.unwinder.Runtime(pid, unwind.DotNet); err == nil && r.options.MayAsk {
		return r.managed.location(pid, address), nil
	}
	return codeMade, nil
}

// met is told of each runtime that is found.
func (r *Recorder) met(pid int, language unwind.Language) {
	if language == unwind.DotNet && r.options.MayAsk {
		r.managed.meet(pid)
	}
}

// Sampler gives the sampler, for live changes and its costs.
func (r *Recorder) Sampler() *cpu.Sampler { return r.sampler }

// Unwinder gives the unwinder, for its statistics.
func (r *Recorder) Unwinder() *unwind.Unwinder { return r.unwinder }

// Cut ends the current window and names it.
func (r *Recorder) Cut() (*profile.Window, error) {
	w, err := r.cut()
	if err != nil {
		return w, err
	}
	if w, err = r.managed.finish(w); err == nil {
		r.names.Name(w)
	}
	return w, err
}

func (r *Recorder) cut() (*profile.Window, error) {
	w, err := r.sampler.Cut()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	for pid, m := range r.jit {
		if err := m.Refresh(); err != nil {
			r.log.Debug("read names of compiled code", "pid", pid, "error", err)
			delete(r.jit, pid) // mostly because it is gone; if not, it is asked for again
		}
	}
	r.mu.Unlock()
	r.managed.name(w)
	w.Target = r.options.Targets.labels()
	return w, nil
}

// cutEvery keeps the kernel's tables, of some 30,000 rows, from filling at high
// frequencies and with many CPUs: 8,000 samples, but at least 0.1 and at most 5
// seconds, for each cut lists all threads. How often events happen that are
// counted is not known.
func (o *Options) cutEvery(cpus int) time.Duration {
	if o.Count > 0 {
		return time.Second
	}
	wanted := time.Duration(8000 / (max(o.Frequency, 1) * float64(max(cpus, 1))) * float64(time.Second))
	return min(max(wanted, 100*time.Millisecond), 5*time.Second)
}

// mergeAt bounds how many windows wait to be merged.
const mergeAt = 32

// Record gathers windows until the context ends, or for the duration if it is
// not zero. What was measured is returned even where an error ends it.
func (r *Recorder) Record(ctx context.Context, duration time.Duration, progress func(*profile.Window)) (*profile.Window, error) {
	var end <-chan time.Time
	if duration > 0 {
		timer := time.NewTimer(duration)
		defer timer.Stop()
		end = timer.C
	}
	every := r.options.cutEvery(r.cpus)
	if progress != nil { // somebody watches
		every = min(every, time.Second)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var windows []*profile.Window
	for last := false; !last; {
		select {
		case <-ctx.Done():
			last = true
		case <-end:
			last = true
		case <-ticker.C:
		}
		w, err := r.cut()
		if err != nil {
			whole, mergeErr := r.finish(windows)
			return whole, errors.Join(err, mergeErr)
		}
		if progress != nil {
			progress(w)
		}
		if windows = append(windows, w); len(windows) == mergeAt {
			if w, err = profile.Merge(windows...); err != nil {
				return w, err
			}
			windows = append(windows[:0], w)
		}
	}
	return r.finish(windows)
}

// finish merges what was recorded and names it.
func (r *Recorder) finish(windows []*profile.Window) (*profile.Window, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	whole, err := profile.Merge(windows...)
	if err != nil {
		return whole, err
	}
	r.managed.settle()
	if whole, err = r.managed.finish(whole); err == nil {
		r.names.Name(whole)
	}
	return whole, err
}

// Close ends the recording.
func (r *Recorder) Close() error {
	r.calm()
	r.managed.close()
	var errs []error
	if r.sampler != nil {
		errs = append(errs, r.sampler.Close())
	}
	if r.unwinder != nil {
		errs = append(errs, r.unwinder.Close())
	}
	return errors.Join(append(errs, r.names.Close())...)
}
