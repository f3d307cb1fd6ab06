package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"

	"atys.dev/atys/internal/unwind/cfi/cursor"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// The pclntab formats, by the Go release that introduced them. Go 1.7 is the
// first that keeps frame pointers; its format is that of 1.2.
const (
	pcln12  = 0xfffffffb
	pcln116 = 0xfffffffa
	pcln118 = 0xfffffff0
	pcln120 = 0xfffffff1
)

// Bits of a function's flag byte (Go 1.17 and later).
const (
	flagTopFrame = 1 << 0
	flagSPWrite  = 1 << 1
	flagAsm      = 1 << 2
)

// Bounds on the work that a crafted file can ask for.
const (
	maxTables   = 16   // headers tried, where the table has no section
	maxPointers = 64   // pointers to the table tried
	maxDecoded  = 4096 // functions decoded; the runtime has a few dozen
	maxSteps    = 64   // steps per function, on average; real ones have 7
)

// goTable is Go's function table. For each function it has the exact distance
// of rsp from its value on entry, pc by pc:
//
//	0xfffffff1 | 0 0 | pc quantum | pointer size | words...
//	words: functions, files, text start, then offsets from here of
//	       names, compilation units, files, pc tables, functions
//
// Go 1.16 has no text start, its entries are absolute; before that everything
// is at offsets from the start and the functions follow their count at once.
type goTable struct {
	addr     uint64 // of the table in memory
	magic    uint32
	count    int
	text     uint64 // what entries are relative to, 0 where they are absolute
	names    []byte
	pcs      []byte
	funcs    []byte // first the index, then what it points to
	field    int    // size of an index field
	funcID   int    // offset of the function's id; its flags follow
	quantum  uint64
	subFirst bool // prologues subtract first and save rbp after: see slotRBP
}

// findGoTable returns nil for programs that are not Go, or too old.
func findGoTable(im *image) *goTable {
	sec, b, err := im.section(".gopclntab", ".data.rel.ro.gopclntab")
	if err == nil && b != nil {
		return parseGoTable(im, b, sec.Addr)
	}
	// Linked by the system's linker, the table has no section of its own.
	isGo := func(s *elf.Section) bool { return s.Name == ".go.buildinfo" || s.Name == ".note.go.buildid" }
	if len(im.file.Sections) > 0 && !slices.ContainsFunc(im.file.Sections, isGo) {
		return nil
	}
	for i := range im.data {
		if t := scanGoTable(im, &im.data[i]); t != nil {
			return t
		}
	}
	return nil
}

// scanGoTable looks for the table in a data segment, by its header.
func scanGoTable(im *image, s *segment) *goTable {
	b := make([]byte, min(s.size, maxSection))
	n, _ := s.r.ReadAt(b, 0)
	b = b[:n]
	tried := 0
	for _, magic := range []uint32{pcln120, pcln118, pcln116, pcln12} {
		head := binary.LittleEndian.AppendUint32(nil, magic)
		head = append(head, 0, 0, 1, 8)
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], head)
			if i < 0 {
				break
			}
			if tried++; tried > maxTables {
				return nil
			}
			at += i
			if t := parseGoTable(im, b[at:], s.addr+uint64(at)); t != nil {
				return t
			}
		}
	}
	return nil
}

func parseGoTable(im *image, b []byte, addr uint64) *goTable {
	c := cursor.Cursor{Bytes: b}
	t := &goTable{addr: addr, magic: c.U32(), field: 8, funcID: 40}
	if c.U16() != 0 {
		return nil
	}
	if t.quantum = uint64(c.U8()); t.quantum != 1 || c.U8() != 8 {
		return nil
	}
	count := c.U64()
	from := func() []byte {
		if off := c.U64(); off < uint64(len(b)) {
			return b[off:]
		}
		c.Bad = true
		return nil
	}
	switch t.magic {
	case pcln120, pcln118:
		t.field = 4
		if t.magic == pcln118 {
			t.funcID = 36
		}
		c.U64() // files
		t.text = c.U64()
		t.names = from()
		from()
		from()
		t.pcs, t.funcs = from(), from()
	case pcln116:
		c.U64()
		t.names = from()
		from()
		from()
		t.pcs, t.funcs = from(), from()
	case pcln12:
		t.names, t.pcs, t.funcs = b, b, b[c.Pos:]
		t.funcID = math.MaxInt
	default:
		return nil
	}
	if c.Bad || count == 0 || count >= uint64(len(t.funcs)/(2*t.field)) {
		return nil
	}
	t.count = int(count)
	if !t.locate(im) {
		return nil
	}
	return t
}

// entry is the address of function i, or of the end after the last one.
func (t *goTable) entry(i int) uint64 {
	at := t.funcs[i*2*t.field:]
	if t.field == 4 {
		return t.text + uint64(binary.LittleEndian.Uint32(at))
	}
	return binary.LittleEndian.Uint64(at)
}

// plausible reports whether all functions lie in executable code.
func (t *goTable) plausible(im *image) bool {
	first, end := t.entry(0), t.entry(t.count)
	if end <= first {
		return false
	}
	_, room, ok := im.offset(first)
	return ok && end-first <= room
}

// locate finds the address that entries are relative to. Up to Go 1.25 the
// table has it, unless a relocation supplies it; the module data always has
// it, beside the address of the table.
func (t *goTable) locate(im *image) bool {
	if t.field == 8 || t.text != 0 {
		return t.plausible(im)
	}
	for _, at := range im.pointersTo(t.addr) {
		// runtime.moduledata: the table first, then seven slices and a
		// pointer; the lowest and highest pc, and the start of the text.
		const minpc, maxpc, text = 160, 168, 176
		t.text = im.pointer(at + text)
		if t.text != 0 && t.plausible(im) &&
			im.pointer(at+minpc) == t.entry(0) && im.pointer(at+maxpc) == t.entry(t.count) {
			return true
		}
	}
	return false
}

// pointersTo lists the addresses in data where a pointer to addr stands, or
// will once relocations are applied.
func (im *image) pointersTo(addr uint64) []uint64 {
	var at []uint64
	for _, r := range im.relative() {
		if r.value == addr && len(at) < maxPointers {
			at = append(at, r.at)
		}
	}
	want := binary.LittleEndian.AppendUint64(nil, addr)
	for i := range im.data {
		s := &im.data[i]
		b := make([]byte, min(s.size, maxSection))
		n, _ := s.r.ReadAt(b, 0)
		for b, p := b[:n], 0; ; p++ {
			k := bytes.Index(b[p:], want)
			if k < 0 || len(at) >= maxPointers {
				break
			}
			if p += k; p%8 == 0 {
				at = append(at, s.addr+uint64(p))
			}
		}
	}
	return at
}

// pointer is the pointer that stands at an address once the file is loaded at
// the address it was linked for.
func (im *image) pointer(at uint64) uint64 {
	if v := im.word(at); v != 0 {
		return v
	}
	rel := im.relative()
	if i, ok := slices.BinarySearchFunc(rel, at, func(r relocation, at uint64) int {
		if r.at < at {
			return -1
		} else if r.at > at {
			return 1
		}
		return 0
	}); ok {
		return rel[i].value
	}
	return 0
}

func (im *image) word(at uint64) uint64 {
	var b [8]byte
	if !im.read(b[:], at) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// rows converts every function. reasons counts what could not be expressed.
func (t *goTable) rows(im *image, reasons map[string]int) []rows.Row {
	out := &rows.List{Rows: make([]rows.Row, 0, 6*t.count)}
	g := &goFunc{t: t, im: im, out: out, reasons: reasons, code: make([]byte, maxGoCode)}
	behind := uint64(0)
	for i := range t.count {
		addr, end := t.entry(i), t.entry(i+1)
		off, room, ok := im.offset(addr)
		if !ok || addr < behind || end <= addr || end-addr > room || !g.describe(i) {
			continue
		}
		g.addr, g.off, g.size = addr, off, end-addr
		g.convert()
		behind = end
		if g.taken > maxSteps*t.count {
			break
		}
	}
	return out.Finish()
}

// step is a stretch of code up to an offset in the function, with rsp delta
// bytes below where it was on entry.
type step struct {
	end   uint64
	delta int32
}

// steps decodes a pc table: pairs of a zig-zag delta of the value and a delta
// of the pc, up to a value delta of zero.
func (t *goTable) steps(list []step, at uint32, size uint64) []step {
	if at == 0 || uint64(at) >= uint64(len(t.pcs)) {
		return list
	}
	c := cursor.Cursor{Bytes: t.pcs, Pos: int(at)}
	value, pc := int32(-1), uint64(0)
	for pc < size {
		d := uint32(c.ULEB())
		if d == 0 && pc != 0 || c.Bad {
			break
		}
		value += int32(d>>1) ^ -int32(d&1)
		n := uint64(uint32(c.ULEB())) * t.quantum
		if c.Bad || n == 0 {
			break
		}
		pc = min(pc+n, size)
		list = append(list, step{pc, value})
	}
	return list
}

// goFunc is the function being converted.
type goFunc struct {
	t       *goTable
	im      *image
	out     *rows.List
	reasons map[string]int
	code    []byte // buffer for what has to be looked at

	name []byte
	flag byte
	pcsp uint32
	addr uint64
	off  uint32
	size uint64
	path []step
	body int32 // the largest delta

	taken   int // steps so far
	decoded int // functions so far
}

// describe fills in what the table says of function i.
func (g *goFunc) describe(i int) bool {
	t := g.t
	c := cursor.Cursor{Bytes: t.funcs, Pos: i*2*t.field + t.field}
	at, base := uint64(0), t.funcs
	if t.field == 4 {
		at = uint64(c.U32())
	} else {
		at = c.U64()
	}
	if t.magic == pcln12 {
		base = t.names // its offsets count from the start of the table
	}
	if at >= uint64(len(base)) {
		return false
	}
	// entry (of the width of the index) | name | arguments | deferreturn | pcsp
	f := cursor.Cursor{Bytes: base[at:]}
	f.Take(uint64(t.field))
	name := uint64(f.U32())
	f.Take(8)
	g.pcsp = f.U32()
	if f.Bad {
		return false
	}
	g.flag, g.name = 0, nil
	if t.funcID < len(f.Bytes)-1 {
		g.flag = f.Bytes[t.funcID+1]
	}
	if name < uint64(len(t.names)) {
		n := cursor.Cursor{Bytes: t.names[name:min(name+maxGoName+1, uint64(len(t.names)))]}
		g.name = n.CString()
	}
	return true
}

// fate is what the reviewed list says of the function. Symbols of assembly
// carry their ABI. Names longer than all in the list read as empty.
func (g *goFunc) fate() fate {
	return goFate(string(bytes.TrimSuffix(g.name, []byte(".abi0"))))
}
