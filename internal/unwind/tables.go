package unwind

import (
	"os"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
)

// tables builds the tables of the executables that processes map, and loads into the kernel
// what walks need of them.
type tables struct {
	options Options
	rows    *paging.Cache
	kept    keptTables
	stop    <-chan struct{}
	work    *sync.Cond // on mu: the queue, closed or a limit has changed

	// makeRoom has processes be forgotten, but not pid, until enough says so. learned is
	// called when an executable's table tells something about the memory of the processes
	// that map it. Both are called without the lock.
	makeRoom func(pid int, enough func() bool)
	learned  func(*executable)

	mu          sync.Mutex // guards all below; see Unwinder for the order of locks
	queue       queue
	executables executables
	closed      bool
	stats       Stats // of what it does
}

// acquire finds or registers the file behind a mapping, and counts one use of it; nil where
// the mapping has no file that may have tables. Opening a file may sleep.
func (t *tables) acquire(pid int, m lifecycle.Mapping) *executable {
	if !loads(m) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(pid, m)
	if e != nil {
		e.uses++
	}
	return e
}

// use counts more uses of an executable, or less.
func (t *tables) use(e *executable, n int) {
	if e == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.uses += n; e.uses == 0 {
		e.idle = time.Now()
	}
}

// find finds or registers a file; nil: there is no number left. It drops the lock while it
// opens the file or makes room.
func (t *tables) find(pid int, m lifecycle.Mapping) *executable {
	file := fileOf(m)
	if e := t.executables.byFile[file]; e != nil && !e.worthRetry(pid) {
		return e
	}
	t.mu.Unlock()
	handle, err := t.options.Source.Open(pid, m)
	t.mu.Lock()
	if t.executables.byFile[file] == nil {
		t.freeNumber(pid)
	}
	e := t.executables.byFile[file]
	switch {
	case e == nil:
		if e = t.executables.register(file, m.Path); e == nil {
			break
		}
		t.opened(e, pid, handle, err)
		return e
	case e.worthRetry(pid):
		e.failed, e.identified = false, false
		t.executables.entries.withdraw(e, 0)
		e.close()
		t.opened(e, pid, handle, err)
		return e
	}
	if err == nil {
		handle.Close() // no number is free, or another goroutine was faster
	}
	return e
}

// freeNumber sees to it that there is a number for a file of a process. Where there is
// none, the file that was not mapped for longest makes room, or the process that was not
// sampled for longest, and its files with it. The lock is dropped while processes are.
func (t *tables) freeNumber(pid int) {
	if len(t.executables.unused) > 0 {
		return
	}
	e := t.executables.idlest(0)
	if e == nil {
		t.mu.Unlock()
		t.makeRoom(pid, func() bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.executables.idlest(0) != nil
		})
		t.mu.Lock()
		e = t.executables.idlest(0)
	}
	if e != nil {
		t.evict(e)
	}
}

// opened keeps a file that was opened. One that could not be opened stays known: its
// frames are path+offset, its stacks end there.
func (t *tables) opened(e *executable, pid int, handle *os.File, err error) {
	e.tries, e.triedFor = e.tries+1, pid
	if err != nil {
		t.giveUp(e)
		t.options.Log.Debug("open executable", "pid", pid, "path", e.path, "error", err)
		return
	}
	e.handle = handle
}

// identify reads the file's build-id. The lock is dropped meanwhile.
func (t *tables) identify(e *executable) {
	if e.identified || e.handle == nil {
		return
	}
	handle := e.handle
	t.mu.Unlock()
	buildID, notes, at, err := identifyFile(handle)
	t.mu.Lock()
	if e.identified || e.handle != handle {
		return // somebody else was faster, or it was evicted
	}
	e.identified = true
	if err != nil {
		t.giveUp(e)
		t.options.Log.Debug("read executable", "path", e.path, "error", err)
		return
	}
	e.buildID = buildID
	t.executables.claim(e)
	if notes != nil {
		e.notes, e.written = notes, at
	}
}

// identifyFile returns a file's build-id and, where it may hold a runtime, empty notes and
// when it was written to last.
func identifyFile(handle *os.File) (buildID string, notes *lang.Notes, at written, err error) {
	if managed, err := binfile.NewPE(handle); err == nil {
		return managed.BuildID, nil, at, nil
	}
	f, err := readELF(handle)
	if err != nil {
		return "", nil, at, err
	}
	if info, err := handle.Stat(); err == nil {
		notes, at = &lang.Notes{}, lastWritten(info)
	}
	return f.BuildID(), notes, at, nil
}

// examine finds out what an executable holds, what its build-id is, and whether
// its rows are loaded already for another one. The lock is held, and dropped
// while files are read.
func (t *tables) examine(e *executable) (shared bool) {
	handle, copies := e.handle, e.copies
	x := examination{image: e.image, first: t.executables.claims[copies]}
	var firstHandle *os.File
	if first := t.executables.byFile[x.first.first]; copies != "" && first != nil {
		firstHandle = first.handle
	}
	id := binfile.Unqualified(e.buildID)
	t.mu.Unlock()
	if x.image == "" {
		x.image = t.kept.image(handle)
	}
	firstImage := x.image
	if firstHandle != nil {
		firstImage = t.kept.image(firstHandle)
	}
	x.owner = t.kept.disk.Claim(id, firstImage)
	if copies != "" || !x.rightful() {
		x.all = t.kept.content(handle, aboutAll)
	}
	if firstHandle != nil {
		x.usurp = x.owner != "" && x.rightful() && firstImage != x.owner
		if x.first.content == "" && !x.usurp {
			x.first.content = t.kept.content(firstHandle, aboutAll)
		}
	}
	t.mu.Lock()
	if e.handle != handle { // it was forgotten, or another one is tried
		return false
	}
	e.image = x.image
	t.executables.settle(e, id, x)
	twin := t.executables.twin(e)
	if e.table != nil || twin == nil {
		return false
	}
	e.copyFrom(twin)
	t.adopt(e, twin.table)
	return true
}

// giveUp publishes an executable without rows: walks end there for want of
// unwind information, and do not ask again.
func (t *tables) giveUp(e *executable) {
	e.failed, e.identified = true, true
	if e.buildID == "" {
		e.buildID = "path-" + e.path
	}
	t.executables.entries.expose(e, 0, 0, 0)
}

// evict forgets a file.
func (t *tables) evict(e *executable) {
	e.dismiss(t.rows)
	t.unload(e, 0)
	delete(t.queue.wanted, e)
	t.executables.remove(e)
}

// file returns the file that an executable's frames point into.
func (t *tables) file(id uint32) (File, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.executables.framed(id)
	if e == nil {
		return File{}, false
	}
	t.identify(e)
	return e.source(), true
}

// mapped returns the address of a file offset of an executable, as the file has it, and the
// file as those who read its runtime want it.
func (t *tables) mapped(e *executable, offset uint64) (m lang.Mapped, address uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	handle := e.handle
	if handle == nil {
		return m, 0, false
	}
	t.mu.Unlock()
	f, err := readELF(handle)
	t.mu.Lock()
	if err != nil || e.handle != handle {
		return m, 0, false
	}
	address, ok = f.Address(offset)
	return lang.Mapped{Path: e.path, Open: e.source().Open, Notes: e.currentNotes()}, address, ok
}

const (
	// keepFiles is how many files stay open beyond those in use.
	keepFiles = 512
	// keepIdle is how long a file is remembered after its last process, so that
	// stacks of the window under way can still be named by its number.
	keepIdle = time.Minute
)

// sweep frees what is not used any more, and tries again what had to wait.
func (t *tables) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.options.Tables != nil {
		t.rows.GiveUpIdle(packedIdle)
	}
	for len(t.executables.byFile) > keepFiles {
		e := t.executables.idlest(keepIdle)
		if e == nil {
			break
		}
		t.evict(e)
	}
	t.wantRefused()
}

// count returns what is loaded now and what failed so far.
func (t *tables) count() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Executables, s.Loaded = t.executables.count()
	s.Skipped = t.queue.skipped
	r := t.rows.Stats()
	s.Rows, s.PackedBytes = uint32(r.Slots*paging.SlotWords), r.PackedBytes
	s.Chunks, s.Evicted, s.EvictedNeeded = r.Loads, r.Evictions, r.EvictionsNeeded
	return s
}

// end ends the builders.
func (t *tables) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.work.Broadcast()
}
