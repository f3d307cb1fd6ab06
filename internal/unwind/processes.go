package unwind

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
)

// process is what is mapped where in one process, or in several: a fork shares
// its parent's layout until either changes.
type process struct {
	layout  *layout
	changed uint64 // CLOCK_MONOTONIC of the last exec or mmap; 0: none was seen
	known   uint64 // all that happened up to here is in the layout
	scanned uint64 // when it was last read from /proc; older events that arrive later are already in the layout
	dirty   bool   // layout not published yet

	languages uint32 // Language.runs of those in runtimes
	runtimes  map[Language]lang.Walked
	hopeless  uint32             // Language.runs of those that can never be read
	attaching bool               // runtimes are being read
	unread    map[Language]error // why they could not be, at last
}

// layout is a sorted list of mappings and its copy in the kernel.
type layout struct {
	areas     []area
	shared    int // processes that use it
	published paging.Extent
	stale     bool // what is published is not what areas say
}

// area is a mapping of code.
type area struct {
	start, end, offset uint64
	executable         *executable // nil: no file
	shared             bool        // see isShared
}

// own gives p a layout of its own to change.
func (u *Unwinder) own(p *process) *layout {
	if p.layout.shared == 1 {
		return p.layout
	}
	p.layout.shared--
	p.layout = &layout{areas: slices.Clone(p.layout.areas), shared: 1, stale: true}
	for _, a := range p.layout.areas {
		use(a.executable, 1)
	}
	return p.layout
}

func use(e *executable, n int) {
	if e == nil {
		return
	}
	if e.uses += n; e.uses == 0 {
		e.idle = time.Now()
	}
}

// insert adds a mapping; what it overlaps was unmapped or replaced.
func (u *Unwinder) insert(l *layout, a area) {
	l.stale = true
	var cut []area
	l.areas = slices.DeleteFunc(l.areas, func(old area) bool {
		if old.end <= a.start || old.start >= a.end {
			return false
		}
		if old.start < a.start {
			left := old
			left.end = a.start
			cut = append(cut, left)
		}
		if old.end > a.end {
			right := old
			right.start, right.offset = a.end, old.offset+(a.end-old.start)
			cut = append(cut, right)
		}
		use(old.executable, -1)
		return true
	})
	for _, c := range append(cut, a) {
		i, _ := slices.BinarySearchFunc(l.areas, c, func(x, y area) int { return cmp.Compare(x.start, y.start) })
		l.areas = slices.Insert(l.areas, i, c)
		use(c.executable, 1)
	}
}

// maxScans bounds how often scan starts over because the process changed meanwhile.
const maxScans = 3

// scan reads a process's mappings anew from /proc. It drops the lock while it does:
// reading waits for whoever holds the process's mmap lock, and opening a file may sleep.
func (u *Unwinder) scan(pid int) error {
	for tries := 1; ; tries++ {
		before, now := u.processes[pid], monotonic()
		l, err := u.read(pid)
		if err != nil {
			return err
		}
		p := u.processes[pid]
		if changed := p != before || p != nil && p.changed > now; changed && tries < maxScans {
			u.release(l)
			continue
		}
		if p == nil {
			p = &process{} // which did not change: it was there before us, or walks know when it began
			u.processes[pid] = p
			u.appeared = append(u.appeared, pid)
		} else {
			p.changed = max(p.changed, now)
			u.release(p.layout)
		}
		p.layout, p.known, p.scanned = l, now, now
		u.publishProcess(pid, p)
		return nil
	}
}

// read makes a layout of a process's mappings. It drops the lock while it reads.
func (u *Unwinder) read(pid int) (*layout, error) {
	u.mu.Unlock()
	mappings, err := u.options.Source.Mappings(pid)
	u.mu.Lock()
	if err != nil {
		return nil, err
	}
	l := &layout{shared: 1, stale: true, areas: make([]area, 0, len(mappings))}
	for _, m := range mappings {
		e := u.executableOf(pid, m)
		use(e, 1)
		l.areas = append(l.areas, area{m.Start, m.End, m.Offset, e, isShared(m)})
	}
	slices.SortFunc(l.areas, func(a, b area) int { return cmp.Compare(a.start, b.start) })
	return l, nil
}

// release drops one user of a layout.
func (u *Unwinder) release(l *layout) {
	if l == nil {
		return
	}
	if l.shared--; l.shared > 0 {
		return
	}
	for _, a := range l.areas {
		use(a.executable, -1)
	}
	u.retire(u.mappings, l.published)
	l.areas, l.published = nil, paging.Extent{}
}

// forget drops a process that is gone.
func (u *Unwinder) forget(pid int) {
	p := u.processes[pid]
	if p == nil {
		return
	}
	delete(u.processes, pid)
	delete(u.unattached, pid)
	delete(u.unpublished, pid)
	u.dropParameters(pid, p)
	if err := u.maps.Processes.Delete(uint32(pid)); err != nil && !isNotExist(err) {
		u.options.Log.Debug("forget process", "pid", pid, "error", err)
	}
	u.release(p.layout)
}

// publishProcess copies a layout to fresh cells and points the process there.
func (u *Unwinder) publishProcess(pid int, p *process) {
	p.dirty = false
	l := p.layout
	if l.stale {
		old := l.published
		run, ok := u.mappings.Take(uint32(len(l.areas)))
		if !ok {
			u.awaitMappings(pid, p)
			return
		}
		u.fill(run, l)
		l.published, l.stale = run, false
		u.retire(u.mappings, old)
		if l.shared > 1 {
			u.pointSharers(pid, l) // before the old cells are used again
		}
	}
	u.point(pid, p)
	u.wantRuntimes(pid, p)
}

// pointSharers has the other processes of a layout look at its new cells.
func (u *Unwinder) pointSharers(but int, l *layout) {
	for pid, p := range u.processes {
		if p.layout == l && pid != but {
			u.point(pid, p)
		}
	}
}

// point tells walks where a process's mappings are.
func (u *Unwinder) point(pid int, p *process) {
	l := p.layout
	value := kernelProcess{First: l.published.First, Count: l.published.Count, Changed: p.changed, Known: p.known, Languages: p.languages, Used: tick()}
	err := u.maps.Processes.Update(uint32(pid), &value, ebpf.UpdateAny)
	if errors.Is(err, unix.E2BIG) && u.evictProcesses(pid, nil) {
		err = u.maps.Processes.Update(uint32(pid), &value, ebpf.UpdateAny)
	}
	if err != nil {
		u.stats.ProcessErrors++
		u.stats.NoRoom++
		u.options.Log.Warn("no room for a process", "pid", pid, "error", err)
	}
}

func (u *Unwinder) fill(run paging.Extent, l *layout) {
	framePointers := uint32(0)
	for _, a := range l.areas {
		if a.executable != nil && a.executable.anonFP {
			framePointers = mappingFramePointers
		}
	}
	cells := u.memory.mappings.Value.M[run.First : run.First+run.Count]
	for i, a := range l.areas {
		cells[i] = kernelMapping{Start: a.start, End: a.end, Offset: a.offset}
		if a.executable != nil {
			cells[i].Executable = a.executable.id
		} else {
			cells[i].Flags = framePointers
		}
		if a.shared {
			cells[i].Flags |= mappingShared
		}
	}
}

// outdates reports whether an event changes nothing: the process is not tracked (if its
// fork was lost, a walk will ask for it), or was read from /proc after the event.
func (p *process) outdates(e lifecycle.Event) bool { return p == nil || e.Time <= p.scanned }

// replace starts a process afresh after an exec; p is nil if it was not tracked.
func (u *Unwinder) replace(e lifecycle.Event, p *process) {
	next := &process{layout: &layout{shared: 1}, changed: e.Time, dirty: true}
	if p != nil {
		u.dropParameters(e.PID, p)
		if p.outdates(e) { // the layout is already that of the new program
			next.layout, next.changed, next.known, next.scanned = p.layout, p.changed, p.known, p.scanned
		} else {
			u.release(p.layout)
		}
	}
	u.processes[e.PID] = next
}

// apply brings one event into the tables. Changed processes are published later.
func (u *Unwinder) apply(e lifecycle.Event) {
	switch e.Kind {
	case lifecycle.Fork:
		if parent := u.processes[e.Parent]; parent != nil && u.processes[e.PID] == nil && u.options.Wanted(e.PID) {
			parent.layout.shared++
			child := &process{layout: parent.layout, changed: parent.changed, dirty: true}
			u.processes[e.PID] = child
			u.inherit(e.PID, child, parent)
		}
	case lifecycle.Exec:
		if p := u.processes[e.PID]; p != nil || u.options.Wanted(e.PID) {
			u.replace(e, p)
		}
	case lifecycle.Map:
		if u.processes[e.PID].outdates(e) {
			return
		}
		x := u.executableOf(e.PID, e.Map) // drops the lock
		p := u.processes[e.PID]
		if p.outdates(e) {
			return
		}
		u.insert(u.own(p), area{e.Map.Start, e.Map.End, e.Map.Offset, x, isShared(e.Map)})
		p.changed, p.dirty = max(p.changed, e.Time), true
	case lifecycle.Exit:
		if u.gone(e.PID) {
			u.forget(e.PID)
		}
	}
}
