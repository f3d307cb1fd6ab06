package unwind

import (
	"errors"
	"fmt"
	"os"
	"time"

	"atys.dev/atys/internal/binfile"
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
func (k *keptTables) findOrBuild(handle *os.File, image diskcache.Content) (b built, err error) {
	b.took = onThread(func() {
		var table *builtTable
		if table, err = k.buildTable(handle, image); err != nil {
			return
		}
		defer table.close()
		b.rows, b.count = paging.Pack(rowsOf(table.Table)), len(table.Rows)
		b.source, b.keepsFramePointers, b.runs = table.Source, table.KeepsFramePointers, table.runs
	})
	return b, err
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

const (
	// builders is how many tables are built at a time.
	builders = 2
	// maxOrders bounds the tables that wait to be built without being asked for.
	maxOrders = 1024
)

// order has the builders load executables. Where they have too much to do, walks will ask
// for what they need.
func (t *tables) order(all []*executable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range all {
		if e.table != nil || e.failed {
			continue
		}
		if len(t.queue.wanted) >= maxOrders {
			return
		}
		t.want(e)
	}
}

// want has an executable loaded by the builders.
func (t *tables) want(e *executable) {
	t.queue.wanted[e] = true
	t.work.Signal()
}

// build loads what is wanted, apart from those who follow processes: the kernel's rings of
// events overflow in the second that the largest tables take.
func (t *tables) build() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed {
		e, wait := t.queue.next(t.rows)
		if e == nil {
			t.waitForWork(wait)
			continue
		}
		delete(t.queue.wanted, e)
		t.mu.Unlock()
		took := onThread(func() { t.load(e) })
		t.mu.Lock()
		t.queue.limit.Take(took)
	}
}

// waitForWork releases the lock until something changes or, if wait is not 0, wait has
// passed. The caller holds the lock.
func (t *tables) waitForWork(wait time.Duration) {
	if wait > 0 {
		wake := time.AfterFunc(wait, func() {
			t.mu.Lock() // otherwise the broadcast could come before the wait
			defer t.mu.Unlock()
			t.work.Broadcast()
		})
		defer wake.Stop()
	}
	t.work.Wait()
}

// load loads an executable.
func (t *tables) load(e *executable) {
	t.mu.Lock()
	had := e.table != nil
	if !e.failed {
		t.fill(e)
	}
	news := !had && e.table != nil && e.runs.Load() != 0
	t.mu.Unlock()
	if news {
		t.learned(e)
	}
}

// fill has an executable's rows ready for walks, as far as there is room. The lock
// is dropped while they are built and loaded.
func (t *tables) fill(e *executable) {
	if e.building || e.failed || e.handle == nil {
		return
	}
	e.building = true
	defer func() {
		e.building = false
		if len(e.missing) > 0 && !t.forgotten(e) && e.mayBuild() {
			t.want(e) // more was asked for meanwhile
		}
	}()
	t.identify(e)
	if t.forgotten(e) || e.failed || !t.haveTable(e) {
		return
	}
	table, asked, missing := e.table, e.asked, e.missing
	e.missing = nil
	t.mu.Unlock()
	defer t.mu.Lock()
	for offset := range missing {
		if got := t.rows.Demand(table, offset); got == paging.Wait || got == paging.Build {
			t.rows.Refuse(table, offset)
		}
	}
	for range maxFills {
		if t.rows.Fill(table, asked) != paging.Wait || !t.pause(Grace) {
			return
		}
	}
}

// maxFills bounds how often Fill is called again for a table: each time it has got
// what was free after the last.
const maxFills = 4

// haveTable builds an executable's table unless it is there; false where it cannot
// be had.
func (t *tables) haveTable(e *executable) bool {
	if e.table != nil && t.rows.Packed(e.table) || e.table == nil && t.examine(e) {
		return true
	}
	if t.forgotten(e) || !e.mayBuild() {
		return false
	}
	handle, image, again := e.handle, e.image, e.built
	t.mu.Unlock()
	b, err := t.kept.findOrBuild(handle, image)
	t.mu.Lock()
	t.stats.countBuild(b.took, again, e.asked)
	switch {
	case t.forgotten(e):
		return false
	case err != nil:
		t.stats.TableErrors++
		t.options.Log.Info("no unwind table", "path", e.path, "error", err)
		e.dismiss(t.rows)
		t.unload(e, 0) // of one that was given up: the file was written to since
		t.giveUp(e)
		return false
	}
	t.options.Log.Debug("unwind table", "path", e.path, "rows", b.count, "source", b.source, "took", b.took)
	e.built, e.builtAt, e.took = true, time.Now(), b.took
	e.keepsFramePointers = b.keepsFramePointers
	e.runs.Store(b.runs)
	if e.table != nil {
		if t.rows.Restore(e.table, b.rows) {
			return true
		}
		t.unload(e, 0) // the file was written to
	}
	return t.publish(e, b.rows)
}

// forgotten tells whether an executable was evicted while the lock was dropped.
func (t *tables) forgotten(e *executable) bool {
	return t.closed || t.executables.byID[e.id] != e
}

// buildPart bounds what building a table again and again takes: of a core, for
// each.
const buildPart = 10

// refuseFor is how long an executable for whose table the directory had no room is
// left alone.
const refuseFor = 10 * time.Second

// publish gives an executable a table of these rows. What was not used for longest
// makes room in the directory. The lock is dropped while that is waited for.
func (t *tables) publish(e *executable, packed *paging.Packed) bool {
	for {
		table, err := t.rows.Add(packed)
		if err == nil {
			t.adopt(e, table)
			return true
		}
		cold := t.rows.Coldest()
		if !errors.Is(err, paging.ErrFull) || cold == nil {
			break
		}
		for _, other := range t.executables.byFile {
			if other.table == cold {
				t.unload(other, executableEvicted)
				t.stats.TablesEvicted++
			}
		}
		t.mu.Unlock()
		waited := t.pause(Grace)
		t.mu.Lock()
		if !waited || t.forgotten(e) {
			return false
		}
	}
	if e.refused.IsZero() {
		t.options.Log.Warn("no room for an unwind table", "path", e.path)
	}
	e.refused = time.Now()
	t.stats.NoRoom++
	t.executables.entries.refuse(e)
	return false
}

// pause waits with the lock dropped; false where the unwinder is closed meanwhile.
func (t *tables) pause(d time.Duration) bool {
	select {
	case <-t.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// adopt has walks find a table as an executable's.
func (t *tables) adopt(e *executable, table *paging.Table) {
	e.table, e.refused = table, time.Time{}
	flags := e.runs.Load()
	if e.keepsFramePointers {
		flags |= executableFramePointers
	}
	cell, cells := table.First()
	t.executables.entries.expose(e, cell, cells, flags)
}

// dismiss answers the walks that wait for rows of an executable that nobody will load
// now: they may ask again, also those in other executables that share the table.
func (e *executable) dismiss(cache *paging.Cache) {
	if e.table != nil {
		for offset := range e.missing {
			cache.Refuse(e.table, offset)
		}
	}
	e.missing = nil
}

// countBuild counts a table that was built, by what it was built for.
func (s *Stats) countBuild(took time.Duration, again, asked bool) {
	s.Builds++
	s.TableTime += took
	switch {
	case again:
		s.Rebuilds++
		s.BuildTime.Again += took
	case asked:
		s.BuildTime.Asked += took
	default:
		s.BuildTime.Mapped += took
	}
}

// wantRefused tries executables again for whose tables the directory had no room,
// or that were built a moment ago and are needed again, now that they may be built.
func (t *tables) wantRefused() {
	for _, e := range t.executables.byFile {
		waits := len(e.missing) > 0 || e.table == nil && e.asked && t.executables.entries.missed(e) != 0
		if waits && !e.building && !e.failed && e.mayBuild() {
			t.want(e)
		}
	}
}

// unload withdraws an executable's table, and removes that where no other
// executable has it. What the file holds stays known.
func (t *tables) unload(e *executable, why uint32) {
	t.executables.entries.withdraw(e, why)
	table := e.table
	e.table = nil
	if table != nil && t.executables.with(table) == nil {
		t.rows.Remove(table)
	}
}

// answer answers a walk that found rows missing: all of an executable's, or those at a file
// offset. It reports whether there is a table.
func (t *tables) answer(id, offset uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.executables.numbered(id)
	if e == nil {
		return false
	}
	e.asked = true
	if e.table == nil {
		t.want(e)
		return false
	}
	t.demand(e, offset, maxDemands)
	return true
}

// maxDemands bounds how often a chunk is tried to be loaded for one request.
const maxDemands = 5

// demand loads the rows at a file offset, now or as soon as there is room.
func (t *tables) demand(e *executable, offset uint32, tries int) {
	switch t.rows.Demand(e.table, offset) {
	case paging.Returned:
		t.want(e)
	case paging.Build:
		if e.missing == nil {
			e.missing = map[uint32]bool{}
		}
		e.missing[offset] = true
		t.want(e)
	case paging.Wait:
		if tries == 0 {
			t.rows.Refuse(e.table, offset)
			return
		}
		table := e.table
		time.AfterFunc(Grace, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if !t.forgotten(e) && e.table != nil {
				t.demand(e, offset, tries-1)
			} else if !t.closed {
				t.rows.Refuse(table, offset) // another executable may share it
			}
		})
	}
}

// hinted is code that a walk may need.
type hinted struct {
	executable *executable
	offset     uint32
}

// hint loads the rows of code of which there are tables.
func (t *tables) hint(all []hinted) {
	t.mu.Lock()
	found := make([]*paging.Table, len(all))
	for i, h := range all {
		found[i] = h.executable.table
	}
	t.mu.Unlock()
	for i, table := range found {
		if table != nil {
			t.rows.Hint(table, all[i].offset)
		}
	}
}
