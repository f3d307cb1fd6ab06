package binfile

import (
	"debug/elf"
	"io"
)

// Segment is one executable part of the file that the loader maps.
type Segment struct {
	Offset, Address, Size uint64 // Size is what the file holds of it
}

// segments translates between addresses and offsets, and reads by address.
type segments struct {
	file  io.ReaderAt
	loads []elf.ProgHeader // all PT_LOAD
	exec  []Segment
}

func readSegments(e *elf.File, r io.ReaderAt, size int64) segments {
	f := segments{file: r}
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		// The loader refuses what overflows, and what is behind the file's end
		// was never mapped.
		if p.Off > uint64(size) || p.Vaddr+p.Memsz < p.Vaddr {
			continue
		}
		h := p.ProgHeader
		h.Filesz = min(h.Filesz, uint64(size)-h.Off)
		f.loads = append(f.loads, h)
		if p.Flags&elf.PF_X != 0 && h.Filesz > 0 {
			f.exec = append(f.exec, Segment{Offset: h.Off, Address: h.Vaddr, Size: h.Filesz})
		}
	}
	return f
}

// Executable lists the executable segments in the order of the file.
func (f *segments) Executable() []Segment { return f.exec }

// Offset translates an address of code to the file's offset.
func (f *segments) Offset(address uint64) (uint64, bool) {
	for _, s := range f.exec {
		if address >= s.Address && address-s.Address < s.Size {
			return address - s.Address + s.Offset, true
		}
	}
	return 0, false
}

// Address translates a file offset of code to the address it was linked for.
func (f *segments) Address(offset uint64) (uint64, bool) {
	for _, s := range f.exec {
		if offset >= s.Offset && offset-s.Offset < s.Size {
			return offset - s.Offset + s.Address, true
		}
	}
	return 0, false
}

// ReadAddress reads what the file loads at an address, code or data. It reads
// less than asked, with io.EOF, where the segment ends.
func (f *segments) ReadAddress(p []byte, address uint64) (int, error) {
	for _, l := range f.loads {
		if address < l.Vaddr || address-l.Vaddr >= l.Filesz {
			continue
		}
		rest := l.Filesz - (address - l.Vaddr)
		short := uint64(len(p)) > rest
		if short {
			p = p[:rest]
		}
		n, err := f.file.ReadAt(p, int64(l.Off+address-l.Vaddr))
		if err == nil && short {
			err = io.EOF
		}
		return n, err
	}
	return 0, io.EOF
}
