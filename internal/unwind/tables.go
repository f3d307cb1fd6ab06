package unwind

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/unwind/cfi"
	"atys.dev/atys/internal/unwind/cfi/rows"
	"atys.dev/atys/internal/unwind/paging"
)

// built is an executable's table, and what else its file says.
type built struct {
	rows               *paging.Packed
	count              int // rows
	source             string
	keepsFramePointers bool
	runs               uint32 // Language.runs of the runtimes in it
	took               time.Duration
}

// buildTable makes the table of a file. It takes up to a second for the largest.
func buildTable(handle *os.File) (*rows.Table, uint32, error) {
	if managed, err := binfile.NewPE(handle); err == nil {
		table, err := cfi.BuildManaged(managed)
		return table, 0, err
	}
	f, err := readELF(handle)
	if err != nil {
		return nil, 0, fmt.Errorf("read ELF: %w", err)
	}
	table, err := cfi.Build(f.ELF)
	if err != nil {
		return nil, 0, err
	}
	return table, runsIn(f), nil
}

// findOrBuild finds an executable's table on disk or makes it, and packs it.
func (u *Unwinder) findOrBuild(handle *os.File, image diskcache.Content) (b built, err error) {
	runtime.LockOSThread() // whose clock is read
	defer runtime.UnlockOSThread()
	began := bpf.Clock(unix.CLOCK_THREAD_CPUTIME_ID)
	defer func() { b.took = time.Duration(bpf.Clock(unix.CLOCK_THREAD_CPUTIME_ID) - began) }()
	table, err := u.kept.buildTable(handle, image)
	if err != nil {
		return b, err
	}
	defer table.close()
	b.rows, b.count = paging.Pack(rowsOf(table.Table)), len(table.Rows)
	b.source, b.keepsFramePointers, b.runs = table.Source, table.KeepsFramePointers, table.runs
	return b, nil
}

// rowsOf gives the rows of a table as walks read them: the last one says where
// what is known ends.
func rowsOf(t *rows.Table) []uint64 {
	words := make([]uint64, len(t.Rows), len(t.Rows)+1)
	for i, r := range t.Rows {
		words[i] = uint64(r)
	}
	if n := len(t.Rows); n > 0 && t.Rows[n-1].Rule().Type() != rows.Gap {
		end := (uint64(t.Rows[n-1].Offset())>>t.Shift + 1) << t.Shift
		words = append(words, end<<32)
	}
	return words
}

// load has an executable's rows ready for walks, as far as there is room. The lock
// is dropped while they are built and loaded.
func (u *Unwinder) load(e *executable) {
	if e.building || e.failed || e.handle == nil {
		return
	}
	e.building = true
	defer func() {
		e.building = false
		if len(e.missing) > 0 && !u.forgotten(e) && u.mayBuild(e) {
			u.want(e) // more was asked for meanwhile
		}
	}()
	u.identify(e)
	if u.forgotten(e) || e.failed || !u.haveTable(e) {
		return
	}
	t, asked, missing := e.table, e.asked, e.missing
	e.missing = nil
	u.mu.Unlock()
	defer u.mu.Lock()
	for offset := range missing {
		if got := u.rows.Demand(t, offset); got == paging.Wait || got == paging.Build {
			u.rows.Refuse(t, offset)
		}
	}
	for range maxFills {
		if u.rows.Fill(t, asked) != paging.Wait || !u.pause(Grace) {
			return
		}
	}
}

// maxFills bounds how often Fill is called again for a table: each time it has got
// what was free after the last.
const maxFills = 4

// haveTable builds an executable's table unless it is there; false where it cannot
// be had.
func (u *Unwinder) haveTable(e *executable) bool {
	if e.table != nil && u.rows.Packed(e.table) || e.table == nil && u.examine(e) {
		return true
	}
	if u.forgotten(e) || !u.mayBuild(e) {
		return false
	}
	handle, image, again := e.handle, e.image, e.built
	u.mu.Unlock()
	b, err := u.findOrBuild(handle, image)
	u.mu.Lock()
	u.countBuild(e, b.took, again)
	switch {
	case u.forgotten(e):
		return false
	case err != nil:
		u.stats.TableErrors++
		u.options.Log.Info("no unwind table", "path", e.path, "error", err)
		u.dismiss(e)
		u.unload(e, 0) // of one that was given up: the file was written to since
		u.giveUp(e)
		return false
	}
	u.options.Log.Debug("unwind table", "path", e.path, "rows", b.count, "source", b.source, "took", b.took)
	e.built, e.builtAt, e.took = true, time.Now(), b.took
	e.keepsFramePointers, e.runs, e.anonFP = b.keepsFramePointers, b.runs, b.runs&V8.runs() != 0
	if e.table != nil {
		if u.rows.Restore(e.table, b.rows) {
			return true
		}
		u.unload(e, 0) // the file was written to
	}
	return u.publish(e, b.rows)
}

// dismiss answers the walks that wait for rows of an executable that nobody will load
// now: they may ask again, also those in other executables that share the table.
func (u *Unwinder) dismiss(e *executable) {
	if e.table != nil {
		for offset := range e.missing {
			u.rows.Refuse(e.table, offset)
		}
	}
	e.missing = nil
}

// countBuild counts a table that was built, by what it was built for.
func (u *Unwinder) countBuild(e *executable, took time.Duration, again bool) {
	s := &u.stats
	s.Builds++
	s.TableTime += took
	switch {
	case again:
		s.Rebuilds++
		s.BuildTime.Again += took
	case e.asked:
		s.BuildTime.Asked += took
	default:
		s.BuildTime.Mapped += took
	}
}

// forgotten tells whether an executable was evicted while the lock was dropped.
func (u *Unwinder) forgotten(e *executable) bool {
	return u.closed || u.executables.byID[e.id] != e
}

// buildPart bounds what building a table again and again takes: of a core, for
// each.
const buildPart = 10

// refuseFor is how long an executable for whose table the directory had no room is
// left alone.
const refuseFor = 10 * time.Second

// mayBuild tells whether it is worth to build an executable's table now.
func (u *Unwinder) mayBuild(e *executable) bool {
	if !e.refused.IsZero() && time.Since(e.refused) < refuseFor {
		return false
	}
	return time.Since(e.builtAt) >= buildPart*e.took
}

// publish gives an executable a table of these rows. What was not used for longest
// makes room in the directory. The lock is dropped while that is waited for.
func (u *Unwinder) publish(e *executable, rows *paging.Packed) bool {
	for {
		t, err := u.rows.Add(rows)
		if err == nil {
			u.adopt(e, t)
			return true
		}
		cold := u.rows.Coldest()
		if !errors.Is(err, paging.ErrFull) || cold == nil {
			break
		}
		for _, other := range u.executables.byFile {
			if other.table == cold {
				u.unload(other, executableEvicted)
				u.stats.TablesEvicted++
			}
		}
		u.mu.Unlock()
		waited := u.pause(Grace)
		u.mu.Lock()
		if !waited || u.forgotten(e) {
			return false
		}
	}
	if e.refused.IsZero() {
		u.options.Log.Warn("no room for an unwind table", "path", e.path)
	}
	e.refused = time.Now()
	u.stats.NoRoom++
	k := &u.memory.executables.Value.E[e.id]
	atomic.StoreUint32(&k.Flags, atomic.LoadUint32(&k.Flags)&^executableEvicted|executableNoRoom)
	return false
}

// pause waits with the lock dropped; false where the unwinder is closed meanwhile.
func (u *Unwinder) pause(d time.Duration) bool {
	select {
	case <-u.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// adopt has walks find a table as an executable's.
func (u *Unwinder) adopt(e *executable, t *paging.Table) {
	e.table, e.refused = t, time.Time{}
	flags := e.runs
	if e.keepsFramePointers {
		flags |= executableFramePointers
	}
	cell, cells := t.First()
	u.expose(e, cell, cells, flags)
}

// share gives an executable the table of another that holds the same image: a
// copy in a container, or one that was replaced by itself.
func (u *Unwinder) share(e *executable) bool {
	for _, other := range u.executables.byFile {
		if other.table == nil || other.image != e.image || e.image == "" {
			continue
		}
		e.built, e.builtAt, e.took = true, other.builtAt, other.took
		e.keepsFramePointers, e.runs, e.anonFP = other.keepsFramePointers, other.runs, other.anonFP
		e.shareNotes(other)
		u.adopt(e, other.table)
		return true
	}
	return false
}

// wantRefused tries executables again for whose tables the directory had no room,
// or that were built a moment ago and are needed again, now that they may be built.
func (u *Unwinder) wantRefused() {
	for _, e := range u.executables.byFile {
		waits := len(e.missing) > 0 || e.table == nil && e.asked && atomic.LoadUint32(&u.memory.executables.Value.E[e.id].Wanted) != 0
		if waits && !e.building && !e.failed && u.mayBuild(e) {
			u.want(e)
		}
	}
}

// unload withdraws an executable's table, and removes that where no other
// executable has it. What the file holds stays known.
func (u *Unwinder) unload(e *executable, why uint32) {
	u.withdraw(e, why)
	t := e.table
	e.table = nil
	if t == nil {
		return
	}
	for _, other := range u.executables.byFile {
		if other.table == t {
			return
		}
	}
	u.rows.Remove(t)
}

// expose publishes where an executable's directory is.
func (u *Unwinder) expose(e *executable, cell, cells, flags uint32) {
	u.withdraw(e, 0)
	k := &u.memory.executables.Value.E[e.id]
	k.Cell, k.Cells = cell, cells
	atomic.StoreUint32(&k.Flags, executableLoaded|flags) // orders all stores above
}

// withdraw has walks not look at an executable's directory any more, and say why.
func (u *Unwinder) withdraw(e *executable, why uint32) {
	k := &u.memory.executables.Value.E[e.id]
	atomic.StoreUint32(&k.Flags, why)
	atomic.AddUint32(&k.Generation, 1)
	atomic.StoreUint32(&k.Wanted, 0)
}
