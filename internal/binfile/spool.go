package binfile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

const (
	// maxUnpacked bounds what all sections of a file unpack to that are open at once.
	// Large debug files have 1 GB of those that are read, of which .debug_info, the
	// largest, takes a half.
	maxUnpacked = 2 << 30
	maxInMemory = 256 << 20 // the same where there is no folder for temporary files
	maxRatio    = 64        // times what was read of a section it may become; debug information takes 3 to 8
	ratioSlack  = 16 << 20  // but a section may begin with what packs well
	spoolBytes  = 1 << 20   // from here on unpacked sections go to a temporary file
	maxWindow   = 64 << 20  // of zstd; its level 19 takes 8 MB
)

// SectionReader is a section that is read in place, unpacked where necessary.
type SectionReader struct {
	io.ReaderAt
	Size     int64
	temp     *os.File
	unpacked *atomic.Int64 // of the file, with this one's in it until it is closed
}

// Close gives back what unpacking took.
func (s *SectionReader) Close() error {
	if s == nil {
		return nil
	}
	if s.unpacked != nil {
		s.unpacked.Add(-s.Size)
		s.unpacked = nil
	}
	if s.temp == nil {
		return nil
	}
	return s.temp.Close()
}

// OpenSection opens a section for reading at offsets. A compressed one (by flag,
// or by the older name .zdebug_*) is unpacked, into a temporary file without a
// name if it is large. Its error wraps ErrNoSection if there is none.
func (f *sections) OpenSection(name string) (*SectionReader, error) {
	s := f.Section(name)
	if s == nil {
		return f.openZdebug(name)
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		raw := f.raw(s)
		return &SectionReader{ReaderAt: NewCache(raw), Size: raw.Size()}, nil
	}
	return f.openCompressed(s)
}

func (f *sections) openCompressed(s *elf.Section) (*SectionReader, error) {
	var header [24]byte // type, reserved, size, alignment
	raw := f.raw(s)
	if _, err := raw.ReadAt(header[:], 0); err != nil {
		return nil, fmt.Errorf("unpack section %q: %w", s.Name, err)
	}
	kind := elf.CompressionType(binary.LittleEndian.Uint32(header[:]))
	return f.unpack(s.Name, kind, io.NewSectionReader(raw, int64(len(header)), raw.Size()-int64(len(header))))
}

func (f *sections) openZdebug(name string) (*SectionReader, error) {
	s := f.Section(".z" + name[min(1, len(name)):])
	if s == nil {
		return nil, fmt.Errorf("section %q: %w", name, ErrNoSection)
	}
	const header = 12 // ZLIB and the size in 8 bytes
	raw := f.raw(s)
	return f.unpack(name, elf.COMPRESS_ZLIB, io.NewSectionReader(raw, header, max(raw.Size()-header, 0)))
}

func (f *sections) unpack(name string, kind elf.CompressionType, packed io.Reader) (section *SectionReader, err error) {
	u := &unpacking{packed: countedReader{r: packed}, total: &f.unpacked, most: maxUnpacked}
	defer func() {
		if err != nil {
			f.unpacked.Add(-u.n)
			err = fmt.Errorf("unpack section %q: %w", name, err)
		}
	}()
	s, err := u.start(kind)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	u.r = s
	return u.section()
}

// unpacking reads what a compressed section becomes, within bounds.
type unpacking struct {
	r      io.Reader
	packed countedReader
	n      int64         // unpacked so far
	total  *atomic.Int64 // of all open sections of the file
	most   int64         // of total
}

func (u *unpacking) start(kind elf.CompressionType) (io.ReadCloser, error) {
	switch kind {
	case elf.COMPRESS_ZLIB:
		return zlib.NewReader(&u.packed)
	case elf.COMPRESS_ZSTD:
		z, err := zstd.NewReader(&u.packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("unknown %v", kind)
}

// Read reads on. What was read of the packed section counts, not its size: that a file
// has a hole costs nobody anything.
func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.n += int64(n)
	if total := u.total.Add(int64(n)); total > u.most {
		return n, fmt.Errorf("the file's sections become more than %d bytes", u.most)
	}
	if u.n > u.packed.n*maxRatio+ratioSlack {
		return n, fmt.Errorf("%d bytes become more than %d", u.packed.n, u.n)
	}
	return n, err
}

func (u *unpacking) section() (*SectionReader, error) {
	var small bytes.Buffer
	n, err := io.CopyN(&small, u, spoolBytes)
	if err == io.EOF {
		return &SectionReader{ReaderAt: bytes.NewReader(small.Bytes()), Size: n, unpacked: u.total}, nil
	}
	if err != nil {
		return nil, err
	}
	temp, inMemory, err := nameless()
	if err != nil {
		return nil, err
	}
	if inMemory {
		u.most = maxInMemory
	}
	size, err := io.Copy(temp, io.MultiReader(&small, u))
	if err != nil {
		temp.Close()
		return nil, err
	}
	return &SectionReader{ReaderAt: NewCache(temp), Size: size, temp: temp, unpacked: u.total}, nil
}

// countedReader counts what was taken.
type countedReader struct {
	r io.Reader
	n int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// nameless makes a file that is gone with its descriptor: on disk, or in memory
// where there is no folder to write to, as in containers that may only read theirs.
// That a disk is full is no reason to take memory, which no limit of a process bounds.
func nameless() (temp *os.File, inMemory bool, err error) {
	temp, err = os.CreateTemp("", "atys-section-")
	if err == nil {
		_ = os.Remove(temp.Name()) // an open file outlives its name
		return temp, false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return nil, false, err
	}
	fd, memoryErr := unix.MemfdCreate("atys-section", unix.MFD_CLOEXEC)
	if memoryErr != nil {
		return nil, false, errors.Join(err, memoryErr)
	}
	return os.NewFile(uintptr(fd), "atys-section"), true, nil
}
