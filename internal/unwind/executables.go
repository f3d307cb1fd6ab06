package unwind

import (
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
)

// Flags of unwind.h.
const (
	executableLoaded        = 1
	executableFramePointers = 2
	executableEvicted       = 4
	executableNoRoom        = 8
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
	id       uint32
	identity uint32 // how many files had the number before
	file     fileID
	buildID  string            // qualified where another file has the same
	copies   string            // the build-id of another file that it has, until that is settled
	image    diskcache.Content // files of one image share their rows; empty: not known
	path     string            // as the first process that mapped it called it
	handle   *os.File
	uses     int // processes that map it
	idle     time.Time
	met      time.Time // when it was mapped first

	identified bool          // buildID and image were read, as far as they can be
	table      *paging.Table // nil: not built yet, or evicted
	building   bool
	asked      bool            // a walk has asked for its rows
	missing    map[uint32]bool // file offsets that walks wait for, while the table is built again
	refused    time.Time       // when the directory had no room for the table
	built      bool            // it was before: the table is known to exist
	builtAt    time.Time       // when that was last,
	took       time.Duration   // and the CPU time that it took
	failed     bool            // its unwind information cannot be read
	tries      int             // how often that was tried
	triedFor   int             // the process it was last tried for

	// What the file holds stays known while its rows are evicted.
	keepsFramePointers bool
	anonFP             bool        // code it makes at run time keeps frame pointers: V8
	runs               uint32      // Language.runs of the runtimes it holds
	notes              *lang.Notes // what those tell, as the file was
	written            written     // when that was written to last
}

// executables are all files known.
type executables struct {
	byFile map[fileID]*executable
	byID   []*executable // index 0 is no executable
	unused []uint32      // the first is the next: none is used again at once
	times  []uint32      // how often each number was given away
}

func (x *executables) init(ids int) {
	x.byFile = map[fileID]*executable{}
	x.byID = make([]*executable, 1, 64)
	x.times = make([]uint32, ids)
	for id := 1; id < ids; id++ {
		x.unused = append(x.unused, uint32(id))
	}
}

func (x *executables) count() (known, loaded int) {
	for _, e := range x.byFile {
		if e.table != nil {
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
// mapping has none. It drops the lock while it opens a file, which may sleep, so
// whatever the caller looked up before may have changed.
func (u *Unwinder) executableOf(pid int, m lifecycle.Mapping) *executable {
	if m.Path == "" || (m.Path[0] != '/' && m.Path != vdsoPath) || m.Path == "//anon" || isShared(m) || isMade(m) {
		return nil
	}
	file := fileOf(m)
	if e := u.executables.byFile[file]; e != nil && !e.worthRetry(pid) {
		return e
	}
	u.mu.Unlock()
	handle, err := u.options.Source.Open(pid, m)
	u.mu.Lock()
	e := u.executables.byFile[file]
	switch {
	case e == nil:
		if e = u.register(pid, file, m.Path); e == nil {
			break
		}
		u.opened(e, pid, handle, err)
		return e
	case e.worthRetry(pid):
		e.failed, e.identified = false, false
		u.withdraw(e, 0)
		e.close()
		u.opened(e, pid, handle, err)
		return e
	}
	if err == nil {
		handle.Close() // no number is free, or another goroutine was faster
	}
	return e
}

// register gives a file its number; nil: there is none left.
func (u *Unwinder) register(pid int, file fileID, path string) *executable {
	id, ok := u.takeID(pid)
	if !ok {
		return nil
	}
	e := &executable{id: id, identity: u.executables.times[id] % identities, file: file, path: path, met: time.Now()}
	u.executables.times[id]++
	k := &u.memory.executables.Value.E[id]
	*k = kernelExecutable{Generation: k.Generation + 1, Identity: e.identity << idBits}
	u.executables.byFile[file] = e
	for int(id) >= len(u.executables.byID) {
		u.executables.byID = append(u.executables.byID, nil)
	}
	u.executables.byID[id] = e
	if err := u.maps.Files.Update(file.key(), id, ebpf.UpdateAny); err != nil {
		u.options.Log.Debug("no room for a file", "path", path, "error", err)
	}
	return e
}

// Numbers of executables have 14 bits; those above, in a frame, are the identity:
// frames of a file that is gone are not taken for those of the next.
const (
	idBits     = 14
	identities = 1 << (63 - frameOffsetBits - idBits)
)

// takeID gives a number for a file of a process. Where there is none, the file that was not
// mapped for longest makes room, or the process that was not sampled for longest,
// and its files with it.
func (u *Unwinder) takeID(pid int) (id uint32, ok bool) {
	ids := &u.executables.unused
	if len(*ids) == 0 {
		any := func(*executable) bool { return true }
		e := u.idlest(any)
		if e == nil {
			u.evictProcesses(pid, func() bool { return u.idlest(any) != nil })
			e = u.idlest(any)
		}
		if e == nil {
			return 0, false
		}
		u.evictExecutable(e)
	}
	id = (*ids)[0]
	*ids = (*ids)[1:]
	return id, true
}

// key is how programs know the file: zero for the vdso, the only image without
// an inode.
func (f fileID) key() kernelFileKey {
	return kernelFileKey{Inode: f.inode, Device: f.major<<20 | f.minor}
}

// maxTries bounds how often a file that cannot be read is tried.
const maxTries = 3

// worthRetry tells whether a file that could not be read is to be tried once more,
// now that another process maps it: the one before may have ended while we read it.
func (e *executable) worthRetry(pid int) bool {
	return e.failed && e.tries < maxTries && e.triedFor != pid
}

// opened keeps a file that was opened. One that could not be opened stays known: its
// frames are path+offset, its stacks end there.
func (u *Unwinder) opened(e *executable, pid int, handle *os.File, err error) {
	e.tries, e.triedFor = e.tries+1, pid
	if err != nil {
		u.giveUp(e)
		u.options.Log.Debug("open executable", "pid", pid, "path", e.path, "error", err)
		return
	}
	e.handle = handle
}

// identification is what a file says of itself.
type identification struct {
	buildID string
	elf     bool
	written written
}

// identify reads the file's build-id. The lock is dropped meanwhile.
func (u *Unwinder) identify(e *executable) {
	if e.identified || e.handle == nil {
		return
	}
	handle := e.handle
	u.mu.Unlock()
	found, err := identifyFile(handle)
	u.mu.Lock()
	if e.identified || e.handle != handle {
		return // somebody else was faster, or it was evicted
	}
	e.identified = true
	if err != nil {
		u.giveUp(e)
		u.options.Log.Debug("read executable", "path", e.path, "error", err)
		return
	}
	e.buildID = found.buildID
	u.claim(e)
	if found.elf {
		e.notes, e.written = &lang.Notes{}, found.written
	}
}

func identifyFile(handle *os.File) (i identification, err error) {
	if managed, err := binfile.NewPE(handle); err == nil {
		return identification{buildID: managed.BuildID}, nil
	}
	f, err := readELF(handle)
	if err != nil {
		return i, err
	}
	i.buildID = f.BuildID()
	if info, err := handle.Stat(); err == nil {
		i.elf, i.written = true, lastWritten(info)
	}
	return i, nil
}

// giveUp publishes an executable without rows: walks end there for want of
// unwind information, and do not ask again.
func (u *Unwinder) giveUp(e *executable) {
	e.failed, e.identified = true, true
	if e.buildID == "" {
		e.buildID = "path-" + e.path
	}
	u.expose(e, 0, 0, 0)
}

func readELF(handle *os.File) (*binfile.File, error) {
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	return binfile.New(handle, info.Size())
}

// evictExecutable forgets a file.
func (u *Unwinder) evictExecutable(e *executable) {
	u.dismiss(e)
	u.unload(e, 0)
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
