// Package unwind owns the maps by which BPF programs walk stacks, and lends them.
//
//	/proc scan, mmap records -> mappings of each process (tracker)
//	                         -> executables, one per file, shared by all that map it (tables)
//	                         -> runtimes of languages in each process (runtimes)
//	request from a walk      -> package cfi builds an executable's table (tables)
//	                         -> package paging loads those of its rows that walks use
//
// Samplers are lent the maps (Lend); their programs read them without locks. Three
// rules keep a walk on another CPU safe: a table is complete before it is published
// by one store, an array's cells are given back only after Grace, and everything a
// program reads from a table is bounded before it is used.
package unwind

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
)

// Grace is how long a program may still look at cells that were replaced. A
// walk takes some 10 us; a virtual CPU can lose the processor in its middle.
const Grace = 100 * time.Millisecond

// Room for rows: 16 MB by default, enough for all that a node, a JVM, a database
// and some hundred libraries run at once. What walks do not use makes room for what
// they do.
const (
	DefaultRows = 1 << 21
	MaxRows     = 1 << 24
	minRows     = 1 << 12
	// packedPart is how much memory tables may take that rows are loaded from, as a
	// multiple of that for rows: a packed row has two bytes, and most are not loaded.
	packedPart = 1
	// packedIdle is how long such a table stays after the last walk that used it, where
	// it is on disk, too.
	packedIdle = time.Minute
)

// Source is where the unwinder learns about processes; /proc outside tests.
type Source interface {
	// Mappings lists a process's mappings of code.
	Mappings(pid int) ([]lifecycle.Mapping, error)
	// Open opens the very file behind a mapping, however it is called today.
	Open(pid int, m lifecycle.Mapping) (*os.File, error)
	// PIDs lists all processes.
	PIDs() ([]int, error)
}

// Options configure an Unwinder. Source and CPUs are needed.
type Options struct {
	Source Source
	CPUs   []int
	Log    *slog.Logger // nil: silent

	// Wanted tells whether a process is to be tracked; nil: all are.
	Wanted func(pid int) bool
	// Eager builds tables as soon as a process maps a file, not when a walk
	// first needs them: right where few processes are tracked.
	Eager bool
	// Rows bounds the rows kept in the kernel, 8 bytes each, and is rounded up to
	// a power of two; 0: DefaultRows. Tables that rows are loaded from take as much
	// memory beside it, at most.
	Rows uint32
	// Tables keeps tables on disk; nil: they are built anew by each start.
	Tables *diskcache.Cache
	// OnRuntime is told of each runtime that was found in a process. It must not
	// wait, nor call the unwinder.
	OnRuntime func(pid int, language Language)
	// OnWorker is called by each goroutine that works for the unwinder, when it
	// begins: "build" and "attach" read files and processes, "follow" and "serve"
	// keep track of processes. It calls done when it ends.
	OnWorker func(name string) (done func())
}

// Unwinder keeps the maps that walks read up to date with what runs. Each of its parts has
// a lock, and maps that it alone writes: tracker processes and mappings, tables executables
// and rows, runtimes the parameters of languages. The order of locks is tracker, then
// tables or runtimes: these two call the tracker only without their lock.
type Unwinder struct {
	options Options
	maps    sharedMaps
	memory  memory
	execs   link.Link
	done    sync.WaitGroup
	stop    chan struct{}

	tracker  *tracker
	tables   *tables
	runtimes *runtimes

	namers      namers
	photographs *photographs
}

// Stats count what the unwinder did and could not do.
type Stats struct {
	Processes, Executables, Loaded int // Loaded: executables that have a table
	Rows, RowsMax                  uint32
	Mappings                       uint32
	PackedBytes                    int64 // of tables that rows are loaded from

	Builds, Rebuilds int // Rebuilds: of tables that had been given up
	BuildTime        BuildTime
	TableTime        time.Duration // CPU time of all that

	Chunks           uint64 // loaded: runs of 255 rows
	Evicted          uint64 // of these
	EvictedNeeded    uint64 // of these, those that walks asked for again within 10 s
	Skipped          int    // tables that were not built: their files were mapped for too short a time, see Limit
	TablesEvicted    int    // for want of room in the directory
	ProcessesEvicted int    // for want of room for others, or for their mappings
	NoRoom           int    // tables, processes and mappings that found none
	TableErrors      int    // files whose unwind information could not be read
	ProcessErrors    int    // processes that found no room
	EventsLost       uint64
}

// BuildTime is the CPU time of building tables, by what they were built for.
type BuildTime struct {
	Mapped time.Duration // a process maps the file
	Asked  time.Duration // a walk asked for it
	Again  time.Duration // it had been given up for want of room
}

// New creates the maps, and has the kernel note what happens from now on.
// Nothing is tracked until Start.
func New(o Options) (*Unwinder, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Wanted == nil {
		o.Wanted = func(int) bool { return true }
	}
	o.Rows = roomFor(o.Rows)
	kept, err := newKeptTables(o.Tables)
	if err != nil {
		return nil, err
	}
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read embedded BPF object: %w", err)
	}
	if err := fit(spec, o.Rows); err != nil {
		return nil, err
	}
	u := &Unwinder{options: o, stop: make(chan struct{}), namers: newNamers()}
	u.tables = &tables{options: o, kept: kept, stop: u.stop, queue: queue{wanted: map[*executable]bool{}}}
	u.tables.work = sync.NewCond(&u.tables.mu)
	u.tracker = &tracker{options: o, tables: u.tables, usual: calm, processes: map[int]*process{}, unpublished: map[int]*process{}}
	if o.Eager {
		u.tracker.usual = batch
	}
	if err := spec.LoadAndAssign(&u.maps, nil); err != nil {
		return nil, bpf.Explain("create the unwinder's maps", err)
	}
	if err := u.open(spec); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// open hands the maps to those who write them.
func (u *Unwinder) open(spec *ebpf.CollectionSpec) (err error) {
	if u.runtimes, err = newRuntimes(u.options.Log, spec); err != nil {
		return err
	}
	if err := u.memory.open(&u.maps); err != nil {
		return err
	}
	t := u.tables
	t.executables = newExecutables(entries{u.options.Log, u.memory.executables, u.maps.Files})
	t.queue.entries = t.executables.entries
	t.rows = paging.New(paging.Options{Rows: u.memory.rows.Values, Cells: u.memory.cells.Values, Packed: packedPart * 8 * int64(u.options.Rows), Grace: Grace,
		Now: func() time.Duration { return time.Duration(monotonic()) }})
	t.makeRoom, t.learned = u.tracker.makeRoom, u.tracker.learned
	u.tracker.kernel, u.tracker.runtimes, u.tracker.layouts = u.maps.Processes, u.runtimes, newLayouts(t, u.memory.mappings)
	u.runtimes.locate = u.tracker.locate
	u.runtimes.changed = func(pid int, language Language) {
		u.tracker.found(pid)
		if u.options.OnRuntime != nil {
			u.options.OnRuntime(pid, language)
		}
	}
	if u.tracker.watcher, err = lifecycle.Open(u.options.CPUs); err != nil {
		return fmt.Errorf("watch processes: %w", err)
	}
	return nil
}

// Lend makes a program that includes unwind.h use this unwinder's maps: load it
// with the options given.
func (u *Unwinder) Lend(spec *ebpf.CollectionSpec) (*ebpf.CollectionOptions, error) {
	if err := fit(spec, u.options.Rows); err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{
		"mappings": u.maps.Mappings, "executables": u.maps.Executables, "rows": u.maps.Rows, "cells": u.maps.Cells,
		"processes": u.maps.Processes, "requests": u.maps.Requests, "asked": u.maps.Asked, "files": u.maps.Files, "execs": u.maps.Execs,
		"photographs": u.maps.Photographs, "photographed": u.maps.Photographed,
	}
	for _, l := range languages {
		shared[l.parameters] = u.runtimes.parameters[l.language]
	}
	maps.DeleteFunc(shared, func(name string, _ *ebpf.Map) bool { return spec.Maps[name] == nil }) // it walks native code only
	return &ebpf.CollectionOptions{MapReplacements: shared}, nil
}

// OnTask has f called, from the tracking goroutine, for each fork, exec, exit
// and new thread of any process. Set it before Start.
func (u *Unwinder) OnTask(f func(lifecycle.Event)) { u.tracker.threads = f }

// Start scans what runs and keeps the tables up to date until Close.
func (u *Unwinder) Start() error {
	var err error
	if u.execs, err = link.AttachTracing(link.TracingOptions{Program: u.maps.OnExec}); err != nil {
		return bpf.Explain("note each exec", err)
	}
	requests, err := ringbuf.NewReader(u.maps.Requests)
	if err != nil {
		return fmt.Errorf("read the walks' requests: %w", err)
	}
	u.photographs, err = followPhotographs(u.maps.Photographs, func(l Language, p lang.Photograph) { u.namers.keep(l, p, u.Runtime) })
	if err != nil {
		requests.Close()
		return err
	}
	if err := u.Scan(); err != nil {
		return errors.Join(err, requests.Close(), u.photographs.reader.Close())
	}
	u.start("follow", func() { u.tracker.follow(u.stop) })
	for range builders {
		u.start("build", u.tables.build)
	}
	u.start("attach", func() { u.runtimes.attach(u.stop) })
	u.start("serve", func() { u.serve(requests) })
	u.done.Go(func() {
		<-u.stop
		requests.Close()
		u.photographs.reader.Close()
	})
	u.done.Go(u.photographs.follow)
	return nil
}

// start runs a worker of the unwinder in a goroutine; u.done waits for it.
func (u *Unwinder) start(name string, work func()) {
	u.done.Go(func() {
		defer u.worker(name)()
		work()
	})
}

// worker reports to Options.OnWorker that a worker starts. The caller calls done when it
// ends.
func (u *Unwinder) worker(name string) (done func()) {
	if u.options.OnWorker == nil {
		return func() {}
	}
	return u.options.OnWorker(name)
}

// Track scans a process at once, so that its first sample finds everything.
func (u *Unwinder) Track(pid int) error {
	defer u.worker("build")()
	if err := u.tracker.scan(pid); err != nil {
		return err
	}
	all := u.tracker.executables(pid)
	if u.tables.queue.young.Load() {
		u.tables.order(all) // in its turn: see Limit
	} else {
		for _, e := range all {
			u.tables.load(e)
		}
	}
	u.runtimes.await(pid)
	return nil
}

// Scan reads all processes that are wanted and not known yet: more may be wanted
// than were at the start.
func (u *Unwinder) Scan() error { return u.tracker.scanAll() }

// serve answers the walks that found something missing.
func (u *Unwinder) serve(requests *ringbuf.Reader) {
	var record ringbuf.Record
	scanned := map[int]scanning{}
	for {
		if err := requests.ReadInto(&record); err != nil {
			if !errors.Is(err, ringbuf.ErrClosed) {
				u.options.Log.Error("stop serving walks", "error", err)
			}
			return
		}
		r, ok := parseRequest(record.RawSample)
		if !ok {
			continue
		}
		if len(scanned) > 4096 {
			clear(scanned)
		}
		switch pid := int(r.Tgid); {
		case r.Executable == 0:
			u.tracker.answer(pid, r.Address, scanned)
		case u.tables.answer(r.Executable, uint32(r.Address)):
			u.tracker.hint(pid, r.Sp)
		}
	}
}

func parseRequest(raw []byte) (r kernelRequest, ok bool) {
	if len(raw) < 24 {
		return r, false
	}
	r.Tgid, r.Executable, r.Address, r.Sp = le.Uint32(raw), le.Uint32(raw[4:]), le.Uint64(raw[8:]), le.Uint64(raw[16:])
	return r, true
}

// Runtime returns what is known of a language's runtime in a process.
func (u *Unwinder) Runtime(pid int, language Language) (lang.Walked, error) {
	return u.runtimes.find(pid, language)
}

// Stats returns what is loaded now and what failed so far.
func (u *Unwinder) Stats() Stats {
	s := u.tables.count()
	s.RowsMax = u.options.Rows
	u.runtimes.mu.Lock()
	s.ProcessErrors = u.runtimes.errors
	u.runtimes.mu.Unlock()
	u.tracker.mu.Lock()
	defer u.tracker.mu.Unlock()
	of := u.tracker.stats
	s.Processes, s.Mappings = len(u.tracker.processes), u.tracker.layouts.free.Used
	s.ProcessesEvicted, s.EventsLost = of.ProcessesEvicted, of.EventsLost
	s.NoRoom += of.NoRoom
	s.ProcessErrors += of.ProcessErrors
	return s
}

// Close stops tracking and releases the maps.
func (u *Unwinder) Close() error {
	select {
	case <-u.stop:
	default:
		close(u.stop)
	}
	u.tables.end()
	if u.tracker.watcher != nil {
		u.tracker.watcher.Interrupt()
	}
	if u.runtimes != nil {
		u.runtimes.forgetAll()
	}
	u.done.Wait()
	if u.tables.rows != nil {
		u.tables.rows.Close()
	}
	var errs []error
	if u.execs != nil {
		errs = append(errs, u.execs.Close())
	}
	if u.tracker.watcher != nil {
		errs = append(errs, u.tracker.watcher.Close())
	}
	errs = append(errs, u.memory.close(), u.maps.close())
	if u.runtimes != nil {
		errs = append(errs, u.runtimes.close())
	}
	u.tables.executables.close()
	return errors.Join(errs...)
}

func monotonic() uint64 { return bpf.Clock(unix.CLOCK_MONOTONIC) }

func isNotExist(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }
