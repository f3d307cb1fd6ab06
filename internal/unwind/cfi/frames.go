package cfi

import (
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"

	"atys.dev/atys/internal/unwind/cfi/cursor"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// DW_EH_PE pointer encodings: the format in the low four bits, what the value
// is relative to in the next three.
const (
	encAbs      = 0x00
	encULEB     = 0x01
	encU16      = 0x02
	encU32      = 0x03
	encU64      = 0x04
	encSLEB     = 0x09
	encS16      = 0x0a
	encS32      = 0x0b
	encS64      = 0x0c
	encFormat   = 0x0f
	encPCRel    = 0x10
	encTextRel  = 0x20
	encDataRel  = 0x30
	encFuncRel  = 0x40
	encAligned  = 0x50
	encBase     = 0x70
	encIndirect = 0x80
	encOmit     = 0xff
)

// frameSection is a run of CIEs and FDEs: .eh_frame or .debug_frame.
//
//	.eh_frame     length | 0, or distance back to the CIE      | body
//	.debug_frame  length | all ones, or position of the CIE    | body
//	              (a length of 0xffffffff is followed by the real one, 64 bits)
type frameSection struct {
	b    []byte
	addr uint64 // of b[0], in memory
	eh   bool
	text uint64 // bases of relative pointers
	data uint64
	cies map[uint64]*cie // by position
}

// cie is what a group of functions has in common.
type cie struct {
	codeAlign uint64
	dataAlign int64
	enc       byte // of the pointers in its FDEs
	augmented bool // FDEs carry augmentation data
	init      state
	flaw      string // why its FDEs cannot be used
}

// entry is one length-prefixed piece of the section.
type entry struct {
	start int // position of the length
	id    uint64
	idPos int
	body  cursor.Cursor
	next  int
}

// entry reads the entry at p. ok is false at the end, and where the lengths
// no longer make sense.
func (s *frameSection) entry(p int) (e entry, ok bool) {
	c := cursor.Cursor{Bytes: s.b, Pos: p}
	size := uint64(c.U32())
	wide := size == math.MaxUint32
	if wide {
		size = c.U64()
	}
	e.start, e.idPos = p, c.Pos
	if c.Bad || size > uint64(len(s.b)-c.Pos) {
		return e, false
	}
	e.next = c.Pos + int(size)
	e.body = cursor.Cursor{Bytes: s.b[:e.next], Pos: c.Pos}
	if size == 0 {
		return e, true
	}
	// .eh_frame keeps 32-bit ids even in entries with a 64-bit length.
	if wide && !s.eh {
		e.id = e.body.U64()
	} else {
		e.id = uint64(e.body.U32())
		if !s.eh && e.id == math.MaxUint32 {
			e.id = math.MaxUint64
		}
	}
	return e, !e.body.Bad
}

func (s *frameSection) isCIE(e *entry) bool {
	if s.eh {
		return e.id == 0
	}
	return e.id == math.MaxUint64
}

// cie finds the CIE of an FDE, nil if there is none.
func (s *frameSection) cie(fde *entry) *cie {
	if s.eh {
		return s.cies[uint64(fde.idPos)-fde.id]
	}
	return s.cies[fde.id]
}

// readCIEs reads them all first: .debug_frame may refer forward. Only what the
// walk from entry to entry meets counts, or a crafted file could have the same
// bytes read as a different CIE for each FDE.
func (s *frameSection) readCIEs(x *executor) {
	s.cies = map[uint64]*cie{}
	for p := 0; ; {
		e, ok := s.entry(p)
		if !ok {
			return
		}
		p = e.next
		if e.next > e.idPos && s.isCIE(&e) {
			s.cies[uint64(e.start)] = s.parseCIE(&e, x)
		}
	}
}

func (s *frameSection) parseCIE(e *entry, x *executor) *cie {
	c := &cie{enc: encAbs}
	b := &e.body
	version := b.U8()
	aug := b.CString()
	if string(aug) == "eh" { // gcc 2: a pointer to exception data
		b.Take(8)
		aug = nil
	}
	if version >= 4 && b.U8() != 8|b.U8() { // address size, segment selector size
		c.flaw = "cie address size"
		return c
	}
	c.codeAlign = b.ULEB()
	c.dataAlign = b.SLEB()
	ra := uint64(0)
	if version == 1 {
		ra = uint64(b.U8())
	} else {
		ra = b.ULEB()
	}
	switch {
	case b.Bad:
		c.flaw = "cie cut off"
	case version != 1 && version != 3 && version != 4:
		c.flaw = "cie version"
	case ra != regRA:
		c.flaw = "cie return address column"
	case len(aug) > 0 && aug[0] != 'z':
		c.flaw = "cie augmentation"
	}
	if c.flaw != "" {
		return c
	}
	if len(aug) > 0 {
		c.augmented = true
		s.augmentation(c, aug[1:], cursor.Cursor{Bytes: b.Take(b.ULEB())})
	}
	if b.Bad {
		c.flaw = "cie cut off"
		return c
	}
	x.initial(c, *b)
	return c
}

func (s *frameSection) augmentation(c *cie, letters []byte, b cursor.Cursor) {
	for _, l := range letters {
		switch l {
		case 'R':
			c.enc = b.U8()
		case 'L':
			b.U8()
		case 'P':
			s.pointer(&b, b.U8(), 0) // to get past it
		case 'S': // a signal frame: known by its expressions, see state.rule
		default:
			return // the data has a length, what follows is not needed
		}
	}
}

// pointer reads an encoded address. fn is the start of the function, for
// addresses relative to it.
func (s *frameSection) pointer(c *cursor.Cursor, enc byte, fn uint64) (uint64, bool) {
	if enc == encOmit {
		return 0, false
	}
	base := uint64(0)
	switch enc & encBase {
	case encPCRel:
		base = s.addr + uint64(c.Pos)
	case encTextRel:
		base = s.text
	case encDataRel:
		base = s.data
	case encFuncRel:
		base = fn
	case encAligned:
		for (s.addr+uint64(c.Pos))%8 != 0 && c.More() {
			c.Pos++
		}
	}
	v := uint64(0)
	switch enc & encFormat {
	case encAbs, encU64, encS64:
		v = c.U64()
	case encULEB:
		v = c.ULEB()
	case encU16:
		v = uint64(c.U16())
	case encU32:
		v = uint64(c.U32())
	case encSLEB:
		v = uint64(c.SLEB())
	case encS16:
		v = uint64(int64(int16(c.U16())))
	case encS32:
		v = uint64(int64(int32(c.U32())))
	default:
		return 0, false
	}
	// What is indirect is known in memory only; code addresses never are.
	return base + v, !c.Bad && enc&encIndirect == 0
}

// fde is a function as an FDE describes it.
type fde struct {
	addr, size uint64
	cie        *cie
	code       cursor.Cursor // its instructions
}

// fde reads the FDE in e; ok is false for one that describes no code.
func (s *frameSection) fde(e *entry) (d fde, ok bool) {
	if d.cie = s.cie(e); d.cie == nil {
		return d, false
	}
	if d.addr, ok = s.pointer(&e.body, d.cie.enc, 0); !ok {
		return d, false
	}
	if d.size, ok = s.pointer(&e.body, d.cie.enc&encFormat, 0); !ok || d.size == 0 {
		return d, false
	}
	if d.cie.augmented {
		e.body.Take(e.body.ULEB())
	}
	d.code = e.body
	return d, !d.code.Bad
}

// functions lists the FDEs in the order of the code they describe, as file
// offset (high half) and position in the section.
func (s *frameSection) functions(im *image, x *executor) []uint64 {
	s.readCIEs(x)
	list := make([]uint64, 0, len(s.b)/48)
	for p := 0; ; {
		e, ok := s.entry(p)
		if !ok {
			break
		}
		p = e.next
		// A zero length ends the section, but linkers have left such ends of
		// single input files in the middle: go on.
		if e.next == e.idPos || s.isCIE(&e) {
			continue
		}
		d, ok := s.fde(&e)
		if !ok {
			continue
		}
		if off, _, ok := im.offset(d.addr); ok {
			list = append(list, uint64(off)<<32|uint64(e.start))
		}
	}
	slices.Sort(list)
	return list
}

// rows runs every FDE. What is covered already needs no answer from here:
// functions that start there are skipped.
func (s *frameSection) rows(covered []rows.Row, im *image, x *executor) []rows.Row {
	list := s.functions(im, x)
	out := &rows.List{Rows: make([]rows.Row, 0, len(s.b)/10)}
	for _, f := range list {
		if len(covered) > 0 && rows.Find(covered, uint32(f>>32)).Type() != rows.Gap {
			continue
		}
		e, ok := s.entry(int(uint32(f)))
		if !ok {
			continue
		}
		d, ok := s.fde(&e)
		if !ok {
			continue
		}
		off, room, ok := im.offset(d.addr)
		if !ok {
			continue
		}
		out.Begin(off, uint32(min(d.size, room)))
		x.function(&d, off, out, s)
	}
	return out.Finish()
}

// ehFrame is the .eh_frame section, found by its name or, where the section
// headers are stripped, through the program header of its index.
func ehFrame(im *image) (*frameSection, error) {
	sec, b, err := im.section(".eh_frame")
	if err != nil {
		return nil, err
	}
	if b == nil {
		return indexedFrames(im), nil
	}
	s := &frameSection{b: b, addr: sec.Addr, eh: true}
	s.bases(im)
	return s, nil
}

func debugFrame(im *image) (*frameSection, error) {
	_, b, err := im.section(".debug_frame")
	if err != nil || b == nil {
		return nil, err
	}
	return &frameSection{b: b}, nil
}

// bases finds what text- and data-relative pointers are relative to.
func (s *frameSection) bases(im *image) {
	if t := im.file.Section(".text"); t != nil {
		s.text = t.Addr
	}
	if g, err := im.file.DynValue(elf.DT_PLTGOT); err == nil && len(g) > 0 {
		s.data = g[0]
	}
}

// indexedFrames finds .eh_frame through .eh_frame_hdr:
//
//	version 1 | enc of eh_frame | enc of count | enc of table | eh_frame | count | (address, FDE)...
//
// The size is nowhere: the FDE furthest back in the table bounds it, or else
// the first entry of length zero.
func indexedFrames(im *image) *frameSection {
	for _, p := range im.file.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME || p.Filesz < 8 || p.Filesz > maxSection {
			continue
		}
		hdr := make([]byte, present(p.ReaderAt, p.Filesz))
		if n, _ := p.ReadAt(hdr, 0); n != len(hdr) || n < 8 || hdr[0] != 1 {
			continue
		}
		h := &frameSection{b: hdr, addr: p.Vaddr, data: p.Vaddr}
		c := cursor.Cursor{Bytes: hdr, Pos: 4}
		start, ok := h.pointer(&c, hdr[1], 0)
		seg := im.segment(start)
		if !ok || seg == nil {
			continue
		}
		at := start - seg.addr
		b := make([]byte, min(seg.size-at, maxSection))
		n, _ := seg.r.ReadAt(b, int64(at))
		s := &frameSection{b: b[:n], addr: start, eh: true}
		s.bases(im)
		count, ok := h.pointer(&c, hdr[2], 0)
		if !ok || hdr[3] != encDataRel|encS32 {
			s.cut(0)
			return s
		}
		count = min(count, uint64(len(hdr)-c.Pos)/8)
		furthest := uint64(0)
		for i := range count {
			fde := p.Vaddr + uint64(int64(int32(binary.LittleEndian.Uint32(hdr[c.Pos+int(i)*8+4:])))) - start
			if fde < uint64(n) {
				furthest = max(furthest, fde)
			}
		}
		s.cut(int(furthest))
		return s
	}
	return nil
}

// cut ends the section behind the entry at p, or at the first one from there
// on that has no length.
func (s *frameSection) cut(p int) {
	e, ok := s.entry(p)
	for p == 0 && ok && e.next > e.idPos {
		e, ok = s.entry(e.next)
	}
	if ok {
		s.b = s.b[:e.next]
	}
}
