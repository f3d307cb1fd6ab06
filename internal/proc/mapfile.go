package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrReplaced says that the path of a mapping leads to another file, or to
// none, and that what is mapped could not be reached another way.
var ErrReplaced = errors.New("the file was replaced or deleted after it was mapped")

// MapFile opens the file behind a mapping: the very file, never the one that
// took its path. It tries, in this order,
//
//	/proc/PID/map_files/START-END  always right; needs CAP_CHECKPOINT_RESTORE
//	/proc/PID/exe                  if it is the program itself
//	/proc/PID/root/PATH            the path in the mount namespace of the process
//
// and compares device and inode of the last two with those of the mapping.
func (f FS) MapFile(pid int, m Mapping) (*os.File, error) {
	if !m.HasFile() {
		return nil, fmt.Errorf("open mapping %q of process %d: there is no file behind it", m.Path, pid)
	}
	mapping := mappedFile{f, pid, m}
	file, err := mapping.open()
	if err == nil {
		return file, nil
	}
	s, why := f.Check(pid)
	if why != nil {
		return nil, fmt.Errorf("open mapping %q: %w", m.Path, why)
	}
	if tid, ok := f.survivor(s); ok {
		if file, err = (mappedFile{f, tid, m}).open(); err == nil {
			return file, nil
		}
	}
	if gone(err) {
		err = ErrReplaced
	}
	return nil, mapping.explain(err)
}

// mappedFile is a mapping with the process, or the thread of it, that has it.
type mappedFile struct {
	fs  FS
	pid int
	Mapping
}

func (m mappedFile) open() (*os.File, error) {
	if file, err := openRegular(unix.AT_FDCWD, m.link(), nil, nil); err == nil {
		return file, nil
	}
	return m.openByPath()
}

// link is where map_files shows the file.
func (m mappedFile) link() string {
	return m.fs.path(m.pid, "map_files/"+strconv.FormatUint(m.Start, 16)+"-"+strconv.FormatUint(m.End, 16))
}

// StatMapped tells of the file behind a mapping without opening it: a fifth of the
// work of MapFile, for whoever has read the file before. Where it cannot tell it
// returns an error, and MapFile may do all the same.
func (f FS) StatMapped(pid int, m Mapping) (st unix.Stat_t, err error) {
	if !m.HasFile() {
		return st, fmt.Errorf("stat mapping %q of process %d: there is no file behind it", m.Path, pid)
	}
	if err := unix.Stat(mappedFile{f, pid, m}.link(), &st); err != nil {
		return st, fmt.Errorf("stat mapping %q of process %d: %w", m.Path, pid, err)
	}
	return st, nil
}

// explain adds which privilege is missing.
func (m mappedFile) explain(err error) error {
	hint := ""
	switch {
	case errors.Is(err, ErrReplaced):
		hint = "; only root, or CAP_CHECKPOINT_RESTORE, can still open it through map_files"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		hint = "; " + AsRoot(", or with CAP_DAC_READ_SEARCH", "CAP_DAC_READ_SEARCH") + ": the file itself may not be read"
		if root, rootErr := m.fs.openRoot(m.pid); rootErr == nil {
			unix.Close(root)
		} else {
			hint = "; " + AsRoot(", or as the same user, or with CAP_SYS_PTRACE", "CAP_SYS_PTRACE")
		}
	}
	return fmt.Errorf("open mapping %q of process %d: %w%s", m.Path, m.pid, err, hint)
}

// openByPath opens the file without map_files.
func (m mappedFile) openByPath() (*os.File, error) {
	if file, err := openRegular(unix.AT_FDCWD, m.fs.path(m.pid, "exe"), nil, &m.Mapping); err == nil {
		return file, nil
	}
	root, err := m.fs.openRoot(m.pid)
	if err != nil {
		// The same file may be at the same path for us: on newer kernels (6.18)
		// whoever has CAP_PERFMON may read mappings, but not go there.
		if file, err2 := openOurs(m.Mapping); err2 == nil {
			return file, nil
		}
		return nil, err
	}
	defer unix.Close(root)
	// The process owns the tree below its root: its links must not lead us
	// out of it, and following links of /proc in it would run its traps.
	how := unix.OpenHow{Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for _, path := range candidates(m.Mapping) {
		file, err2 := openRegular(root, path, &how, &m.Mapping)
		if err2 == nil {
			return file, nil
		}
		if err == nil || !gone(err2) {
			err = err2
		}
	}
	return nil, err
}

func (f FS) openRoot(pid int) (int, error) {
	return retry(func() (int, error) {
		return unix.Open(f.path(pid, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
}

// openOurs opens what is at the path of a mapping in our own mount namespace,
// if it is the file that is mapped. Nothing says that the process shares that
// namespace, so the device must be the same too, whatever the file system.
func openOurs(m Mapping) (*os.File, error) {
	how := unix.OpenHow{Resolve: unix.RESOLVE_NO_MAGICLINKS}
	file, err := openRegular(unix.AT_FDCWD, m.Path, &how, &m)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || unix.Major(st.Dev) != m.Major || unix.Minor(st.Dev) != m.Minor {
		file.Close()
		return nil, ErrReplaced
	}
	return file, nil
}

// candidates returns the paths a file may be at: what ParseMaps took for the
// kernel's mark of deleted files or for an escaped newline may be its name.
func candidates(m Mapping) []string {
	paths := []string{m.Path}
	if m.Deleted {
		paths = append(paths, m.Path+" (deleted)")
	}
	if strings.Contains(m.Path, "\n") {
		paths = append(paths, strings.ReplaceAll(m.Path, "\n", `\012`))
	}
	return paths
}

// openRegular opens a regular file for reading; if m is given, only the file
// that it maps. It looks before it opens, because opening a pipe blocks and
// opening a device acts.
func openRegular(dir int, path string, how *unix.OpenHow, m *Mapping) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		if how == nil {
			return unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		how.Flags = unix.O_PATH | unix.O_CLOEXEC
		return unix.Openat2(dir, path, how)
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, ErrReplaced
	}
	if m != nil && !same(fd, &st, m) {
		return nil, ErrReplaced
	}
	return os.Open("/proc/self/fd/" + strconv.Itoa(fd))
}

// same reports whether a file is the one that m maps. File systems made of
// others (overlayfs, btrfs with its subvolumes) show other devices in stat
// than in maps; there the inode, which both show, has to be enough.
func same(fd int, st *unix.Stat_t, m *Mapping) bool {
	if st.Ino != m.Inode {
		return false
	}
	if unix.Major(st.Dev) == m.Major && unix.Minor(st.Dev) == m.Minor {
		return true
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false
	}
	return fs.Type == unix.OVERLAYFS_SUPER_MAGIC || fs.Type == unix.BTRFS_SUPER_MAGIC
}

// maxVDSO bounds the copy of a vdso: two pages today.
const maxVDSO = 1 << 20

// VDSO returns the code the kernel puts into a process (an ELF image) and
// where it lies. For the caller itself it needs no privilege.
func (f FS) VDSO(pid int) (image []byte, m Mapping, err error) {
	maps, err := f.Maps(pid)
	if err != nil {
		return nil, m, err
	}
	if s, err := f.Check(pid); err == nil {
		if tid, ok := f.survivor(s); ok {
			pid = tid
		}
	}
	for _, m := range maps {
		if m.Backing != BackingVDSO || m.End-m.Start > maxVDSO {
			continue
		}
		// Not by /proc/PID/mem: a process with capabilities from its file may not
		// open its own.
		image := make([]byte, m.End-m.Start)
		if _, err := (Memory{pid}).ReadAt(image, int64(m.Start)); err != nil {
			return nil, m, fmt.Errorf("read vdso: %w", err)
		}
		return image, m, nil
	}
	return nil, m, fmt.Errorf("read vdso: process %d has none", pid)
}
