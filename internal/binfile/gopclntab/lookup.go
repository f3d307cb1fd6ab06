package gopclntab

import (
	"bytes"
	"encoding/binary"
	"io"
	"sort"
)

// Numbers of the tables each function has, and their fields' places.
const (
	pcdataInlineTree   = 2
	funcdataInlineTree = 3

	inlineBytes116 = 20 // parent, id, file, line, name, parent pc
	inlineBytes120 = 16 // id, name, parent pc, start line
)

// function is the part of the runtime's _func that is needed here.
type function struct {
	entry, end uint64
	at         int64 // of the record
	name       uint32
	pcfile     uint32
	pcline     uint32
	npcdata    uint32
	unit       uint32
	startLine  uint32
	nfuncdata  uint8
	tables     int64 // of the pcdata array
}

// Lookup names an address as the file was linked, the innermost inlined call
// first. The address must lie inside the instruction asked about, not behind a
// call. It is false where the table has nothing.
func (t *Table) Lookup(pc uint64) (frames []Frame, ok bool) {
	fn, ok := t.find(pc)
	if !ok {
		return nil, false
	}
	tree, hasTree := t.inlineTree(fn)
	for range maxInlined {
		file, line := t.position(fn, pc)
		index := int32(-1)
		if hasTree {
			index = t.value(fn, t.pcdata(fn, pcdataInlineTree), pc)
		}
		if index < 0 {
			frames = append(frames, Frame{Function: t.string(t.names + int64(fn.name)), File: file, Line: line,
				StartLine: int(fn.startLine)})
			return frames, frames[len(frames)-1].Function != ""
		}
		name, parent, startLine, ok := t.inlinedCall(tree, index)
		if !ok || fn.entry+uint64(parent) >= fn.end {
			return nil, false
		}
		frames = append(frames, Frame{Function: t.string(t.names + int64(name)), File: file, Line: line,
			StartLine: int(startLine), Inlined: true})
		pc = fn.entry + uint64(parent)
	}
	return nil, false
}

// find reads the record of the function that holds an address.
func (t *Table) find(pc uint64) (fn function, ok bool) {
	if pc < t.firstPC || pc >= t.behindPC {
		return fn, false
	}
	var err error
	i := int64(sort.Search(int(t.nfunc), func(i int) bool {
		entry, e := t.entry(int64(i))
		if e != nil {
			err = e
		}
		return entry > pc
	})) - 1
	if i < 0 || err != nil {
		return fn, false
	}
	fn.entry, _ = t.entry(i)
	fn.end, _ = t.entry(i + 1)
	if t.version == go116 {
		off, _ := t.u64(t.functab + i*functab116 + ptrSize)
		fn.at = t.functab + int64(min(off, uint64(t.size)))
	} else {
		off, _ := t.u32(t.functab + i*functab118 + 4)
		fn.at = t.functab + int64(off)
	}
	return fn, pc >= fn.entry && pc < fn.end && t.readFunction(&fn)
}

func (t *Table) readFunction(fn *function) bool {
	var raw [44]byte
	size := int64(44)
	at := fn.at
	switch t.version {
	case go116:
		at += 4 // the entry has 8 bytes: what follows stands 4 further down
		size = 40
	case go118:
		size = 40
	}
	if at < 0 || at+size > t.size {
		return false
	}
	if _, err := t.r.ReadAt(raw[:size], at); err != nil {
		return false
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(raw[i*4:]) }
	fn.name, fn.pcfile, fn.pcline, fn.npcdata, fn.unit = word(1), word(5), word(6), word(7), word(8)
	if t.version >= go120 {
		fn.startLine = word(9)
	}
	fn.nfuncdata = raw[size-1]
	fn.tables = at + size
	return true
}

// pcdata gives the offset of one of a function's tables in pctab, 0 without it.
func (t *Table) pcdata(fn function, table uint32) uint32 {
	if table >= fn.npcdata {
		return 0
	}
	off, err := t.u32(fn.tables + int64(table)*4)
	if err != nil {
		return 0
	}
	return off
}

// inlineTree gives the address of a function's inline tree.
func (t *Table) inlineTree(fn function) (uint64, bool) {
	if fn.nfuncdata <= funcdataInlineTree {
		return 0, false
	}
	at := fn.tables + int64(fn.npcdata)*4
	if t.version == go116 {
		// Pointers, aligned in memory as the whole table is.
		at = (at + ptrSize - 1) &^ (ptrSize - 1)
		tree, err := t.u64(at + funcdataInlineTree*ptrSize)
		return tree, err == nil && tree != 0
	}
	off, err := t.u32(at + funcdataInlineTree*4)
	return t.inline + uint64(off), err == nil && off != ^uint32(0) && t.inline != 0
}

// inlinedCall reads one call of an inline tree: what was called, and an offset
// from the function's entry at which its caller's position is found.
func (t *Table) inlinedCall(tree uint64, index int32) (name, parent, startLine uint32, ok bool) {
	var raw [inlineBytes116]byte
	size := uint64(inlineBytes116)
	if t.version >= go120 {
		size = inlineBytes120
	}
	if n, _ := t.file.ReadAddress(raw[:size], tree+uint64(index)*size); n < int(size) {
		return 0, 0, 0, false
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(raw[i*4:]) }
	if t.version >= go120 {
		return word(1), word(2), word(3), true
	}
	return word(3), word(4), 0, true
}

// position gives file and line of an address in a function.
func (t *Table) position(fn function, pc uint64) (file string, line int) {
	line = max(int(t.value(fn, fn.pcline, pc)), 0)
	number := t.value(fn, fn.pcfile, pc)
	if number < 0 {
		return "", line
	}
	off, err := t.u32(t.units + (int64(fn.unit)+int64(number))*4)
	if err != nil || off == ^uint32(0) {
		return "", line
	}
	return t.string(t.files + int64(off)), line
}

// value decodes one of a function's tables up to an address; -1 without a value.
// The table is a list of pairs: how much the value changes (zigzag), and for how
// many bytes of code it then holds.
func (t *Table) value(fn function, table uint32, pc uint64) int32 {
	if table == 0 {
		return -1
	}
	in := pairReader{t: t, at: t.pctab + int64(table)}
	at, value := fn.entry, int32(-1)
	for first := true; ; first = false {
		delta, ok := in.uvarint()
		if !ok || delta == 0 && !first {
			return -1
		}
		value += int32(delta>>1) ^ -int32(delta&1)
		length, ok := in.uvarint()
		if !ok {
			return -1
		}
		at += uint64(length)
		if pc < at {
			return value
		}
		if at >= fn.end {
			return -1
		}
	}
}

// pairReader reads numbers through a small buffer of its own.
type pairReader struct {
	t   *Table
	at  int64
	buf [256]byte
	n   int
	i   int
}

func (r *pairReader) uvarint() (uint32, bool) {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		if r.i == r.n {
			n, err := r.t.r.ReadAt(r.buf[:], r.at)
			if n == 0 || err != nil && err != io.EOF {
				return 0, false
			}
			r.at += int64(n)
			r.n, r.i = n, 0
		}
		b := r.buf[r.i]
		r.i++
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v, true
		}
	}
	return 0, false
}

// string reads a NUL-terminated string; one that is too long is cut.
func (t *Table) string(at int64) string {
	if at < 0 || at >= t.size {
		return ""
	}
	for size := int64(128); ; size *= 4 {
		size = min(size, maxString, t.size-at)
		buf := make([]byte, size)
		n, _ := t.r.ReadAt(buf, at)
		if s, _, ok := bytes.Cut(buf[:n], []byte{0}); ok || n < int(size) || size == maxString || size == t.size-at {
			return string(s)
		}
	}
}
