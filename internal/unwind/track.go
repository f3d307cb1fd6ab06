package unwind

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
)

const (
	// batch is the least time between two readings of events: the first of a
	// storm is read at once, the rest wakes us 200 times a second.
	batch = 5 * time.Millisecond
	// sweepEvery bounds how long a dead process is kept.
	sweepEvery = time.Second
	// rescanAfter limits how often a process with unknown addresses is read again.
	rescanAfter = 10 * time.Millisecond
	maxRescan   = 5 * time.Second
	// builders is how many tables are built at a time.
	builders = 2
	// maxOrders bounds the tables that wait to be built without being asked for.
	maxOrders = 1024
)

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
	u.start("follow", u.follow)
	for range builders {
		u.start("build", u.build)
	}
	u.start("attach", u.attach)
	u.start("serve", func() { u.serve(requests) })
	u.done.Go(func() {
		<-u.stop
		requests.Close()
		u.photographs.reader.Close()
	})
	u.done.Go(u.photographs.follow)
	return nil
}

// Track scans a process at once, so that its first sample finds everything.
func (u *Unwinder) Track(pid int) error {
	defer u.worker("build")()
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.scan(pid); err != nil {
		return err
	}
	p := u.processes[pid]
	if u.pace.young.Load() {
		u.order(p) // in its turn: see Limit
	} else {
		u.loadAll(p)
	}
	u.awaitRuntimes(p)
	return nil
}

// Scan reads all processes that are wanted and not known yet: more may be wanted
// than were at the start.
func (u *Unwinder) Scan() error {
	pids, err := u.options.Source.PIDs()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pid := range pids {
		if u.processes[pid] != nil || !u.options.Wanted(pid) {
			continue
		}
		if err := u.scan(pid); err != nil {
			u.options.Log.Debug("scan process", "pid", pid, "error", err)
			continue
		}
		if u.options.Eager {
			u.loadAll(u.processes[pid])
		}
	}
	return nil
}

// follow applies what the kernel reports of processes.
func (u *Unwinder) follow() {
	var events []lifecycle.Event
	exited := map[int]bool{}
	swept, read := time.Now(), time.Time{}
	for {
		if err := u.watcher.Wait(sweepEvery); err != nil {
			u.options.Log.Error("stop following processes", "error", err)
			return
		}
		if pause := u.pace.between(); time.Since(read) < pause {
			u.watcher.Pause(pause - time.Since(read))
		}
		select {
		case <-u.stop:
			return
		default:
		}
		known := monotonic()
		events, read = u.watcher.Read(events[:0]), time.Now()
		u.applyAll(events, known, exited)
		if time.Since(swept) >= sweepEvery {
			u.sweep(exited)
			swept = time.Now()
		}
	}
}

// applyAll brings in all that happened up to a moment, then publishes: what a
// process was between two of the events is never seen.
func (u *Unwinder) applyAll(events []lifecycle.Event, known uint64, exited map[int]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	changed := map[int]bool{}
	for _, e := range events {
		switch e.Kind {
		case lifecycle.Lost: // exits may be among them
			u.stats.EventsLost += max(e.Lost, 1)
			for pid := range u.processes {
				exited[pid] = true
			}
		case lifecycle.Exit:
			exited[e.PID] = true
		case lifecycle.Fork, lifecycle.Exec, lifecycle.Map:
			changed[e.PID] = true
		}
		if u.threads != nil {
			u.threads(e) // first: it may make a child wanted
		}
		u.apply(e)
	}
	for pid := range changed {
		if p := u.processes[pid]; p != nil && p.dirty {
			p.known = max(p.known, known) // it may have been read meanwhile
			u.publishProcess(pid, p)
		}
	}
	for pid := range changed {
		u.order(u.processes[pid])
	}
}

// order has the builder load a process's executables. Where it has too much to
// do, walks will ask for what they need.
func (u *Unwinder) order(p *process) {
	if p == nil {
		return
	}
	for _, a := range p.layout.areas {
		if a.executable == nil || a.executable.table != nil || a.executable.failed {
			continue
		}
		if len(u.wanted) >= maxOrders {
			return
		}
		u.want(a.executable)
	}
}

// want has an executable loaded by the builders.
func (u *Unwinder) want(e *executable) {
	u.wanted[e] = true
	u.work.Signal()
}

// build loads what is wanted, apart from follow: the kernel's rings of events
// overflow in the second that the largest tables take.
func (u *Unwinder) build() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for !u.closed {
		e, wait := u.nextTable()
		if e == nil {
			u.waitForWork(wait)
			continue
		}
		delete(u.wanted, e)
		u.pace.tables.Take(onThread(func() { u.loadFor(e) }))
	}
}

// mostWanted is the executable whose rows most walks have missed so far: of what
// uses most CPU time the stacks are whole first.
func (u *Unwinder) mostWanted() (most *executable) {
	missed := uint32(0)
	for e := range u.wanted {
		n := atomic.LoadUint32(&u.memory.executables.Value.E[e.id].Wanted) + uint32(len(e.missing))
		if most == nil || n > missed {
			most, missed = e, n
		}
	}
	return most
}

// loadAll loads all executables of a process that are not loaded yet.
func (u *Unwinder) loadAll(p *process) {
	if p == nil {
		return
	}
	areas := slices.Clone(p.layout.areas) // load drops the lock, the layout may change under it
	for _, a := range areas {
		if a.executable != nil {
			u.loadFor(a.executable)
		}
	}
}

// loadFor loads an executable and, where that tells something about the
// memory of its processes, publishes them again.
func (u *Unwinder) loadFor(e *executable) {
	if e.failed {
		return
	}
	had := e.table != nil
	u.load(e)
	if had || e.table == nil || !e.anonFP && e.runs == 0 {
		return
	}
	for _, p := range u.processes {
		for _, a := range p.layout.areas {
			if a.executable == e {
				p.dirty, p.layout.stale = true, true
			}
		}
	}
	for pid, p := range u.processes { // only now: a layout may have several
		if p.dirty {
			u.publishProcess(pid, p)
		}
	}
}

// sweep forgets processes that are gone and frees what nobody looks at.
func (u *Unwinder) sweep(exited map[int]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pid := range u.appeared {
		exited[pid] = true
	}
	u.appeared = u.appeared[:0]
	for pid := range exited {
		if !u.gone(pid) {
			continue
		}
		u.forget(pid)
		delete(exited, pid)
	}
	if u.options.Tables != nil {
		u.rows.GiveUpIdle(packedIdle)
	}
	u.reclaim()
	u.publishWaiting()
	u.trim()
	u.wantRefused()
	u.wantCrowdedOut()
}

// gone tells whether no thread of the process is left.
func (u *Unwinder) gone(pid int) bool {
	return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

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
		u.answer(r, scanned)
	}
}

func parseRequest(raw []byte) (r kernelRequest, ok bool) {
	if len(raw) < 24 {
		return r, false
	}
	r.Tgid, r.Executable, r.Address, r.Sp = le.Uint32(raw), le.Uint32(raw[4:]), le.Uint64(raw[8:]), le.Uint64(raw[16:])
	return r, true
}

// scanning is when a process was read on request, and how long not to again:
// longer and longer where that does not find what was asked for.
type scanning struct {
	at    time.Time
	pause time.Duration
}

func (u *Unwinder) answer(r kernelRequest, scanned map[int]scanning) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pid := int(r.Tgid)
	if r.Executable != 0 {
		if int(r.Executable) < len(u.executables.byID) {
			if e := u.executables.byID[r.Executable]; e != nil {
				u.answerRows(e, r)
			}
		}
		return
	}
	last := scanned[pid]
	if u.processes[pid] == nil {
		last.pause = min(last.pause, rescanAfter) // another one of that number
	}
	if time.Since(last.at) < last.pause || !u.options.Wanted(pid) {
		return
	}
	scanned[pid] = scanning{time.Now(), rescanAfter}
	known := u.processes[pid] != nil
	if err := u.scan(pid); err != nil {
		u.options.Log.Debug("scan process on request", "pid", pid, "error", err)
		return
	}
	if !u.processes[pid].maps(r.Address) {
		scanned[pid] = scanning{time.Now(), min(4*max(last.pause, rescanAfter), maxRescan)}
	}
	if known || u.options.Eager {
		u.order(u.processes[pid])
	}
}

// answerRows answers a walk that found rows missing: all of an executable's, or
// those at a file offset.
func (u *Unwinder) answerRows(e *executable, r kernelRequest) {
	e.asked = true
	if e.table == nil {
		u.want(e)
		return
	}
	u.demand(e, uint32(r.Address), maxDemands)
	u.hint(r)
}

// maxDemands bounds how often a chunk is tried to be loaded for one request.
const maxDemands = 5

// demand loads the rows at a file offset, now or as soon as there is room.
func (u *Unwinder) demand(e *executable, offset uint32, tries int) {
	switch u.rows.Demand(e.table, offset) {
	case paging.Returned:
		u.want(e)
	case paging.Build:
		if e.missing == nil {
			e.missing = map[uint32]bool{}
		}
		e.missing[offset] = true
		u.want(e)
	case paging.Wait:
		if tries == 0 {
			u.rows.Refuse(e.table, offset)
			return
		}
		t := e.table
		time.AfterFunc(Grace, func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			if !u.forgotten(e) && e.table != nil {
				u.demand(e, offset, tries-1)
			} else if !u.closed {
				u.rows.Refuse(t, offset) // another executable may share it
			}
		})
	}
}

// maps tells whether a process is known to have code at an address.
func (p *process) maps(address uint64) bool {
	for _, a := range p.layout.areas {
		if address >= a.start && address < a.end {
			return true
		}
	}
	return false
}

func monotonic() uint64 { return bpf.Clock(unix.CLOCK_MONOTONIC) }

func isNotExist(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }
