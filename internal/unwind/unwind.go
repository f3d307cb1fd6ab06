// Package unwind owns the tables by which BPF programs walk native stacks.
//
//	/proc scan, mmap records -> mappings of each process
//	                         -> executables, one per file, shared by all that map it
//	request from a walk      -> package cfi builds an executable's table (tables.go)
//	                         -> package paging loads those of its rows that walks use
//
// The tables live in maps that samplers are handed (Maps); programs read them
// without locks. Three rules keep a walk on another CPU safe: a table is
// complete before it is published by one store, an array's cells are given back
// only after Grace, and everything a program reads from a table is bounded
// before it is used.
package unwind

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/diskcache"
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

// Frame encoding of bpf/include/unwind.h.
const (
	frameOffsetBits = 40
	frameAnonymous  = 1 << 63
	frameUnmapped   = 1<<63 | 1<<61
	frameKernel     = 7 << 61
	frameLanguage   = 12 << 60
	languageKind    = 56
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

// Unwinder keeps the tables true to what runs.
type Unwinder struct {
	options Options
	maps    tables
	memory  memory
	rows    *paging.Cache
	watcher *lifecycle.Watcher
	execs   link.Link
	done    sync.WaitGroup
	stop    chan struct{}
	work    *sync.Cond // on mu: tells the builders that wanted or closed changed

	attachments chan struct{} // tells attach that unattached has more
	parameters  map[Language]*ebpf.Map
	namers      namers
	kept        keptTables
	pace        pace

	mu          sync.Mutex           // guards all below
	wanted      map[*executable]bool // to be loaded
	unattached  map[int]*process     // whose runtimes are to be read, and attach has not taken up
	madeRoom    map[Language]int     // processes whose runtimes were forgotten since the last sweep
	closed      bool
	processes   map[int]*process
	executables executables
	mappings    *paging.Extents
	claims      claims
	retired     []retired
	unpublished map[int]*process // whose mappings wait for room
	appeared    []int            // processes first read since the last sweep: their exit event may already have passed
	stats       Stats
	threads     func(lifecycle.Event)
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

// tables are the maps of unwind.h, and the program that notes each exec.
type tables struct {
	OnExec      *ebpf.Program `ebpf:"on_exec"`
	Mappings    *ebpf.Map     `ebpf:"mappings"`
	Executables *ebpf.Map     `ebpf:"executables"`
	Rows        *ebpf.Map     `ebpf:"rows"`
	Cells       *ebpf.Map     `ebpf:"cells"`
	Processes   *ebpf.Map     `ebpf:"processes"`
	Requests    *ebpf.Map     `ebpf:"requests"`
	Asked       *ebpf.Map     `ebpf:"asked"`
	Files       *ebpf.Map     `ebpf:"files"`
	Execs       *ebpf.Map     `ebpf:"execs"`

	Photographs  *ebpf.Map `ebpf:"photographs"`
	Photographed *ebpf.Map `ebpf:"photographed"`
}

func (m *tables) close() (err error) {
	err = m.OnExec.Close()
	for _, one := range []*ebpf.Map{m.Mappings, m.Executables, m.Rows, m.Cells, m.Processes, m.Requests, m.Asked, m.Files, m.Execs,
		m.Photographs, m.Photographed} {
		err = errors.Join(err, one.Close())
	}
	return err
}

// memory is the kernel's tables, mapped.
type memory struct {
	mappings    *bpf.Mapped[kernelMappings]
	executables *bpf.Mapped[kernelExecutables]
	rows        *bpf.MappedSlice[uint64]
	cells       *bpf.MappedSlice[uint64]
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
	u := &Unwinder{options: o, processes: map[int]*process{}, stop: make(chan struct{}), wanted: map[*executable]bool{}, unattached: map[int]*process{},
		attachments: make(chan struct{}, 1), parameters: map[Language]*ebpf.Map{}, namers: newNamers(), madeRoom: map[Language]int{}, unpublished: map[int]*process{}}
	u.work = sync.NewCond(&u.mu)
	if u.pace.usual = calm; o.Eager {
		u.pace.usual = batch
	}
	var err error
	if u.kept, err = newKeptTables(o.Tables); err != nil {
		return nil, err
	}
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read embedded BPF object: %w", err)
	}
	u.stats.RowsMax = roomFor(o.Rows)
	if err := u.fit(spec); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&u.maps, nil); err != nil {
		return nil, bpf.Explain("create the unwinder's maps", err)
	}
	if err := u.makeParameters(spec); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	if err := u.memory.open(&u.maps); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	if u.watcher, err = lifecycle.Open(o.CPUs); err != nil {
		return nil, errors.Join(fmt.Errorf("watch processes: %w", err), u.Close())
	}
	u.mappings = paging.NewExtents(0, uint32(len(u.memory.mappings.Value.M)-areaCells))
	u.executables.init(len(u.memory.executables.Value.E))
	u.rows = paging.New(paging.Options{Rows: u.memory.rows.Values, Cells: u.memory.cells.Values, Packed: packedPart * 8 * int64(u.stats.RowsMax), Grace: Grace,
		Now: func() time.Duration { return time.Duration(monotonic()) }})
	return u, nil
}

// roomFor rounds a wanted number of rows to one that can be had.
func roomFor(rows uint32) uint32 {
	if rows == 0 {
		return DefaultRows
	}
	return 1 << bits.Len32(min(max(rows, minRows), MaxRows)-1)
}

// fit gives the rows map of a program its size.
func (u *Unwinder) fit(spec *ebpf.CollectionSpec) error {
	rows := spec.Maps["rows"]
	rows.ValueSize, rows.Value = 8*u.stats.RowsMax, nil
	if err := spec.Variables["rows_mask"].Set(u.stats.RowsMax - 1); err != nil {
		return fmt.Errorf("size the table of rows: %w", err)
	}
	return nil
}

func (m *memory) open(maps *tables) (err error) {
	if m.mappings, err = bpf.Map[kernelMappings](maps.Mappings); err != nil {
		return err
	}
	if m.executables, err = bpf.Map[kernelExecutables](maps.Executables); err != nil {
		return err
	}
	if m.rows, err = bpf.MapSlice[uint64](maps.Rows); err != nil {
		return err
	}
	m.cells, err = bpf.MapSlice[uint64](maps.Cells)
	return err
}

// Lend makes a program that includes unwind.h use this unwinder's maps: load it
// with the options given.
func (u *Unwinder) Lend(spec *ebpf.CollectionSpec) (*ebpf.CollectionOptions, error) {
	if err := u.fit(spec); err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{
		"mappings": u.maps.Mappings, "executables": u.maps.Executables, "rows": u.maps.Rows, "cells": u.maps.Cells,
		"processes": u.maps.Processes, "requests": u.maps.Requests, "asked": u.maps.Asked, "files": u.maps.Files, "execs": u.maps.Execs,
		"photographs": u.maps.Photographs, "photographed": u.maps.Photographed,
	}
	for _, r := range runtimes {
		shared[r.parameters] = u.parameters[r.language]
	}
	maps.DeleteFunc(shared, func(name string, _ *ebpf.Map) bool { return spec.Maps[name] == nil }) // it walks native code only
	return &ebpf.CollectionOptions{MapReplacements: shared}, nil
}

// OnTask has f called, from the tracking goroutine, for each fork, exec, exit
// and new thread of any process. Set it before Start.
func (u *Unwinder) OnTask(f func(lifecycle.Event)) { u.threads = f }

// Stats tells what is loaded now and what failed so far.
func (u *Unwinder) Stats() Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.stats
	s.Processes = len(u.processes)
	s.Executables, s.Loaded = u.executables.count()
	s.Mappings = u.mappings.Used
	if u.rows != nil {
		r := u.rows.Stats()
		s.Rows, s.PackedBytes = uint32(r.Slots*paging.SlotWords), r.PackedBytes
		s.Chunks, s.Evicted, s.EvictedNeeded = r.Loads, r.Evictions, r.EvictionsNeeded
	}
	return s
}

// Close stops tracking and releases the maps.
func (u *Unwinder) Close() error {
	select {
	case <-u.stop:
	default:
		close(u.stop)
	}
	u.mu.Lock()
	u.closed = true
	u.work.Broadcast()
	u.mu.Unlock()
	if u.watcher != nil {
		u.watcher.Interrupt()
	}
	u.done.Wait()
	if u.rows != nil {
		u.rows.Close()
	}
	var errs []error
	if u.execs != nil {
		errs = append(errs, u.execs.Close())
	}
	if u.watcher != nil {
		errs = append(errs, u.watcher.Close())
	}
	errs = append(errs, u.memory.mappings.Close(), u.memory.executables.Close(), u.memory.rows.Close(),
		u.memory.cells.Close(), u.maps.close())
	for _, m := range u.parameters {
		errs = append(errs, m.Close())
	}
	u.executables.close()
	return errors.Join(errs...)
}

// retired is an extent that programs may still look at.
type retired struct {
	from *paging.Extents
	run  paging.Extent
	at   time.Time
}

// retire gives a run back once no program can be looking at it.
func (u *Unwinder) retire(from *paging.Extents, run paging.Extent) {
	if run.Count > 0 {
		u.retired = append(u.retired, retired{from, run, time.Now()})
	}
}

// reclaim frees the runs whose grace has passed.
func (u *Unwinder) reclaim() {
	n := 0
	for _, r := range u.retired {
		if time.Since(r.at) < Grace {
			break
		}
		r.from.Put(r.run)
		n++
	}
	u.retired = u.retired[n:]
}
