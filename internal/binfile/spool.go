package binfile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	maxUnpacked = 2 << 30 // bytes a compressed section may unpack to
	maxRatio    = 64      // times its size it may; debug information takes 3 to 8
	spoolBytes  = 1 << 20 // from here on unpacked sections go to a temporary file
)

// SectionReader is a section that is read in place, unpacked where necessary.
type SectionReader struct {
	io.ReaderAt
	Size int64
	temp *os.File
}

// Close gives back what unpacking took.
func (s *SectionReader) Close() error {
	if s == nil || s.temp == nil {
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
	return unpackSection(s.Open(), f.raw(s).Size(), name)
}

func (f *sections) openZdebug(name string) (*SectionReader, error) {
	s := f.Section(".z" + name[min(1, len(name)):])
	if s == nil {
		return nil, fmt.Errorf("section %q: %w", name, ErrNoSection)
	}
	const header = 12 // ZLIB and the size in 8 bytes
	raw := f.raw(s)
	z, err := zlib.NewReader(io.NewSectionReader(raw, header, max(raw.Size()-header, 0)))
	if err != nil {
		return nil, fmt.Errorf("unpack section %q: %w", name, err)
	}
	return unpackSection(z, raw.Size(), name)
}

func unpackSection(r io.Reader, packed int64, name string) (*SectionReader, error) {
	limit := min(packed*maxRatio+1<<20, maxUnpacked)
	r = io.LimitReader(r, limit+1)
	var small bytes.Buffer
	n, err := io.CopyN(&small, r, min(spoolBytes, limit+1))
	if err == io.EOF {
		return &SectionReader{ReaderAt: bytes.NewReader(small.Bytes()), Size: n}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("unpack section %q: %w", name, err)
	}
	temp, err := nameless()
	if err != nil {
		return nil, fmt.Errorf("unpack section %q: %w", name, err)
	}
	size, err := io.Copy(temp, io.MultiReader(&small, r))
	if err == nil && size > limit {
		err = fmt.Errorf("%d bytes become more than %d", packed, limit)
	}
	if err != nil {
		temp.Close()
		return nil, fmt.Errorf("unpack section %q: %w", name, err)
	}
	return &SectionReader{ReaderAt: NewCache(temp), Size: size, temp: temp}, nil
}

// nameless makes a file that is gone with its descriptor: on disk, or in memory
// where there is no folder to write to, as in containers that may only read theirs.
func nameless() (*os.File, error) {
	temp, err := os.CreateTemp("", "atys-section-")
	if err == nil {
		_ = os.Remove(temp.Name()) // an open file outlives its name
		return temp, nil
	}
	fd, memoryErr := unix.MemfdCreate("atys-section", unix.MFD_CLOEXEC)
	if memoryErr != nil {
		return nil, errors.Join(err, memoryErr)
	}
	return os.NewFile(uintptr(fd), "atys-section"), nil
}
