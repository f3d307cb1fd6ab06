package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/cfi"
)

// Flags of unwind.h.
const (
	executableLoaded        = 1
	executableFramePointers = 2
	mappingFramePointers    = 1
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
	path    string // as the first process that mapped it called it
	handle  *os.File
	uses    int // processes that map it
	idle    time.Time

	loaded    bool
	failed    bool // its unwind information cannot be read
	row, page extent
	anonFP    bool // code it makes at run time keeps frame pointers
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

// executableOf finds or registers the file behind a mapping; nil where the
// mapping has none.
func (u *Unwinder) executableOf(pid int, m lifecycle.Mapping) *executable {
	if m.Path == "" || (m.Path[0] != '/' && m.Path != vdsoPath) || m.Path == "//anon" {
		return nil
	}
	file := fileOf(m)
	if e := u.executables.byFile[file]; e != nil {
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

// identify opens the file and reads its build-id. A file that cannot be opened
// stays known: its frames are path+offset, its stacks end there.
func (u *Unwinder) identify(e *executable, pid int, m lifecycle.Mapping) {
	handle, err := u.options.Source.Open(pid, m)
	if err != nil {
		e.buildID = "path-" + m.Path
		u.giveUp(e)
		u.options.Log.Debug("open executable", "pid", pid, "path", m.Path, "error", err)
		return
	}
	e.handle = handle
	f, err := readELF(handle)
	if err != nil {
		e.buildID = "path-" + m.Path
		u.giveUp(e)
		u.options.Log.Debug("read executable", "path", m.Path, "error", err)
		return
	}
	e.buildID = f.BuildID()
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
	if e.loaded || e.failed || e.handle == nil {
		return
	}
	handle := e.handle
	u.mu.Unlock()
	began := time.Now()
	table, anonFP, err := buildTable(handle)
	took := time.Since(began)
	u.mu.Lock()
	u.stats.TableTime += took
	if u.executables.byID[e.id] != e || e.loaded {
		return // evicted, or loaded by another request, meanwhile
	}
	if err == nil {
		err = u.publish(e, table)
	}
	if errors.Is(err, errNoRoom) {
		u.stats.TableErrors++ // it stays wanted until something is unloaded
		u.options.Log.Warn("no room for an unwind table", "path", e.path, "error", err)
		return
	}
	if err != nil {
		u.giveUp(e)
		u.stats.TableErrors++
		u.options.Log.Info("no unwind table", "path", e.path, "error", err)
		return
	}
	e.anonFP = anonFP
	u.options.Log.Debug("unwind table", "path", e.path, "rows", len(table.Rows), "source", table.Source, "took", took)
}

func readELF(handle *os.File) (*binfile.File, error) {
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	return binfile.New(handle, info.Size())
}

func buildTable(handle *os.File) (*cfi.Table, bool, error) {
	f, err := readELF(handle)
	if err != nil {
		return nil, false, fmt.Errorf("read ELF: %w", err)
	}
	table, err := cfi.Build(f.ELF)
	if err != nil {
		return nil, false, err
	}
	return table, holdsV8(f.ELF), nil
}

// holdsV8 recognises V8, whose compiled code keeps frame pointers, by the
// symbols it exports for debuggers. Its builtins, in the file, have rows.
func holdsV8(f *elf.File) bool {
	s := f.Section(".dynstr")
	if s == nil || s.Size > 1<<26 {
		return false
	}
	names, err := s.Data()
	return err == nil && bytes.Contains(names, []byte("v8dbg_frametype_"))
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
		if !u.evictTable() {
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
	flags := uint32(executableLoaded)
	if t.KeepsFramePointers {
		flags |= executableFramePointers
	}
	atomic.StoreUint32(&k.Flags, flags) // orders all stores above
	e.row, e.page, e.loaded = row, page, true
	return nil
}

// evictTable drops the rows of the executable unused for longest. The file
// stays known; a walk that meets it again asks again.
func (u *Unwinder) evictTable() bool {
	e := u.idlest(func(e *executable) bool { return e.loaded })
	if e == nil {
		return false
	}
	u.unload(e)
	u.stats.Evicted++
	time.Sleep(Grace)
	u.reclaim()
	return true
}

// evictExecutable forgets a file.
func (u *Unwinder) evictExecutable(e *executable) {
	u.unload(e)
	e.close()
	delete(u.executables.byFile, e.file)
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
	u.retire(u.executables.rows, e.row)
	u.retire(u.executables.pages, e.page)
	e.row, e.page, e.loaded = extent{}, extent{}, false
	for _, other := range u.executables.byFile { // who found no room may ask again
		if !other.loaded && !other.failed {
			atomic.StoreUint32(&u.memory.executables.Value.E[other.id].Wanted, 0)
		}
	}
}
