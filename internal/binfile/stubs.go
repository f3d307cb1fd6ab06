package binfile

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"strings"
)

// Stub is a piece of code by which the linker lets calls reach another file.
type Stub struct {
	Name          string // of the function it jumps to; empty for the resolver's entry
	Address, Size uint64
}

const (
	maxStubBytes = 1 << 24 // of one section of stubs
	maxRelocs    = 1 << 24 // of one file
	maxSlots     = 1 << 20 // of functions that stubs jump to; libLLVM has some 40,000
	maxSlotNames = 1 << 26 // bytes of their names, which may be ends of each other
	relaBytes    = 24
)

func (f *File) stubSections() (sections []*elf.Section) {
	for _, s := range f.ELF.Sections {
		if s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_EXECINSTR != 0 &&
			(s.Name == ".plt" || strings.HasPrefix(s.Name, ".plt.")) {
			sections = append(sections, s)
		}
	}
	return sections
}

// Stubs lists the linker's stubs. Each is found by its jump through a slot, and
// named by the relocation that fills that slot: this holds for every layout
// linkers have used (.plt, .plt.got, .plt.sec, with bnd or endbr64). Slots of
// the file's own indirect functions are named by its symbols, or by those of its
// debug files.
func (f *File) Stubs(debug ...*File) (stubs []Stub) {
	sections := f.stubSections()
	if len(sections) == 0 {
		return nil
	}
	slots := f.slotNames(debug)
	for _, s := range sections {
		data := make([]byte, min(s.FileSize, maxStubBytes))
		n, _ := f.raw(s).ReadAt(data, 0)
		size := 16
		if s.Name == ".plt.got" && s.Entsize == 8 {
			size = 8
		}
		for at := 0; at+size <= n; at += size {
			stub := Stub{Address: s.Addr + uint64(at), Size: uint64(size)}
			slot, ok := slotOfStub(data[at:at+size], stub.Address)
			if ok {
				stub.Name = slots[slot]
			}
			// The first entry of a lazy .plt pushes the file's link map and
			// enters the dynamic linker. Others without a name stay unknown.
			if stub.Name != "" || at == 0 && s.Name == ".plt" {
				stubs = append(stubs, stub)
			}
		}
	}
	return stubs
}

// slotOfStub finds the address jmp *disp32(%rip) (ff 25) reads.
func slotOfStub(code []byte, address uint64) (uint64, bool) {
	// It stands first, or behind endbr64 (4 bytes), a bnd prefix, or both.
	for _, at := range []int{0, 1, 4, 5} {
		if at+6 <= len(code) && code[at] == 0xff && code[at+1] == 0x25 {
			disp := int32(binary.LittleEndian.Uint32(code[at+2:]))
			return address + uint64(at+6) + uint64(int64(disp)), true
		}
	}
	return 0, false
}

// slotNames maps the address of each slot that a relocation fills with a
// function's address to the function's name.
func (f *File) slotNames(debug []*File) map[uint64]string {
	slots := map[uint64]string{}
	local := map[uint64][]uint64{} // resolver -> slots
	left, bytes := maxSlots, maxSlotNames
	f.relocations(func(off, info uint64, addend int64, table *elf.Section) {
		if left <= 0 || bytes <= 0 {
			return
		}
		switch elf.R_X86_64(info & 0xffffffff) {
		case elf.R_X86_64_JMP_SLOT, elf.R_X86_64_GLOB_DAT:
			if name := f.symbolName(table, uint32(info>>32)); name != "" {
				slots[off] = name
				left--
				bytes -= len(name)
			}
		case elf.R_X86_64_IRELATIVE:
			local[uint64(addend)] = append(local[uint64(addend)], off)
			left--
		}
	})
	if len(local) == 0 {
		return slots
	}
	// Calls to an indirect function of the same file name its resolver.
	var indirect []Symbol
	for _, d := range append([]*File{f}, debug...) {
		d.EachSymbol(func(s Symbol) {
			if s.Type == elf.STT_GNU_IFUNC && local[s.Address] != nil {
				indirect = append(indirect, s)
			}
		})
	}
	slices.SortFunc(indirect, func(a, b Symbol) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range indirect {
		for _, off := range local[s.Address] {
			if slots[off] == "" {
				slots[off] = s.Name
			}
		}
	}
	return slots
}

// relocations calls back for each entry of the dynamic relocation sections.
func (f *sections) relocations(each func(off, info uint64, addend int64, symbols *elf.Section)) {
	left := maxRelocs
	for _, s := range f.ELF.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		var symbols *elf.Section
		if int64(s.Link) < int64(len(f.ELF.Sections)) {
			symbols = f.ELF.Sections[s.Link]
		}
		r := bufio.NewReaderSize(f.raw(s), 1<<15)
		var raw [relaBytes]byte
		for ; left > 0; left-- {
			if _, err := io.ReadFull(r, raw[:]); err != nil {
				break
			}
			each(binary.LittleEndian.Uint64(raw[0:]), binary.LittleEndian.Uint64(raw[8:]),
				int64(binary.LittleEndian.Uint64(raw[16:])), symbols)
		}
	}
}

// symbolName reads the name of one symbol.
func (f *symbols) symbolName(table *elf.Section, index uint32) string {
	if table == nil || index == 0 || (table.Type != elf.SHT_DYNSYM && table.Type != elf.SHT_SYMTAB) ||
		int64(table.Link) >= int64(len(f.ELF.Sections)) {
		return ""
	}
	var raw [4]byte
	if _, err := f.raw(table).ReadAt(raw[:], int64(index)*symbolBytes); err != nil {
		return ""
	}
	const maxName = 1 << 14
	off := int64(binary.LittleEndian.Uint32(raw[:]))
	for size := 128; size <= maxName; size *= 4 {
		buf := make([]byte, size)
		n, err := f.raw(f.ELF.Sections[table.Link]).ReadAt(buf, off)
		if name, _, ok := strings.Cut(string(buf[:n]), "\x00"); ok {
			name, _, _ = strings.Cut(name, "@")
			return name
		}
		if err != nil {
			break
		}
	}
	return ""
}
