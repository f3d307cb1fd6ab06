package unwind

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
)

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

// executable is a file that processes map as code. The lock of tables guards it, but for
// id, identity, file and path, which never change, and runs.
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
	runs               atomic.Uint32 // Language.runs of the runtimes it holds; readable without the lock
	notes              *lang.Notes   // what those tell, as the file was
	written            written       // when that was written to last
}

// loads reports whether the file of a mapping is one that may have unwinding tables.
func loads(m lifecycle.Mapping) bool {
	return m.Path != "" && (m.Path[0] == '/' || m.Path == vdsoPath) && m.Path != "//anon" && !isShared(m) && !isMade(m)
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

// key is how programs know the file: zero for the vdso, the only image without
// an inode.
func (f fileID) key() kernelFileKey {
	return kernelFileKey{Inode: f.inode, Device: f.major<<20 | f.minor}
}

// makesFramePointers reports whether code that the file's runtime makes at run time keeps
// frame pointers.
func (e *executable) makesFramePointers() bool { return e.runs.Load()&V8.runs() != 0 }

// maxTries bounds how often a file that cannot be read is tried.
const maxTries = 3

// worthRetry tells whether a file that could not be read is to be tried once more,
// now that another process maps it: the one before may have ended while we read it.
func (e *executable) worthRetry(pid int) bool {
	return e.failed && e.tries < maxTries && e.triedFor != pid
}

// mayBuild reports whether it is worth to build the table now.
func (e *executable) mayBuild() bool {
	if !e.refused.IsZero() && time.Since(e.refused) < refuseFor {
		return false
	}
	return time.Since(e.builtAt) >= buildPart*e.took
}

// copyFrom takes over what is known of another file that holds the same image.
func (e *executable) copyFrom(other *executable) {
	e.built, e.builtAt, e.took = true, other.builtAt, other.took
	e.keepsFramePointers = other.keepsFramePointers
	e.runs.Store(other.runs.Load())
	e.shareNotes(other)
}

// source returns the file as others may open it.
func (e *executable) source() File {
	handle := e.handle
	return File{BuildID: e.buildID, Path: e.path, Open: func() (*os.File, error) {
		if handle == nil {
			return nil, fmt.Errorf("open %q: %w", e.path, os.ErrNotExist)
		}
		return os.Open(fmt.Sprintf("/proc/self/fd/%d", handle.Fd()))
	}}
}

// written is the state that a file was left in when it was written to last.
type written struct{ at, size int64 }

func lastWritten(info os.FileInfo) written {
	return written{info.ModTime().UnixNano(), info.Size()}
}

// currentNotes are what is known of the runtimes in a file, and are forgotten
// with it: nothing yet where it was written to since.
func (e *executable) currentNotes() *lang.Notes {
	info, err := e.handle.Stat()
	if err != nil {
		return nil
	}
	if now := lastWritten(info); e.notes == nil || now != e.written {
		e.notes, e.written = &lang.Notes{}, now
	}
	return e.notes
}

// shareNotes has copies of one file noted once. That they are copies, only a
// build-id proves.
func (e *executable) shareNotes(other *executable) {
	if !binfile.IsSubstitute(e.buildID) && other.notes != nil {
		e.notes = other.notes
	}
}

func readELF(handle *os.File) (*binfile.File, error) {
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	return binfile.New(handle, info.Size())
}

// executables are all files known.
type executables struct {
	entries entries
	byFile  map[fileID]*executable
	byID    []*executable // index 0 is no executable
	unused  []uint32      // the first is the next: none is used again at once
	times   []uint32      // how often each number was given away
	claims  claims
}

func newExecutables(all entries) executables {
	x := executables{entries: all, byFile: map[fileID]*executable{}, byID: make([]*executable, 1, 64), claims: claims{}}
	ids := len(all.memory.Value.E)
	x.times = make([]uint32, ids)
	for id := 1; id < ids; id++ {
		x.unused = append(x.unused, uint32(id))
	}
	return x
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

// Numbers of executables have 14 bits; those above, in a frame, are the identity:
// frames of a file that is gone are not taken for those of the next.
const (
	idBits     = 14
	identities = 1 << (63 - frameOffsetBits - idBits)
)

// register gives a file its number; nil: there is none left.
func (x *executables) register(file fileID, path string) *executable {
	if len(x.unused) == 0 {
		return nil
	}
	id := x.unused[0]
	x.unused = x.unused[1:]
	e := &executable{id: id, identity: x.times[id] % identities, file: file, path: path, met: time.Now()}
	x.times[id]++
	x.byFile[file] = e
	for int(id) >= len(x.byID) {
		x.byID = append(x.byID, nil)
	}
	x.byID[id] = e
	x.entries.register(e)
	return e
}

// remove forgets a file.
func (x *executables) remove(e *executable) {
	e.close()
	delete(x.byFile, e.file)
	x.entries.forget(e)
	x.byID[e.id] = nil
	x.unused = append(x.unused, e.id)
}

// numbered returns the executable that has a number now, nil if none has.
func (x *executables) numbered(id uint32) *executable {
	if int(id) >= len(x.byID) {
		return nil
	}
	return x.byID[id]
}

// framed returns the executable of a frame; nil if that was forgotten since, and another may
// have its number.
func (x *executables) framed(id uint32) *executable {
	if e := x.numbered(id & (1<<idBits - 1)); e != nil && e.identity == id>>idBits {
		return e
	}
	return nil
}

// idlest returns the file that was not mapped for longest, at least for as long as idle.
func (x *executables) idlest(idle time.Duration) (oldest *executable) {
	for _, e := range x.byFile {
		if e.uses == 0 && time.Since(e.idle) >= idle && (oldest == nil || e.idle.Before(oldest.idle)) {
			oldest = e
		}
	}
	return oldest
}

// with returns an executable that has a table; nil: none has.
func (x *executables) with(t *paging.Table) *executable {
	for _, e := range x.byFile {
		if e.table == t {
			return e
		}
	}
	return nil
}

// twin returns another executable that has a table and holds the same image: a copy in a
// container, or one that was replaced by itself.
func (x *executables) twin(e *executable) *executable {
	for _, other := range x.byFile {
		if other.table != nil && other.image == e.image && e.image != "" {
			return other
		}
	}
	return nil
}
