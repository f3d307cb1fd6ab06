package binfile

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"strings"
)

// Symbol is a symbol that stands for code.
type Symbol struct {
	Name    string // without version
	Address uint64
	Size    uint64 // 0 where the assembler was not told
	Type    elf.SymType
	Bind    elf.SymBind
	Dynamic bool // of the dynamic symbol table
	// SectionEnd is the address where the symbol's section ends; a symbol
	// without a size cannot reach beyond it.
	SectionEnd uint64
}

const (
	symbolBytes = 24
	maxStrings  = 1 << 28 // bytes of a string table; Chromium's has some 200 MB
	maxSymbols  = 1 << 23 // read of one file; Chromium has some 2 million
	maxTables   = 4       // of symbols; files have 1 or 2
)

// Names may be ends of each other, so that a table of 1 MB may hold names of 100 GB.
// Of a file no more is given than the largest string table has, and of one table no
// more than a few times its own size: files of C++, Rust, Java and Go have up to 1.4
// times, and only because functions of the same name share it. What has no name
// behind that stays an address.
const (
	nameShare     = 4
	nameSlack     = 1 << 20
	maxNameLength = 1 << 16 // compilers of C++ write up to some thousand
)

// symbolRoom is what may still be read of a file's symbols.
type symbolRoom struct{ tables, symbols, names int }

// symbols reads the tables of symbols among the sections.
type symbols struct{ sections }

// Symbols lists the defined symbols of code in .symtab and .dynsym, in the
// tables' order, and tells whether there was a full table (.symtab) among them.
// A damaged table yields what can be read of it. Names share one string per
// table: who keeps a few of many should clone them.
func (f *symbols) Symbols() (symbols []Symbol, full bool) {
	full = f.EachSymbol(func(s Symbol) { symbols = append(symbols, s) })
	return symbols, full
}

// EachSymbol calls back with what Symbols would list.
func (f *symbols) EachSymbol(each func(Symbol)) (full bool) {
	left := &symbolRoom{tables: maxTables, symbols: maxSymbols, names: maxStrings}
	for i, s := range f.ELF.Sections {
		if (s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM) && s.Flags&elf.SHF_COMPRESSED == 0 {
			n := f.eachSymbolOf(i, left, each)
			full = full || s.Type == elf.SHT_SYMTAB && n > 0
		}
	}
	return full
}

func (f *symbols) eachSymbolOf(table int, left *symbolRoom, each func(Symbol)) (n int) {
	if left.tables--; left.tables < 0 {
		return 0
	}
	s := f.ELF.Sections[table]
	names := f.stringTable(s.Link)
	if names == "" {
		return 0
	}
	room := min(left.names, nameShare*len(names)+nameSlack)
	left.names -= room
	defer func() { left.names += room }() // what is over is the next table's
	r := bufio.NewReaderSize(f.raw(s), 1<<16)
	var raw [symbolBytes]byte
	for ; left.symbols > 0; left.symbols-- {
		if _, err := io.ReadFull(r, raw[:]); err != nil {
			return n
		}
		kind, bind := elf.ST_TYPE(raw[4]), elf.ST_BIND(raw[4])
		if kind != elf.STT_FUNC && kind != elf.STT_NOTYPE && kind != elf.STT_GNU_IFUNC {
			continue
		}
		index := int(binary.LittleEndian.Uint16(raw[6:]))
		if index == int(elf.SHN_UNDEF) || index >= len(f.ELF.Sections) {
			continue // undefined, absolute or common; sections past 65,279 hold debug data
		}
		section := f.ELF.Sections[index]
		address := binary.LittleEndian.Uint64(raw[8:])
		if section.Flags&elf.SHF_EXECINSTR == 0 || address < section.Addr || address-section.Addr >= section.Size {
			continue
		}
		longest := min(room, maxNameLength)
		name, whole := stringAt(names, binary.LittleEndian.Uint32(raw[0:]), longest)
		if !whole {
			room -= longest // looking for its end is work, too
			continue
		}
		room -= len(name)
		if name, _, _ = strings.Cut(name, "@"); name == "" {
			continue
		}
		n++
		each(Symbol{Name: name, Address: address, Size: binary.LittleEndian.Uint64(raw[16:]),
			Type: kind, Bind: bind, Dynamic: s.Type == elf.SHT_DYNSYM, SectionEnd: section.Addr + section.Size})
	}
	return n
}

func (f *symbols) stringTable(index uint32) string {
	if int64(index) >= int64(len(f.ELF.Sections)) || f.ELF.Sections[index].Type != elf.SHT_STRTAB ||
		f.ELF.Sections[index].Flags&elf.SHF_COMPRESSED != 0 {
		return ""
	}
	raw := f.raw(f.ELF.Sections[index])
	if raw.Size() > maxStrings {
		return ""
	}
	// A Builder makes the string without a second copy of it.
	var b strings.Builder
	b.Grow(int(raw.Size()))
	if _, err := io.Copy(&b, raw); err != nil {
		return ""
	}
	return b.String()
}

// stringAt gives a string of at most limit bytes; false where it is longer or cut off.
func stringAt(table string, off uint32, limit int) (string, bool) {
	if int64(off) >= int64(len(table)) {
		return "", true
	}
	table = table[off:]
	i := strings.IndexByte(table[:min(len(table), limit+1)], 0)
	return table[:max(i, 0)], i >= 0
}

// LookupSymbols finds symbols of any kind, data included, by exact name, and
// gives the address of each that is defined.
func (f *symbols) LookupSymbols(names ...string) map[string]uint64 {
	found := map[string]uint64{}
	for _, s := range f.ELF.Sections {
		if (s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM) || s.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		if int64(s.Link) >= int64(len(f.ELF.Sections)) {
			continue
		}
		table, err := f.sectionData(f.ELF.Sections[s.Link], maxStrings)
		if err != nil {
			continue
		}
		wanted := map[uint32]string{}
		for _, name := range names {
			// Linkers may let one string be the tail of another, so that
			// every occurrence counts.
			for at, n := 0, []byte(name+"\x00"); ; at++ {
				i := bytes.Index(table[at:], n)
				if i < 0 {
					break
				}
				at += i
				wanted[uint32(at)] = name
			}
		}
		if len(wanted) > 0 {
			findSymbols(f.raw(s), wanted, found)
		}
		if len(found) == len(names) {
			break
		}
	}
	return found
}

func findSymbols(table io.Reader, wanted map[uint32]string, found map[string]uint64) {
	r := bufio.NewReaderSize(io.LimitReader(table, maxSymbols*symbolBytes), 1<<16)
	var raw [symbolBytes]byte
	for {
		if _, err := io.ReadFull(r, raw[:]); err != nil {
			return
		}
		name, ok := wanted[binary.LittleEndian.Uint32(raw[0:])]
		if ok && binary.LittleEndian.Uint16(raw[6:]) != uint16(elf.SHN_UNDEF) {
			if _, ok := found[name]; !ok {
				found[name] = binary.LittleEndian.Uint64(raw[8:])
			}
		}
	}
}
