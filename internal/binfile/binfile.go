// Package binfile opens executables, libraries and debug files safely: ELF in
// whatever state it is found, and what a profiler needs to know of it.
//
// The flow:
//
//  1. Open or New reads the headers, within bounds (headers.go); a file whose
//     section table is damaged or cut off is still opened by its program
//     headers (binfile.go).
//  2. BuildID identifies the content (buildid.go); Offset and Address translate
//     between file offsets, which locations are made of, and the link-time
//     addresses that all tables inside the file use (segments.go).
//  3. Symbols, Stubs and FrameStarts read what bounds and names code
//     (symbols.go, stubs.go, framehdr.go).
//  4. DebugLink, AltLink and MiniDebug lead to more of the same kept elsewhere
//     (links.go); package debugfile follows them.
//
// Files are read with pread, never mapped: another process may truncate a
// mapped file at any time, and reading behind its end is then a SIGBUS. What is
// read often goes through a Cache, which makes up for it.
//
// Everything here may be written by an enemy. No reader panics, and none
// allocates more than the file's size or a fixed bound.
package binfile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// ErrNotELF is what Open wraps for a file that is no ELF file at all.
var ErrNotELF = errors.New("not an ELF file")

// File is one open ELF file. Its methods may be called concurrently.
type File struct {
	symbols // with the sections
	segments

	closer io.Closer

	idOnce sync.Once
	id     string
}

// Open opens the file at a path.
func Open(path string) (*File, error) {
	// Opening a pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return FromFile(f)
}

// FromFile reads an open file, and closes it on Close or failure.
func FromFile(f *os.File) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	// Reading a pipe or a device might block for ever.
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%q is not a regular file", f.Name())
	}
	b, err := New(f, info.Size())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%q: %w", f.Name(), err)
	}
	b.closer = f
	return b, nil
}

// New reads ELF from anything that can be read at an offset.
func New(r io.ReaderAt, size int64) (*File, error) {
	var ident [elf.EI_NIDENT]byte
	if _, err := r.ReadAt(ident[:], 0); err != nil || string(ident[:4]) != elf.ELFMAG {
		return nil, ErrNotELF
	}
	if elf.Class(ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("%v %v: only 64-bit little-endian ELF is read",
			elf.Class(ident[elf.EI_CLASS]), elf.Data(ident[elf.EI_DATA]))
	}
	bounded := io.NewSectionReader(r, 0, size)
	h, err := readHeaders(bounded)
	if err != nil {
		return nil, fmt.Errorf("read headers: %w", err)
	}
	e, err := elf.NewFile(h)
	if err != nil {
		h.hideSections()
		sectionless, err2 := elf.NewFile(h)
		if err2 != nil {
			return nil, fmt.Errorf("read headers: %w", err)
		}
		e = sectionless
	}
	return &File{symbols: symbols{sections{ELF: e, r: bounded, size: size}}, segments: readSegments(e, bounded, size)}, nil
}

// Close closes the file, if it was opened here.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// OSFile is the open file behind it; nil for what New was given.
func (f *File) OSFile() *os.File {
	file, _ := f.closer.(*os.File)
	return file
}

// Size is the file's size when it was opened.
func (f *File) Size() int64 { return f.size }

// ReadAt reads at a file offset.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.r.ReadAt(p, off) }

// IsGo tells whether the Go linker made the file.
func (f *File) IsGo() bool {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid", ".go.buildinfo"} {
		if f.ELF.Section(name) != nil {
			return true
		}
	}
	return f.goBuildID() != ""
}

const (
	dynBytes   = 16
	maxDynamic = 1 << 16 // bytes of PT_DYNAMIC looked at; real ones have under 1 KiB
)

// dynamicFlag gives the value of a tag of the dynamic section, 0 without it.
func (f *File) dynamicFlag(tag uint64) uint64 {
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		data := make([]byte, min(p.Filesz, maxDynamic))
		n, _ := p.ReadAt(data, 0)
		for d := data[:n]; len(d) >= dynBytes; d = d[dynBytes:] {
			if binary.LittleEndian.Uint64(d) == tag {
				return binary.LittleEndian.Uint64(d[8:])
			}
		}
	}
	return 0
}
