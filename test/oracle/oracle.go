// Package oracle asks whether every frame is right: it compares the sampler's stacks with those of an independent unwinder at the same instants.
//
//	cpu.Sampler's events, tapped (tap.go) -> the kernel's own records: registers, stack bytes
//	   -> the process's files at that moment (space.go)
//	   -> elfutils walks them (walk.c, run by walker.go)
//	the sampler's timed samples -> matched by CPU, thread and time (match.go)
//	   -> compared frame by frame (compare.go): a Result
//	and the code is asked whether each caller calls (calls.go)
//
// The two sides share the interrupt and nothing else: not the bytes, not the
// tables, not the code.
package oracle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/internal/unwind"
)

// Options say what to watch. Walker and PIDs are needed.
type Options struct {
	Walker    string        // the program that BuildWalker made
	PIDs      []int         // and their descendants
	Frequency float64       // 0: 199 Hz
	Samples   int           // how many to compare at least; 0: 1,000
	Patience  time.Duration // after which fewer must do; 0: one minute
	Log       *slog.Logger  // nil: silent
}

func (o *Options) complete() {
	if o.Frequency == 0 {
		o.Frequency = 199
	}
	if o.Samples == 0 {
		o.Samples = 1000
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// windowLength is how long samples gather before they are matched.
const windowLength = time.Second

// Run samples the processes until enough stacks were compared, or ctx ends:
// what was compared by then is the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.complete()
	walker, err := startWalker(o.Walker)
	if err != nil {
		return nil, err
	}
	defer walker.close()
	watch, err := startWatch(o, newTap(newSpaces().current))
	if err != nil {
		return nil, err
	}
	defer watch.close()
	result := newResult()
	ticker := time.NewTicker(windowLength)
	defer ticker.Stop()
	for began := time.Now(); result.Compared() < o.Samples && time.Since(began) < o.Patience && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
		if err := watch.compare(result, walker); err != nil {
			return result, err
		}
	}
	result.Unwinder = watch.unwinder.Stats()
	return result, nil
}

// watch is a sampler at work, with its events tapped.
type watch struct {
	unwinder *unwind.Unwinder
	sampler  *cpu.Sampler
	tap      *tap
	calls    calls
	pids     []int

	mu    sync.Mutex // guards all below
	files map[string]string
	early []lifecycle.Event // before there was a sampler
	ready *cpu.Sampler
}

func startWatch(o Options, t *tap) (w *watch, err error) {
	event, err := cpu.ParseEvent("cpu-clock")
	if err != nil {
		return nil, err
	}
	cpus, err := proc.Machine{}.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	w = &watch{tap: t, pids: o.PIDs, files: map[string]string{}}
	t.wanted = w.wanted
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	w.unwinder, err = unwind.New(unwind.Options{Source: unwind.Proc{}, CPUs: cpus, Eager: true, Log: o.Log,
		Wanted: w.wanted})
	if err != nil {
		return w, err
	}
	w.unwinder.OnTask(w.onTask)
	if err := w.unwinder.Start(); err != nil {
		return w, err
	}
	for _, pid := range o.PIDs {
		if err := w.unwinder.Track(pid); errors.Is(err, proc.ErrNotFound) {
			o.Log.Warn("process ended before it could be sampled", "pid", pid)
		} else if err != nil {
			return w, fmt.Errorf("read process %d: %w", pid, err)
		}
	}
	w.sampler, err = cpu.New(cpu.Options{Unwinder: w.unwinder, CPUs: cpus, Event: event, PIDs: o.PIDs, Log: o.Log,
		Frequency: o.Frequency, Threads: true, Timed: true,
		Naming: table.Naming{OnFile: w.onFile, Anonymous: func(_ int, address uint64) (profile.Location, []profile.Frame) {
			return profile.Location{Kind: profile.KindJIT, Name: strconv.FormatUint(address, 16)}, nil
		}},
		Tap: &cpu.Tap{Attr: t.attr, Opened: t.open}})
	if err != nil {
		return w, err
	}
	w.mu.Lock()
	w.ready = w.sampler
	early := w.early
	w.early = nil
	w.mu.Unlock()
	for _, e := range early {
		w.sampler.OnTask(e)
	}
	if err := w.sampler.Start(); err != nil {
		return w, err
	}
	t.start()
	return w, nil
}

func (w *watch) wanted(pid int) bool {
	if slices.Contains(w.pids, pid) {
		return true
	}
	w.mu.Lock()
	s := w.ready
	w.mu.Unlock()
	return s != nil && s.Wanted(pid)
}

func (w *watch) onTask(e lifecycle.Event) {
	w.mu.Lock()
	s := w.ready
	if s == nil {
		w.early = append(w.early, e)
	}
	w.mu.Unlock()
	if s != nil {
		s.OnTask(e)
	}
}

func (w *watch) onFile(f unwind.File) {
	w.mu.Lock()
	w.files[f.BuildID] = f.Path
	w.mu.Unlock()
}

// path is how the process called the file with a build-id.
func (w *watch) path(buildID string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files[buildID]
}

// compare ends a window and judges what it holds.
func (w *watch) compare(result *Result, walker *walker) error {
	now := readClocks()
	window, err := w.sampler.Cut()
	if err != nil {
		return err
	}
	records, lost := w.tap.take(now.monotonic(window.Start.Add(window.Duration)))
	result.RecordsLost += lost
	result.count(window)
	pairs, late := match(window, now.monotonic(window.Start), records)
	result.Unmatched += late
	for _, p := range pairs {
		said, err := walker.walk(p.record)
		if err != nil {
			return err
		}
		ours := w.stack(window, p.sample)
		result.judge(p, ours, said)
		result.judgeCalls(p, ours, said, &w.calls)
	}
	return nil
}

func (w *watch) close() {
	if w.sampler != nil {
		w.sampler.Close()
	}
	w.tap.close()
	w.calls.close()
	if w.unwinder != nil {
		w.unwinder.Close()
	}
}

// clocks ties Go's clock readings to CLOCK_MONOTONIC, which time.Time holds
// but does not give away.
type clocks struct {
	at time.Time
	ns int64
}

// readClocks reads both clocks, again where something came between.
func readClocks() (c clocks) {
	best := time.Hour
	for range 10 {
		before := time.Now()
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
			panic("the monotonic clock cannot be read: " + err.Error()) // a kernel without it starts no Go program
		}
		if apart := time.Since(before); apart < best {
			best, c = apart, clocks{before.Add(apart / 2), t.Nano()}
		}
	}
	return c
}

func (c clocks) monotonic(t time.Time) uint64 { return uint64(c.ns + int64(t.Sub(c.at))) }
