// Package proc reads what the kernel tells about processes: mappings and the files behind them, threads and their CPU time, containers, clocks.
//
// The flow:
//
//	FS       names a /proc (another one in tests) and reads a file of it whole
//	Parse*   turn the bytes of one file into a value: pure, never panicking
//	FS.*     do both, and say in words what is wrong with a process that
//	         cannot be read: gone, a zombie, a kernel thread
//
// A process can end, exec or unmap between any two reads. Nothing here is a
// snapshot of more than one file, and a long maps file not even of itself.
package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// FS reads processes from a proc file system. The zero value reads /proc.
type FS struct {
	Root string // "" is /proc
}

// What a process can be instead of one with code to look at.
var (
	ErrNotFound     = errors.New("no such process")
	ErrKernelThread = errors.New("kernel thread")
	ErrZombie       = errors.New("zombie")
)

// Error says which process could not be read, and why.
type Error struct {
	PID  int
	Comm string // as far as it is known
	PPID int    // the parent that has yet to collect a zombie
	Err  error  // ErrNotFound, ErrKernelThread, ErrZombie
}

func (e *Error) Error() string {
	switch e.Err {
	case ErrNotFound:
		return fmt.Sprintf("process %d does not exist (any more)", e.PID)
	case ErrKernelThread:
		return fmt.Sprintf("process %d (%q) is a kernel thread: it has no user code; profile the whole system to see it", e.PID, e.Comm)
	case ErrZombie:
		return fmt.Sprintf("process %d (%q) is a zombie: it has exited, and its parent %d has yet to collect it", e.PID, e.Comm, e.PPID)
	}
	return fmt.Sprintf("process %d: %v", e.PID, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// path names a file of a process.
func (f FS) path(pid int, file string) string {
	return cmp.Or(f.Root, "/proc") + "/" + strconv.Itoa(pid) + "/" + file
}

// buffers hold files while they are parsed: at 500 new processes a second
// they would otherwise be most of our garbage.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKept bounds the buffers the pool keeps, maxFile what is read of a file
// (65,530 mappings, the kernel's default limit, of 1,000 bytes each).
const (
	maxKept = 1 << 20
	maxFile = 64 << 20
)

// read hands the contents of a file to parse, which must not keep them.
func read(name string, parse func([]byte) error) error {
	buf := buffers.Get().(*[]byte)
	data, err := readAll((*buf)[:0], name)
	if err == nil {
		err = parse(data)
	}
	if cap(data) <= maxKept {
		*buf = data
		buffers.Put(buf)
	}
	return err
}

// parsed is a parser for read that keeps its result.
func parsed[T any](to *T, parse func([]byte) (T, error)) func([]byte) error {
	return func(data []byte) (err error) {
		*to, err = parse(data)
		return err
	}
}

// readAs reads a file, whose content errors name, and parses it.
func readAs[T any](what, name string, parse func([]byte) (T, error)) (v T, err error) {
	if err = read(name, parsed(&v, parse)); err != nil {
		err = fmt.Errorf("read %s: %w", what, err)
	}
	return v, err
}

// readOf reads a file of a process or thread, which may be gone, and parses it.
func readOf[T any](name string, id int, parse func([]byte) (T, error)) (v T, err error) {
	if err = read(name, parsed(&v, parse)); err != nil && gone(err) {
		err = &Error{PID: id, Err: ErrNotFound}
	}
	return v, err
}

// readAll appends a file to buf. It stays with plain system calls: os.File
// adds a poller that files of /proc have no use for.
func readAll(buf []byte, name string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return buf, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	for {
		if cap(buf)-len(buf) < 4096 { // a read of /proc returns at most a page
			buf = append(buf, make([]byte, max(16<<10, len(buf)))...)[:len(buf)]
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return buf, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
		if len(buf) > maxFile {
			return buf, &fs.PathError{Op: "read", Path: name, Err: errors.New("unreasonably long")}
		}
	}
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// gone reports whether a file of a process is missing because the process is.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
}

// readPID reads a file of a process whole and parses it; a missing file is
// explained by what the process is.
func (f FS) readPID(pid int, file string, parse func([]byte) error) error {
	err := read(f.path(pid, file), parse)
	switch {
	case err == nil:
		return nil
	case gone(err):
		return f.explain(pid, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w; %s", err, AsRoot(fmt.Sprintf(", or as the user of process %d, or with CAP_SYS_PTRACE", pid), "CAP_SYS_PTRACE"))
	}
	return err
}

// explain finds the reason for an error about a process in the process.
func (f FS) explain(pid int, err error) error {
	if _, why := f.Check(pid); why != nil {
		return why
	}
	return err
}
