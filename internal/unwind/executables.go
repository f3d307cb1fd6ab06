package unwind

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/cfi"
)

// Flags of unwind.h.
const (
	executableLoaded        = 1
	executableFramePointers = 2
	mappingFramePointers    = 1
	mappingShared           = 2
)

// areaCells are those at the end of the mappings that programs use themselves.
const areaCells = 512

// fileID is a file while we or a process hold it: an inode's number is not
// used again before that.
type fileID struct {
	major, minor uint32
	inode        uint64
	path         string // only for images without an inode, such as [vdso]
}

func fileOf(m lifecycle.Mapping) fileID {
	if m.Inode == 0 {
		return fileID{path: m.Path}
	}
	return fileID{major: m.Major, minor: m.Minor, inode: m.Inode}
}

// executable is a file that processes map as code.
type executable struct {
	id      uint32
	file    fileID
	buildID string
	image   string // what it holds: files of one image share their rows; empty: not known
	path    string // as the first process that mapped it called it
	handle  *os.File
	uses    int // processes that map it
	idle    time.Time

	loaded    bool
	building  bool
	needs     uint32    // rows that found no room when they were built last,
	refused   time.Time // which was then
	failed    bool      // its unwind information cannot be read
	tries     int       // how often that was tried
	triedFor  int       // the process it was last tried for
	row, page extent
	anonFP    bool        // code it makes at run time keeps frame pointers: V8
	runs      uint32      // Language.runs of the runtimes it holds
	notes     *lang.Notes // what those tell, as the file was
	written   written     // when that was written to last
}

// executables are all files known, and the room for their rows.
type executables struct {
	byFile map[fileID]*executable
	byID   []*executable // index 0 is no executable
	unused []uint32
	rows   *extents
	pages  *extents
}

func (x *executables) init(rows, pages uint32, ids int) {
	x.byFile = map[fileID]*executable{}
	x.byID = make([]*executable, 1, 64)
	x.rows, x.pages = newExtents(0, rows), newExtents(0, pages)
	for id := ids - 1; id > 0; id-- {
		x.unused = append(x.unused, uint32(id))
	}
}

func (x *executables) count() (known, loaded int) {
	for _, e := range x.byFile {
		if e.loaded {
			loaded++
		}
	}
	return len(x.byFile), loaded
}

func (x *executables) close() {
	for _, e := range x.byFile {
		e.close()
	}
}

func (e *executable) close() {
	if e.handle != nil {
		e.handle.Close()
		e.handle = nil
	}
}

// isShared tells memory that a process shares with its children, which has a
// file only by name.
func isShared(m lifecycle.Mapping) bool {
	return m.Path == "/dev/zero" || m.Path == "/dev/zero (deleted)" || strings.HasPrefix(m.Path, "/SYSV")
}

// isMade tells memory that a runtime maps twice, to write code in one place and
// run it in the other: .NET and BEAM. It has a file only by name.
func isMade(m lifecycle.Mapping) bool {
	return strings.HasPrefix(m.Path, "/memfd:doublemapper") || strings.HasPrefix(m.Path, "/memfd:vmem")
}

// executableOf finds or registers the file behind a mapping; nil where the
// mapping has none.
func (u *Unwinder) executableOf(pid int, m lifecycle.Mapping) *executable {
	if m.Path == "" || (m.Path[0] != '/' && m.Path != vdsoPath) || m.Path == "//anon" || isShared(m) || isMade(m) {
		return nil
	}
	file := fileOf(m)
	if e := u.executables.byFile[file]; e != nil {
		u.retry(e, pid, m)
		return e
	}
	if len(u.executables.unused) == 0 {
		e := u.idlest(func(*executable) bool { return true })
		if e == nil {
			return nil
		}
		u.evictExecutable(e)
	}
	ids := &u.executables.unused
	id := (*ids)[len(*ids)-1]
	*ids = (*ids)[:len(*ids)-1]
	e := &executable{id: id, file: file, path: m.Path}
	u.memory.executables.Value.E[id] = kernelExecutable{}
	u.identify(e, pid, m)
	u.executables.byFile[file] = e
	for int(id) >= len(u.executables.byID) {
		u.executables.byID = append(u.executables.byID, nil)
	}
	u.executables.byID[id] = e
	if err := u.maps.Files.Update(file.key(), id, ebpf.UpdateAny); err != nil {
		u.options.Log.Debug("no room for a file", "path", m.Path, "error", err)
	}
	return e
}

// key is how programs know the file: zero for the vdso, the only image without
// an inode.
func (f fileID) key() kernelFileKey {
	return kernelFileKey{Inode: f.inode, Device: f.major<<20 | f.minor}
}

// maxTries bounds how often a file that cannot be read is tried.
const maxTries = 3

// retry has a file that could not be read tried once more, now that another
// process maps it: the one before may have ended while we read it.
func (u *Unwinder) retry(e *executable, pid int, m lifecycle.Mapping) {
	if !e.failed || e.tries >= maxTries || e.triedFor == pid {
		return
	}
	k := &u.memory.executables.Value.E[e.id]
	e.failed = false
	atomic.StoreUint32(&k.Flags, 0)
	atomic.StoreUint32(&k.Wanted, 0)
	e.close()
	u.identify(e, pid, m)
}

// identify opens the file and reads its build-id. A file that cannot be opened
// stays known: its frames are path+offset, its stacks end there.
func (u *Unwinder) identify(e *executable, pid int, m lifecycle.Mapping) {
	e.tries, e.triedFor = e.tries+1, pid
	handle, err := u.options.Source.Open(pid, m)
	if err != nil {
		e.buildID = "path-" + m.Path
		u.giveUp(e)
		u.options.Log.Debug("open executable", "pid", pid, "path", m.Path, "error", err)
		return
	}
	e.handle = handle
	if managed, err := binfile.NewPE(handle); err == nil {
		e.buildID, e.image = managed.BuildID, managed.BuildID
		return
	}
	f, err := readELF(handle)
	if err != nil {
		e.buildID = "path-" + m.Path
		u.giveUp(e)
		u.options.Log.Debug("read executable", "path", m.Path, "error", err)
		return
	}
	e.buildID = f.BuildID()
	if info, err := handle.Stat(); err == nil {
		e.notes, e.written = &lang.Notes{}, lastWritten(info)
		// the size too: a stripped copy has the same build-id, and may have fewer rows
		e.image = fmt.Sprintf("%s %d", e.buildID, info.Size())
	}
}

// giveUp publishes an executable without rows: walks end there for want of
// unwind information, and do not ask again.
func (u *Unwinder) giveUp(e *executable) {
	e.failed = true
	atomic.StoreUint32(&u.memory.executables.Value.E[e.id].Flags, executableLoaded)
}

// load builds and publishes an executable's rows. The lock is dropped while
// they are built: that takes up to a second for the largest files.
func (u *Unwinder) load(e *executable) {
	if e.loaded || e.building || e.failed || e.handle == nil || u.share(e) || !u.mayFit(e) {
		return
	}
	handle := e.handle
	e.building = true
	u.mu.Unlock()
	began := time.Now()
	table, made, err := buildTable(handle)
	took := time.Since(began)
	u.mu.Lock()
	u.stats.TableTime += took
	e.building = false
	if u.executables.byID[e.id] != e || e.loaded {
		return // evicted, or loaded by another request, meanwhile
	}
	if err == nil {
		e.anonFP, e.runs = made.anonFP, made.runs
		err = u.publish(e, table)
	}
	if errors.Is(err, errNoRoom) {
		if e.needs == 0 {
			u.stats.TableErrors++
			u.options.Log.Warn("no room for an unwind table", "path", e.path, "error", err)
		}
		e.needs, e.refused = uint32(len(table.Rows)), time.Now()
		return
	}
	if err != nil {
		u.giveUp(e)
		u.stats.TableErrors++
		u.options.Log.Info("no unwind table", "path", e.path, "error", err)
		return
	}
	u.options.Log.Debug("unwind table", "path", e.path, "rows", len(table.Rows), "source", table.Source, "took", took)
}

func readELF(handle *os.File) (*binfile.File, error) {
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	return binfile.New(handle, info.Size())
}

// holding is what a file holds beside its own code.
type holding struct {
	anonFP bool
	runs   uint32
}

func buildTable(handle *os.File) (*cfi.Table, holding, error) {
	if managed, err := binfile.NewPE(handle); err == nil {
		table, err := cfi.BuildManaged(managed)
		return table, holding{}, err
	}
	f, err := readELF(handle)
	if err != nil {
		return nil, holding{}, fmt.Errorf("read ELF: %w", err)
	}
	table, err := cfi.Build(f.ELF)
	if err != nil {
		return nil, holding{}, err
	}
	runs := runsIn(f)
	return table, holding{anonFP: runs&V8.runs() != 0, runs: runs}, nil
}

var errNoRoom = errors.New("the table of unwind rows is full")

// publish copies rows into the kernel's arrays, then makes them visible.
func (u *Unwinder) publish(e *executable, t *cfi.Table) error {
	x := &u.executables
	var row, page extent
	for {
		var ok1, ok2 bool
		row, ok1 = x.rows.take(uint32(len(t.Rows)))
		page, ok2 = x.pages.take(uint32(len(t.Index)))
		if ok1 && ok2 {
			break
		}
		if ok1 {
			x.rows.put(row)
		}
		if ok2 {
			x.pages.put(page)
		}
		if uint32(len(t.Rows)) > u.room() || !u.evictTables(uint32(len(t.Rows))) {
			return fmt.Errorf("%w: %d rows wanted, %d of %d used", errNoRoom, len(t.Rows), x.rows.used, u.stats.RowsMax)
		}
	}
	rows := u.memory.rows.Values[row.first : row.first+row.count]
	for i, r := range t.Rows {
		rows[i] = uint64(r)
	}
	copy(u.memory.pages.Value.P[page.first:page.first+page.count], t.Index)
	k := &u.memory.executables.Value.E[e.id]
	k.Row, k.Rows, k.Page, k.Pages = row.first, row.count, page.first, page.count
	k.Offset, k.Shift = t.First, uint32(t.Shift)
	flags := executableLoaded | e.runs
	if t.KeepsFramePointers {
		flags |= executableFramePointers
	}
	atomic.StoreUint32(&k.Flags, flags) // orders all stores above
	e.row, e.page, e.loaded = row, page, true
	return nil
}

// share gives an executable the rows of another that holds the same image: a
// copy in a container, or one that was replaced by itself.
func (u *Unwinder) share(e *executable) bool {
	for _, other := range u.executables.byFile {
		if !other.loaded || other.image != e.image || e.image == "" {
			continue
		}
		from, to := &u.memory.executables.Value.E[other.id], &u.memory.executables.Value.E[e.id]
		to.Row, to.Rows, to.Page, to.Pages = from.Row, from.Rows, from.Page, from.Pages
		to.Offset, to.Shift = from.Offset, from.Shift
		atomic.StoreUint32(&to.Flags, from.Flags) // orders all stores above
		e.row, e.page, e.loaded = other.row, other.page, true
		e.anonFP, e.runs = other.anonFP, other.runs
		e.shareNotes(other)
		return true
	}
	return false
}

// shared tells whether another executable's rows are those of e.
func (u *Unwinder) shared(e *executable) bool {
	for _, other := range u.executables.byFile {
		if other != e && other.loaded && other.row == e.row && other.page == e.page {
			return true
		}
	}
	return false
}

// refuseFor is how long an executable whose rows found no room is left alone:
// building the largest tables takes a second of CPU time.
const refuseFor = 10 * time.Second

// mayFit tells whether it is worth to build an executable's rows.
func (u *Unwinder) mayFit(e *executable) bool {
	return e.needs == 0 || time.Since(e.refused) > refuseFor && e.needs <= u.room()
}

// wantRefused tries executables again whose rows found no room, now that they may.
func (u *Unwinder) wantRefused() {
	var room uint32
	for _, e := range u.executables.byFile {
		if e.needs == 0 || e.loaded || e.building || time.Since(e.refused) <= refuseFor || atomic.LoadUint32(&u.memory.executables.Value.E[e.id].Wanted) == 0 {
			continue
		}
		if room == 0 { // it is the same for all, and takes a look at each
			room = u.room()
		}
		if e.needs <= room {
			u.want(e)
		}
	}
}

// room is how many rows can be had: what no process uses makes room.
func (u *Unwinder) room() uint32 {
	inUse := map[extent]bool{}
	for _, e := range u.executables.byFile {
		if e.loaded && e.uses > 0 {
			inUse[e.row] = true
		}
	}
	var kept uint32
	for run := range inUse {
		kept += run.count
	}
	return u.stats.RowsMax - kept
}

// evictTables drops the rows of the executables unused for longest, until so
// many are free. The files stay known; a walk that meets one again asks again.
func (u *Unwinder) evictTables(rows uint32) bool {
	evicted := 0
	for freed := uint32(0); freed < max(rows, 1); evicted++ {
		e := u.idlest(func(e *executable) bool { return e.loaded })
		if e == nil {
			break
		}
		if !u.shared(e) {
			freed += e.row.count
		}
		u.unload(e)
		u.stats.Evicted++
	}
	if evicted == 0 {
		return false
	}
	time.Sleep(Grace)
	u.reclaim()
	return true
}

// evictExecutable forgets a file.
func (u *Unwinder) evictExecutable(e *executable) {
	u.unload(e)
	e.close()
	delete(u.executables.byFile, e.file)
	delete(u.wanted, e)
	if err := u.maps.Files.Delete(e.file.key()); err != nil && !isNotExist(err) {
		u.options.Log.Debug("forget file", "path", e.path, "error", err)
	}
	u.executables.byID[e.id] = nil
	u.executables.unused = append(u.executables.unused, e.id)
}

const (
	// keepFiles is how many files stay open beyond those in use.
	keepFiles = 512
	// keepIdle is how long a file is remembered after its last process, so that
	// stacks of the window under way can still be named by its number.
	keepIdle = time.Minute
)

// trim forgets files that nothing has mapped for long.
func (u *Unwinder) trim() {
	for len(u.executables.byFile) > keepFiles {
		e := u.idlest(func(e *executable) bool { return time.Since(e.idle) > keepIdle })
		if e == nil {
			return
		}
		u.evictExecutable(e)
	}
}

func (u *Unwinder) idlest(eligible func(*executable) bool) (oldest *executable) {
	for _, e := range u.executables.byFile {
		if e.uses == 0 && eligible(e) && (oldest == nil || e.idle.Before(oldest.idle)) {
			oldest = e
		}
	}
	return oldest
}

func (u *Unwinder) unload(e *executable) {
	k := &u.memory.executables.Value.E[e.id]
	atomic.StoreUint32(&k.Flags, 0)
	atomic.StoreUint32(&k.Wanted, 0)
	if !u.shared(e) {
		u.retire(u.executables.rows, e.row)
		u.retire(u.executables.pages, e.page)
	}
	e.row, e.page, e.loaded = extent{}, extent{}, false
	for _, other := range u.executables.byFile { // who found no room may ask again
		if !other.loaded && !other.failed {
			atomic.StoreUint32(&u.memory.executables.Value.E[other.id].Wanted, 0)
		}
	}
}
