package symbol

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// untrusted is a file that anybody may have put where it is.
type untrusted struct {
	root  string                  // what links cannot lead out of; empty: our own
	path  string                  // below it
	check func(os.FileInfo) error // nil: any file will do
}

func (u untrusted) String() string { return u.root + u.path }

// growing is an untrusted file that is only ever appended to.
type growing struct {
	file untrusted
	info os.FileInfo // of the file that was read
	read int64       // bytes taken
}

// open opens the file. It reports whether that was replaced or shortened: then it is to be
// read anew.
func (g *growing) open() (f *os.File, anew bool, err error) {
	f, info, err := g.file.open()
	if err != nil {
		return nil, false, err
	}
	anew = g.info != nil && (!os.SameFile(g.info, info) || info.Size() < g.read)
	if g.info = info; anew {
		g.read = 0
	}
	return f, anew, nil
}

// open looks before it opens, because opening a pipe blocks for ever and opening
// a device acts, and a link could lead to a file that only we may read.
func (u untrusted) open() (*os.File, os.FileInfo, error) {
	fd, err := u.find()
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: u.String(), Err: err}
	}
	seen := os.NewFile(uintptr(fd), u.path)
	defer seen.Close()
	info, err := seen.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%q is not a regular file", u)
	}
	if u.check != nil {
		if err := u.check(info); err != nil {
			return nil, nil, err
		}
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	return f, info, err
}

// find gives a descriptor of what is at the path, which may be anything.
func (u untrusted) find() (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if u.root == "" {
		return unix.Open(u.path, flags, 0)
	}
	root, err := unix.Open(u.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(root)
	return unix.Openat2(root, u.path, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}
