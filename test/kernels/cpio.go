package kernels

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// Modes of archive members, as stat(2) numbers them.
const (
	modeType = 0o170000
	modeDir  = 0o040000
	modeChar = 0o020000
	modeFile = 0o100000
	modeLink = 0o120000
)

// member is one entry of an archive. Its data follows in the call to add.
type member struct {
	name         string // relative, parents first
	mode         uint32 // type and permissions
	size         int64
	major, minor uint32 // of a device
}

// archive writes cpio in the "newc" form, the one the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst):
//
//	| 070701 | 13 numbers, 8 hex digits each | name NUL pad4 | data pad4 | ...
//	   numbers: ino mode uid gid nlink mtime size
//	            devmajor devminor rdevmajor rdevminor namelen check
//
// It ends with an empty member named TRAILER!!!. Times are zero and owners
// root, so that the same members always give the same bytes.
type archive struct {
	w   *bufio.Writer
	n   int64
	ino uint32
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<16)}
}

// add appends a member with exactly m.size bytes of data.
func (a *archive) add(m member, data io.Reader) error {
	if m.size < 0 || m.size > math.MaxUint32 {
		return fmt.Errorf("pack %q: %d bytes do not fit into a cpio member", m.name, m.size)
	}
	links := uint32(1)
	if m.mode&modeType == modeDir {
		links = 2
	}
	fields := []uint32{a.ino, m.mode, 0, 0, links, 0, uint32(m.size), 0, 0,
		m.major, m.minor, uint32(len(m.name) + 1), 0}
	if err := a.header(fields, m.name); err != nil {
		return fmt.Errorf("pack %q: %w", m.name, err)
	}
	a.ino++
	if m.size > 0 {
		n, err := io.CopyN(a.w, data, m.size)
		a.n += n
		if err != nil {
			return fmt.Errorf("pack %q: %w", m.name, err)
		}
	}
	return a.pad()
}

func (a *archive) header(fields []uint32, name string) error {
	text := make([]byte, 0, 110+len(name)+1)
	text = append(text, "070701"...)
	for _, f := range fields {
		text = fmt.Appendf(text, "%08X", f)
	}
	text = append(append(text, name...), 0)
	n, err := a.w.Write(text)
	a.n += int64(n)
	if err != nil {
		return err
	}
	return a.pad()
}

func (a *archive) pad() error {
	for a.n%4 != 0 {
		if err := a.w.WriteByte(0); err != nil {
			return err
		}
		a.n++
	}
	return nil
}

// close writes the trailer and returns the archive's size.
func (a *archive) close() (int64, error) {
	const trailer = "TRAILER!!!"
	fields := []uint32{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, uint32(len(trailer) + 1), 0}
	if err := a.header(fields, trailer); err != nil {
		return a.n, err
	}
	return a.n, a.w.Flush()
}
