package cfi

import (
	"cmp"
	"debug/elf"
	"errors"
	"io"
	"math"
	"slices"
	"sort"
)

// maxSection bounds what is read of one section: 80 times the largest .eh_frame
// we have met (libLLVM 19: 6 MB).
const maxSection = 512 << 20

// inflateLimit bounds what a compressed section may grow to, in multiples of
// its size in the file: zlib allows 1000, unwind information is far denser.
const inflateLimit = 32

// maxSegments bounds the segments looked at. Real files have up to a dozen;
// overlapping ones could have the same bytes read again and again.
const maxSegments = 32

var errTooLarge = errors.New("section is too large")

// segment is a part of the file that is mapped into memory.
type segment struct {
	addr, off, size uint64
	r               io.ReaderAt
}

func (s *segment) holds(addr uint64) bool { return addr-s.addr < s.size }

// image is the file as its program headers map it.
type image struct {
	file   *elf.File
	exec   []segment    // sorted by address
	data   []segment    // readable, not executable
	last   int          // exec segment of the last hit: lookups come in runs
	relocs []relocation // see relative
}

func newImage(f *elf.File) *image {
	im := &image{file: f}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 || len(im.exec)+len(im.data) == maxSegments {
			continue
		}
		s := segment{addr: p.Vaddr, off: p.Off, size: p.Filesz, r: p.ReaderAt}
		if s.addr+s.size < s.addr {
			continue
		}
		if s.size = present(s.r, s.size); s.size == 0 {
			continue
		}
		if p.Flags&elf.PF_X == 0 {
			im.data = append(im.data, s)
			continue
		}
		// Rows have 32 bits for the offset; code beyond stays without rows.
		if s.off < math.MaxUint32 {
			s.size = min(s.size, math.MaxUint32-s.off)
			im.exec = append(im.exec, s)
		}
	}
	slices.SortFunc(im.exec, func(a, b segment) int { return cmp.Compare(a.addr, b.addr) })
	return im
}

// present is how many of the size bytes that a header promises the file really
// has: memory is spent in proportion to code, not to promises.
func present(r io.ReaderAt, size uint64) uint64 {
	has := func(n uint64) bool {
		var b [1]byte
		got, _ := r.ReadAt(b[:], int64(n-1))
		return got == 1
	}
	if has(size) {
		return size
	}
	missing := sort.Search(int(size), func(i int) bool { return !has(uint64(i) + 1) })
	return uint64(missing)
}

// offset translates an address in executable code. room is how many bytes of
// code follow in the same segment.
func (im *image) offset(addr uint64) (off uint32, room uint64, ok bool) {
	if im.last < len(im.exec) {
		if s := &im.exec[im.last]; s.holds(addr) {
			return uint32(s.off + addr - s.addr), s.size - (addr - s.addr), true
		}
	}
	for i := range im.exec {
		if s := &im.exec[i]; s.holds(addr) {
			im.last = i
			return uint32(s.off + addr - s.addr), s.size - (addr - s.addr), true
		}
	}
	return 0, 0, false
}

// read fills b from the file, at an address of any mapped segment.
func (im *image) read(b []byte, addr uint64) bool {
	s := im.segment(addr)
	if s == nil || uint64(len(b)) > s.size-(addr-s.addr) {
		return false
	}
	n, _ := s.r.ReadAt(b, int64(addr-s.addr))
	return n == len(b)
}

// segment is the one mapped at addr, nil if there is none.
func (im *image) segment(addr uint64) *segment {
	for _, segs := range [2][]segment{im.exec, im.data} {
		for i := range segs {
			if segs[i].holds(addr) {
				return &segs[i]
			}
		}
	}
	return nil
}

// section is the content of the first section whose name is one of names. It
// goes by the name: assemblers give .eh_frame one of two types.
func (im *image) section(names ...string) (*elf.Section, []byte, error) {
	for _, s := range im.file.Sections {
		if !slices.Contains(names, s.Name) || s.Type == elf.SHT_NOBITS || s.Size == 0 {
			continue
		}
		if s.Size > maxSection || s.Flags&elf.SHF_COMPRESSED != 0 && s.Size/inflateLimit > s.FileSize {
			return s, nil, errTooLarge
		}
		b, err := s.Data()
		return s, b, err
	}
	return nil, nil, nil
}
