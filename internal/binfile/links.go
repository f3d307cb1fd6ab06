package binfile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	maxLink      = 1 << 13   // bytes of a debug link: a path and a checksum
	maxMiniDebug = 256 << 20 // bytes a .gnu_debugdata may unpack to
)

// ErrNoSection is what readers of sections wrap where the file has none such.
var ErrNoSection = errors.New("no such section")

// Section gives a section that has bytes in this file; nil if it has none.
// Debug files keep the names of sections whose content they left out.
func (f *File) Section(name string) *elf.Section {
	for _, s := range f.ELF.Sections {
		if s.Name == name && s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			return s
		}
	}
	return nil
}

// SectionData reads a whole section, decompressed. One that is larger than
// limit, or unpacks to more, is an error.
func (f *File) SectionData(name string, limit int64) ([]byte, error) {
	s := f.Section(name)
	if s == nil {
		return nil, fmt.Errorf("section %q: %w", name, ErrNoSection)
	}
	return f.sectionData(s, limit)
}

// raw reads the bytes a section has in the file. (The readers that come with
// elf.Section are nil for compressed sections.)
func (f *File) raw(s *elf.Section) *io.SectionReader {
	if s.Type == elf.SHT_NOBITS || s.Offset >= uint64(f.size) {
		return io.NewSectionReader(f.r, 0, 0)
	}
	return io.NewSectionReader(f.r, int64(s.Offset), int64(min(s.FileSize, uint64(f.size)-s.Offset)))
}

func (f *File) sectionData(s *elf.Section, limit int64) ([]byte, error) {
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

// DebugLink gives the name and checksum of the separate debug file.
func (f *File) DebugLink() (name string, crc uint32, ok bool) {
	data, err := f.SectionData(".gnu_debuglink", maxLink)
	if err != nil || len(data) < 8 {
		return "", 0, false
	}
	name, _, ok = strings.Cut(string(data[:len(data)-4]), "\x00")
	if !ok || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return "", 0, false
	}
	return name, binary.LittleEndian.Uint32(data[len(data)-4:]), true
}

// AltLink gives the path and the build-id of the file that several debug files
// share (made by dwz).
func (f *File) AltLink() (path, buildID string, ok bool) {
	data, err := f.SectionData(".gnu_debugaltlink", maxLink)
	if err != nil {
		return "", "", false
	}
	path, id, ok := strings.Cut(string(data), "\x00")
	if !ok || path == "" || id == "" || len(id) > maxID {
		return "", "", false
	}
	return path, hex.EncodeToString([]byte(id)), true
}

// MiniDebug opens the compressed symbol table that some distributions embed in
// .gnu_debugdata. Its error wraps ErrNoSection where there is none.
func (f *File) MiniDebug() (*File, error) {
	s := f.Section(".gnu_debugdata")
	if s == nil {
		return nil, fmt.Errorf("section %q: %w", ".gnu_debugdata", ErrNoSection)
	}
	data, err := unpackXZ(f.raw(s), maxMiniDebug)
	if err != nil {
		return nil, fmt.Errorf("unpack section %q: %w", s.Name, err)
	}
	return New(bytes.NewReader(data), int64(len(data)))
}
