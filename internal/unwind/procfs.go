package unwind

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
)

// Proc is the Source that reads /proc.
type Proc struct{ FS proc.FS }

// PIDs lists all processes.
func (p Proc) PIDs() ([]int, error) { return p.FS.PIDs() }

// Mappings lists a process's mappings of code.
func (p Proc) Mappings(pid int) ([]lifecycle.Mapping, error) {
	found, err := p.FS.Executable(pid)
	if err != nil {
		return nil, err
	}
	out := make([]lifecycle.Mapping, len(found))
	for i, m := range found {
		out[i] = lifecycle.Mapping{Start: m.Start, End: m.End, Offset: m.Offset,
			Major: m.Major, Minor: m.Minor, Inode: m.Inode, Path: m.Path}
	}
	return out, nil
}

// Open opens the file behind a mapping; the vdso, which has none, is copied
// into one: it is the same in each process.
func (p Proc) Open(pid int, m lifecycle.Mapping) (*os.File, error) {
	if m.Path == vdsoPath {
		image, _, err := p.FS.VDSO(os.Getpid())
		if err != nil {
			return nil, fmt.Errorf("read the vdso: %w", err)
		}
		return anonymousFile("vdso", image)
	}
	path, deleted := strings.CutSuffix(m.Path, " (deleted)")
	mapping := proc.Mapping{Start: m.Start, End: m.End, Offset: m.Offset,
		Major: m.Major, Minor: m.Minor, Inode: m.Inode, Backing: proc.BackingFile, Deleted: deleted, Path: path}
	if strings.HasPrefix(path, "/memfd:") {
		mapping.Backing = proc.BackingMemfd
	}
	return p.FS.MapFile(pid, mapping)
}

// anonymousFile makes a file that has no name and lives while it is open.
func anonymousFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(content, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write memfd: %w", err)
	}
	return f, nil
}
