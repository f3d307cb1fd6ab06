package binfile

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// ErrNoSection is what readers of sections wrap where the file has none such.
var ErrNoSection = errors.New("no such section")

// sections reads the sections of a file.
type sections struct {
	// ELF gives the headers. Read sections through Section, SectionData and
	// OpenSection, which bound what they allocate.
	ELF *elf.File

	r    io.ReaderAt
	size int64

	unpacked atomic.Int64 // bytes of open sections that were compressed
}

// Section gives a section that has bytes in this file; nil if it has none.
// Debug files keep the names of sections whose content they left out.
func (f *sections) Section(name string) *elf.Section {
	for _, s := range f.ELF.Sections {
		if s.Name == name && s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			return s
		}
	}
	return nil
}

// SectionData reads a whole section, decompressed. One that is larger than
// limit, or unpacks to more, is an error.
func (f *sections) SectionData(name string, limit int64) ([]byte, error) {
	s := f.Section(name)
	if s == nil {
		return nil, fmt.Errorf("section %q: %w", name, ErrNoSection)
	}
	return f.sectionData(s, limit)
}

// raw reads the bytes a section has in the file. (The readers that come with
// elf.Section are nil for compressed sections.)
func (f *sections) raw(s *elf.Section) *io.SectionReader {
	if s.Type == elf.SHT_NOBITS || s.Offset >= uint64(f.size) {
		return io.NewSectionReader(f.r, 0, 0)
	}
	return io.NewSectionReader(f.r, int64(s.Offset), int64(min(s.FileSize, uint64(f.size)-s.Offset)))
}

func (f *sections) sectionData(s *elf.Section, limit int64) ([]byte, error) {
	if s.Size > uint64(limit) {
		return nil, fmt.Errorf("section %q has %d bytes: more than %d are not read", s.Name, s.Size, limit)
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		raw := f.raw(s) // no larger than the file is
		data := make([]byte, raw.Size())
		if _, err := io.ReadFull(raw, data); err != nil || uint64(len(data)) < s.FileSize {
			return nil, fmt.Errorf("read section %q: %w", s.Name, cmp.Or(err, io.ErrUnexpectedEOF))
		}
		return data, nil
	}
	// What a compressed section says of its size may be a lie: read and see.
	data, err := io.ReadAll(io.LimitReader(s.Open(), limit))
	if err != nil {
		return nil, fmt.Errorf("unpack section %q: %w", s.Name, err)
	}
	return data, nil
}
