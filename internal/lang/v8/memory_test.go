package v8

import (
	"io"
	"sort"
	"testing"
	"unicode/utf16"
)

// Instance types of the memory that tests make up.
const (
	typeMap = 300 + iota
	typeScope
	typeScript
	typeShared
	typeWrapper
	typeBytecode
	typeInterpreterData
	typeCode
	typeInstructions
	typeArray
	typeBytes
	typeOdd
)

// laidOut is as V8 14 lays out its objects.
func laidOut() layout {
	return layout{
		parameters: parameters{instanceType: 12, scopeType: typeScope, scriptType: typeScript, sharedType: typeShared,
			bytecodeType: typeBytecode, shared: 32, name: 24, script: 40, scriptName: 16, scopeVariables: 5, scopePositions: 32},
		major: 14, fixedArrayTypes: []uint32{typeArray}, byteArrayTypes: []uint32{typeBytes},
		interpreterData: typeInterpreterData, codeType: typeCode, sharedWrapperType: typeWrapper,
		functionData: 8, source: 8, lineEnds: 56, bytecodeData: 64, bytecodeTable: 24,
		code: codeLayout{instructionsType: typeInstructions, instructions: 32, start: 40, size: 56, data: 8, positions: 16,
			inlined: 1, literals: 3, function: 7, inlining: 8},
		sizes: &bytecodeSizes{},
	}
}

// objects is memory that a test makes up.
type objects struct {
	next uint64
	at   map[uint64][]byte // by address
	maps map[uint32]uint64 // by type
	meta uint64
}

func newObjects() *objects {
	m := &objects{next: 0x100000, at: map[uint64][]byte{}, maps: map[uint32]uint64{}}
	m.meta = m.allocate(24)
	m.put(m.meta, 0, m.meta)
	le.PutUint16(m.at[m.meta-1][12:], typeMap)
	return m
}

// allocate makes room for an object, and gives its tagged pointer.
func (m *objects) allocate(size int) uint64 {
	at := m.next
	m.next += uint64(size+63) &^ 63
	m.at[at] = make([]byte, size)
	return at + 1
}

// object makes one of a type.
func (m *objects) object(kind uint32, words ...uint64) uint64 {
	if m.maps[kind] == 0 {
		m.maps[kind] = m.allocate(24)
		m.put(m.maps[kind], 0, m.meta)
		le.PutUint16(m.at[m.maps[kind]-1][12:], uint16(kind))
	}
	o := m.allocate(8 + 8*len(words))
	m.put(o, 0, m.maps[kind])
	for i, w := range words {
		m.put(o, 8+8*i, w)
	}
	return o
}

func (m *objects) put(object uint64, offset int, word uint64) {
	le.PutUint64(m.at[object-1][offset:], word)
}

// withBytes appends raw bytes to an object.
func (m *objects) withBytes(object uint64, b []byte) uint64 {
	at := object - 1
	m.at[at] = append(m.at[at], b...)
	m.next = at + uint64(len(m.at[at])+63)&^63
	return object
}

func (m *objects) text(s string) uint64 {
	o := m.object(8, uint64(len(s))<<32) // one byte each, flat
	return m.withBytes(o, []byte(s))
}

func (m *objects) wide(s string) uint64 {
	units := utf16.Encode([]rune(s))
	o := m.object(0, uint64(len(units))<<32)
	for _, u := range units {
		m.withBytes(o, []byte{byte(u), byte(u >> 8)})
	}
	return o
}

func (m *objects) byteArray(b []byte) uint64 {
	return m.withBytes(m.object(typeBytes, smi(len(b))), b)
}

func (m *objects) array(words ...uint64) uint64 {
	return m.object(typeArray, append([]uint64{smi(len(words))}, words...)...)
}

func smi(v int) uint64 { return uint64(v) << 32 }

// ReadAt reads as process memory is read.
func (m *objects) ReadAt(p []byte, address int64) (int, error) {
	for at, b := range m.at {
		if uint64(address) >= at && uint64(address) < at+uint64(len(b)) {
			n := copy(p, b[uint64(address)-at:])
			if n < len(p) {
				return n, io.ErrUnexpectedEOF
			}
			return n, nil
		}
	}
	return 0, io.EOF
}

// whole lays all objects out in one piece, with zeros between them, as reads
// that cross objects need.
func (m *objects) whole() *objects {
	var all []uint64
	for at := range m.at {
		all = append(all, at)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	memory := make([]byte, m.next+4096-all[0])
	for _, at := range all {
		copy(memory[at-all[0]:], m.at[at])
	}
	return &objects{at: map[uint64][]byte{all[0]: memory}, next: m.next, maps: m.maps, meta: m.meta}
}

// noise is memory of which every address holds something.
type noise []byte

func (n noise) ReadAt(p []byte, address int64) (int, error) {
	if len(n) == 0 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = n[uint64(address+int64(i))%uint64(len(n))]
	}
	return len(p), nil
}

// FuzzMemory reads everything there is to read from memory that may be anything.
func FuzzMemory(f *testing.F) {
	m := newObjects()
	m.text("a name")
	for _, b := range m.whole().at {
		f.Add(b, uint64(0x100041))
	}
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint64(1))
	f.Add(make([]byte, 64), uint64(9))
	f.Fuzz(func(t *testing.T, memory []byte, address uint64) {
		for _, major := range []int{10, 14} {
			l := laidOut()
			l.major = major
			if major == 10 {
				l.scopePositions, l.code.start = 0, 0
			}
			r := newRuntime(noise(memory), l)
			if c, ok := r.heap.text(address, 64, true); ok && c.len() > 64 {
				t.Fatalf("%d characters where 64 were allowed", c.len())
			}
			fn, _ := r.heap.function(address)
			r.look(&photographed{function: fn})
			if c := r.codeAt(address); c != nil && (address < c.begin || address >= c.end) {
				t.Fatalf("code of [%#x, %#x) was found for %#x", c.begin, c.end, address)
			}
		}
	})
}
