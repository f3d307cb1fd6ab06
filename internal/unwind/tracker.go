package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
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
)

// calm is the usual least time between two reads of process events, unless the unwinder
// is eager. Each read wakes two threads: without this pause, 200 times a second on a
// machine that compiles. Meanwhile, walks find new mappings in the kernel.
const calm = 25 * time.Millisecond

// process is what is mapped where in one process, or in several: a fork shares
// its parent's layout until either changes.
type process struct {
	layout  *layout
	changed uint64 // CLOCK_MONOTONIC of the last exec or mmap; 0: none was seen
	known   uint64 // all that happened up to here is in the layout
	scanned uint64 // when it was last read from /proc; older events that arrive later are already in the layout
	dirty   bool   // layout not published yet
}

// tracker follows processes and what they map, and publishes it to walks.
type tracker struct {
	options  Options
	tables   *tables
	runtimes *runtimes
	watcher  *lifecycle.Watcher
	kernel   *ebpf.Map // where walks find processes
	threads  func(lifecycle.Event)
	usual    time.Duration // least time between two reads of process events
	pause    atomic.Int64  // the same in ns, if it is to be longer

	mu          sync.Mutex // guards all below; see Unwinder for the order of locks
	processes   map[int]*process
	layouts     layouts
	unpublished map[int]*process // whose mappings wait for room
	appeared    []int            // processes first read since the last sweep: their exit event may already have passed
	stats       Stats            // of what it does
}

// scanAll reads all processes that are wanted and not known yet.
func (t *tracker) scanAll() error {
	pids, err := t.options.Source.PIDs()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, pid := range pids {
		if t.executables(pid) != nil || !t.options.Wanted(pid) {
			continue
		}
		if err := t.scan(pid); err != nil {
			t.options.Log.Debug("scan process", "pid", pid, "error", err)
			continue
		}
		if t.options.Eager {
			for _, e := range t.executables(pid) {
				t.tables.load(e)
			}
		}
	}
	return nil
}

// executables returns those that a process maps, in the order of their addresses; nil
// where it is not known.
func (t *tracker) executables(pid int) []*executable {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.processes[pid]
	if p == nil {
		return nil
	}
	return p.layout.executables()
}

// scan reads a process's mappings anew from /proc.
func (t *tracker) scan(pid int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rescan(pid)
}

// maxScans bounds how often rescan starts over because the process changed meanwhile.
const maxScans = 3

// rescan reads a process's mappings anew from /proc. It drops the lock while it does:
// reading waits for whoever holds the process's mmap lock, and opening a file may sleep.
func (t *tracker) rescan(pid int) error {
	for tries := 1; ; tries++ {
		before, now := t.processes[pid], monotonic()
		l, err := t.read(pid)
		if err != nil {
			return err
		}
		p := t.processes[pid]
		if changed := p != before || p != nil && p.changed > now; changed && tries < maxScans {
			t.layouts.release(l)
			continue
		}
		if p == nil {
			p = &process{} // which did not change: it was there before us, or walks know when it began
			t.processes[pid] = p
			t.appeared = append(t.appeared, pid)
		} else {
			p.changed = max(p.changed, now)
			t.layouts.release(p.layout)
		}
		p.layout, p.known, p.scanned = l, now, now
		t.publish(pid, p)
		return nil
	}
}

// read makes a layout of a process's mappings. It drops the lock while it reads.
func (t *tracker) read(pid int) (*layout, error) {
	t.mu.Unlock()
	defer t.mu.Lock()
	mappings, err := t.options.Source.Mappings(pid)
	if err != nil {
		return nil, err
	}
	l := &layout{shared: 1, stale: true, areas: make([]area, 0, len(mappings))}
	for _, m := range mappings {
		l.areas = append(l.areas, area{m.Start, m.End, m.Offset, t.tables.acquire(pid, m), isShared(m)})
	}
	slices.SortFunc(l.areas, func(a, b area) int { return cmp.Compare(a.start, b.start) })
	return l, nil
}

// forget drops a process that is gone.
func (t *tracker) forget(pid int) {
	p := t.processes[pid]
	if p == nil {
		return
	}
	delete(t.processes, pid)
	delete(t.unpublished, pid)
	t.runtimes.forget(pid)
	if err := t.kernel.Delete(uint32(pid)); err != nil && !isNotExist(err) {
		t.options.Log.Debug("forget process", "pid", pid, "error", err)
	}
	t.layouts.release(p.layout)
}

// publish copies a layout to fresh cells and points the process there.
func (t *tracker) publish(pid int, p *process) {
	p.dirty = false
	l := p.layout
	if l.stale {
		old := l.published
		if !t.layouts.publish(l) {
			t.awaitMappings(pid, p)
			return
		}
		t.layouts.retire(old)
		if l.shared > 1 {
			t.pointSharers(pid, l) // before the old cells are used again
		}
	}
	t.point(pid, p)
	t.runtimes.want(pid, l.runs())
}

// pointSharers has the other processes of a layout look at its new cells.
func (t *tracker) pointSharers(but int, l *layout) {
	for pid, p := range t.processes {
		if p.layout == l && pid != but {
			t.point(pid, p)
		}
	}
}

// point tells walks where a process's mappings are.
func (t *tracker) point(pid int, p *process) {
	l := p.layout
	value := kernelProcess{First: l.published.First, Count: l.published.Count, Changed: p.changed, Known: p.known, Languages: t.runtimes.languages(pid), Used: tick()}
	err := t.kernel.Update(uint32(pid), &value, ebpf.UpdateAny)
	if errors.Is(err, unix.E2BIG) && t.evictProcesses(pid, nil) {
		err = t.kernel.Update(uint32(pid), &value, ebpf.UpdateAny)
	}
	if err != nil {
		t.stats.ProcessErrors++
		t.stats.NoRoom++
		t.options.Log.Warn("no room for a process", "pid", pid, "error", err)
	}
}

// found tells walks of a runtime that was found in a process.
func (t *tracker) found(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.processes[pid]; p != nil {
		t.point(pid, p)
	}
}

// learned publishes the processes again that map an executable, now that it is known what
// its file holds.
func (t *tracker) learned(e *executable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.processes {
		for _, a := range p.layout.areas {
			if a.executable == e {
				p.dirty, p.layout.stale = true, true
			}
		}
	}
	for pid, p := range t.processes { // only now: a layout may have several
		if p.dirty {
			t.publish(pid, p)
		}
	}
}

// locate finds where a process maps a file that holds a runtime.
func (t *tracker) locate(pid int, runs uint32) (lang.Mapped, bool) {
	t.mu.Lock()
	var areas []area
	if p := t.processes[pid]; p != nil {
		areas = slices.Clone(p.layout.areas)
	}
	t.mu.Unlock()
	for _, a := range areas {
		if a.executable == nil || a.executable.runs.Load()&runs == 0 {
			continue
		}
		if m, address, ok := t.tables.mapped(a.executable, a.offset); ok {
			m.PID, m.Bias = pid, a.start-address
			return m, true
		}
	}
	return lang.Mapped{}, false
}

// outdates reports whether an event changes nothing: the process is not tracked (if its
// fork was lost, a walk will ask for it), or was read from /proc after the event.
func (p *process) outdates(e lifecycle.Event) bool { return p == nil || e.Time <= p.scanned }

// replace starts a process afresh after an exec; p is nil if it was not tracked.
func (t *tracker) replace(e lifecycle.Event, p *process) {
	next := &process{layout: &layout{shared: 1}, changed: e.Time, dirty: true}
	if p != nil {
		t.runtimes.forget(e.PID)
		if p.outdates(e) { // the layout is already that of the new program
			next.layout, next.changed, next.known, next.scanned = p.layout, p.changed, p.known, p.scanned
		} else {
			t.layouts.release(p.layout)
		}
	}
	t.processes[e.PID] = next
}

// apply brings one event into the tables. Changed processes are published later.
func (t *tracker) apply(e lifecycle.Event) {
	switch e.Kind {
	case lifecycle.Fork:
		if parent := t.processes[e.Parent]; parent != nil && t.processes[e.PID] == nil && t.options.Wanted(e.PID) {
			parent.layout.shared++
			child := &process{layout: parent.layout, changed: parent.changed, dirty: true}
			t.processes[e.PID] = child
			t.runtimes.inherit(e.PID, e.Parent)
		}
	case lifecycle.Exec:
		if p := t.processes[e.PID]; p != nil || t.options.Wanted(e.PID) {
			t.replace(e, p)
		}
	case lifecycle.Map:
		if t.processes[e.PID].outdates(e) {
			return
		}
		t.mu.Unlock()
		x := t.tables.acquire(e.PID, e.Map)
		defer t.tables.use(x, -1) // the layout has its own use
		t.mu.Lock()
		p := t.processes[e.PID]
		if p.outdates(e) {
			return
		}
		t.layouts.insert(t.layouts.own(p), area{e.Map.Start, e.Map.End, e.Map.Offset, x, isShared(e.Map)})
		p.changed, p.dirty = max(p.changed, e.Time), true
	case lifecycle.Exit:
		if gone(e.PID) {
			t.forget(e.PID)
		}
	}
}

// follow applies what the kernel reports of processes.
func (t *tracker) follow(stop <-chan struct{}) {
	var events []lifecycle.Event
	exited := map[int]bool{}
	swept, read := time.Now(), time.Time{}
	for {
		if err := t.watcher.Wait(sweepEvery); err != nil {
			t.options.Log.Error("stop following processes", "error", err)
			return
		}
		if pause := max(time.Duration(t.pause.Load()), t.usual); time.Since(read) < pause {
			t.watcher.Pause(pause - time.Since(read))
		}
		select {
		case <-stop:
			return
		default:
		}
		known := monotonic()
		events, read = t.watcher.Read(events[:0]), time.Now()
		t.applyAll(events, known, exited)
		if time.Since(swept) >= sweepEvery {
			t.sweep(exited)
			swept = time.Now()
		}
	}
}

// applyAll brings in all that happened up to a moment, then publishes: what a
// process was between two of the events is never seen.
func (t *tracker) applyAll(events []lifecycle.Event, known uint64, exited map[int]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := map[int]bool{}
	for _, e := range events {
		switch e.Kind {
		case lifecycle.Lost: // exits may be among them
			t.stats.EventsLost += max(e.Lost, 1)
			for pid := range t.processes {
				exited[pid] = true
			}
		case lifecycle.Exit:
			exited[e.PID] = true
		case lifecycle.Fork, lifecycle.Exec, lifecycle.Map:
			changed[e.PID] = true
		}
		if t.threads != nil {
			t.threads(e) // first: it may make a child wanted
		}
		t.apply(e)
	}
	for pid := range changed {
		if p := t.processes[pid]; p != nil && p.dirty {
			p.known = max(p.known, known) // it may have been read meanwhile
			t.publish(pid, p)
		}
	}
	for pid := range changed {
		if p := t.processes[pid]; p != nil {
			t.tables.order(p.layout.executables())
		}
	}
}

// sweep forgets processes that are gone and frees what nobody looks at.
func (t *tracker) sweep(exited map[int]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pid := range t.appeared {
		exited[pid] = true
	}
	t.appeared = t.appeared[:0]
	for pid := range exited {
		if !gone(pid) {
			continue
		}
		t.forget(pid)
		delete(exited, pid)
	}
	t.layouts.reclaim()
	t.publishWaiting()
	t.tables.sweep()
	t.runtimes.sweep()
}

// gone tells whether no thread of the process is left.
func gone(pid int) bool {
	return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// scanning is when a process was read on request, and how long not to again:
// longer and longer where that does not find what was asked for.
type scanning struct {
	at    time.Time
	pause time.Duration
}

// answer answers a walk that found nothing known at an address of a process.
func (t *tracker) answer(pid int, address uint64, scanned map[int]scanning) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := scanned[pid]
	if t.processes[pid] == nil {
		last.pause = min(last.pause, rescanAfter) // another one of that number
	}
	if time.Since(last.at) < last.pause || !t.options.Wanted(pid) {
		return
	}
	scanned[pid] = scanning{time.Now(), rescanAfter}
	known := t.processes[pid] != nil
	if err := t.rescan(pid); err != nil {
		t.options.Log.Debug("scan process on request", "pid", pid, "error", err)
		return
	}
	p := t.processes[pid]
	if !p.layout.maps(address) {
		scanned[pid] = scanning{time.Now(), min(4*max(last.pause, rescanAfter), maxRescan)}
	}
	if known || t.options.Eager {
		t.tables.order(p.layout.executables())
	}
}
