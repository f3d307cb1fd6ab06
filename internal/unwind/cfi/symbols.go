package cfi

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// entrySize bounds the code at the program's entry where no symbol does: the
// _start of glibc and of musl has less than 48 bytes.
const entrySize = 64

// maxKnown bounds the size of a known function without a size of its own.
const maxKnown = 4096

// maxFound bounds the known functions of one file: there are no more than a
// dozen in any C library.
const maxFound = 64

// span is a known function.
type span struct {
	addr, size uint64
	fate       fate
}

// pick is those of the spans that have one of the fates.
func pick(spans []span, fates ...fate) (picked []span) {
	for _, s := range spans {
		if slices.Contains(fates, s.fate) {
			picked = append(picked, s)
		}
	}
	return picked
}

// knownRows has a row for each known function. They fill gaps between covered
// rows.
func knownRows(im *image, spans []span, covered []rows.Row) []rows.Row {
	type known struct {
		off, size uint32
		fate      fate
	}
	var places []known
	for _, s := range spans {
		off, room, ok := im.offset(s.addr)
		if !ok || rows.Find(covered, off).Type() != rows.Gap {
			continue
		}
		size := min(s.size, room)
		// A signal handler's return address is the start of this function, and
		// looked up minus 1.
		if s.fate == fateSignal && off > 0 && rows.Find(covered, off-1).Type() == rows.Gap {
			off, size = off-1, size+1
		}
		places = append(places, known{off, uint32(size), s.fate})
	}
	slices.SortStableFunc(places, func(a, b known) int { return int(int64(a.off) - int64(b.off)) })
	out := &rows.List{}
	for i, p := range places {
		if i+1 < len(places) {
			p.size = min(p.size, places[i+1].off-p.off)
		}
		if p.size == 0 {
			continue
		}
		out.Begin(p.off, p.size)
		if p.fate == fateSignal {
			out.Add(p.off, rows.NewRule(rows.Signal, 0, 0))
		} else {
			out.Add(p.off, rows.NewRule(rows.End, 0, 0))
		}
	}
	return out.Finish()
}

const symbolSize = 24

// symbol is an entry of .symtab or .dynsym:
//
//	name 4 | info 1 | other 1 | section 2 | value 8 | size 8
type symbol []byte

func (s symbol) name() uint32  { return binary.LittleEndian.Uint32(s) }
func (s symbol) kind() byte    { return s[4] & 0xf }
func (s symbol) global() bool  { return s[4]>>4 != 0 }
func (s symbol) section() int  { return int(binary.LittleEndian.Uint16(s[6:])) }
func (s symbol) value() uint64 { return binary.LittleEndian.Uint64(s[8:]) }
func (s symbol) size() uint64  { return binary.LittleEndian.Uint64(s[16:]) }

// maxName bounds how much of a symbol's name is looked at.
const maxName = 4096

// symbolTable is a file's table of symbols and their names.
type symbolTable struct {
	symbols []byte
	names   []byte
}

// symbols reads .symtab or, in stripped files, .dynsym: empty if there is none.
func symbols(im *image) *symbolTable {
	name := ".symtab"
	if im.file.Section(name) == nil {
		name = ".dynsym" // the other has all of its functions
	}
	sec, syms, err := im.section(name)
	if err != nil || syms == nil || int(sec.Link) >= len(im.file.Sections) {
		return &symbolTable{}
	}
	str := im.file.Sections[sec.Link]
	if str.Type != elf.SHT_STRTAB || str.Size > maxSection || str.Flags&elf.SHF_COMPRESSED != 0 {
		return &symbolTable{}
	}
	names, err := str.Data()
	if err != nil {
		return &symbolTable{}
	}
	return &symbolTable{syms, names}
}

func (t *symbolTable) name(at uint32) []byte {
	b := t.names[min(int(at), len(t.names)):]
	b = b[:min(len(b), maxName)]
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return b
}

// cold reports whether a name is one that compilers give to what they moved
// out of a function.
func (t *symbolTable) cold(at uint32) bool {
	return bytes.Contains(t.name(at), []byte(".cold"))
}

// place is where a function is, by its symbol.
type place struct {
	addr, size uint64
	name       uint32
	global     bool
}

// functions lists those that start between two addresses, one per address.
func (t *symbolTable) functions(low, high uint64) []place {
	var places []place
	for b := t.symbols; len(b) >= symbolSize; b = b[symbolSize:] {
		s := symbol(b)
		if s.kind() == byte(elf.STT_FUNC) && s.section() != 0 && s.value() >= low && s.value() < high {
			places = append(places, place{s.value(), s.size(), s.name(), s.global()})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(b.size, a.size))
	})
	return slices.CompactFunc(places, func(a, b place) bool { return a.addr == b.addr })
}

// known finds the known functions, and the program's entry. The names are found
// first, in one sweep over the string table, so that most symbols cost one
// comparison of a number.
func (t *symbolTable) known(im *image) []span {
	found := []span{{im.file.Entry, entrySize, fateEnd}}
	syms, names := t.symbols, t.names
	known, low, high := positions(names)
	var file uint32
	for b := syms; len(b) >= symbolSize && len(found) < maxFound; b = b[symbolSize:] {
		s := symbol(b)
		if s.kind() == byte(elf.STT_FILE) {
			file = s.name()
		}
		if n := s.name(); n < low || n > high || s.section() == 0 {
			continue
		}
		k, ok := known[s.name()]
		if !ok || s.kind() > byte(elf.STT_FUNC) { // none, object, function
			continue
		}
		if k.file != "" && !bytes.HasPrefix(names[min(int(file), len(names)):], []byte(k.file+".")) {
			continue
		}
		size := s.size()
		if size == 0 {
			size = untilNext(syms, s.value())
		}
		found = append(found, span{s.value(), size, k.fate})
	}
	return found
}

// positions finds where in a string table the known names begin, and the lowest
// and highest such place. Linkers let a short name be the tail of a longer one.
func positions(names []byte) (known map[uint32]knownSymbol, low, high uint32) {
	known, low = map[uint32]knownSymbol{}, math.MaxUint32
	list := knownSymbols()
	for p := 0; p < len(names); {
		n := bytes.IndexByte(names[p:], 0)
		if n < 0 {
			break
		}
		for _, k := range list {
			if at := p + n - len(k.name); at >= p && string(names[at:p+n]) == k.name {
				known[uint32(at)] = k
				low, high = min(low, uint32(at)), max(high, uint32(at))
			}
		}
		p += n + 1
	}
	return known, low, high
}

// untilNext is the distance to the next symbol, for symbols without a size.
func untilNext(syms []byte, addr uint64) uint64 {
	size := uint64(maxKnown)
	for b := syms; len(b) >= symbolSize; b = b[symbolSize:] {
		if s := symbol(b); s.section() != 0 && s.value() > addr {
			size = min(size, s.value()-addr)
		}
	}
	return size
}
