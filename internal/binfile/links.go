package binfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	maxLink      = 1 << 13  // bytes of a debug link: a path and a checksum
	maxMiniDebug = 16 << 20 // bytes a .gnu_debugdata may unpack to; Fedora's have less than 2 MB
)

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
