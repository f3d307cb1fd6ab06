package hotspot

import (
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	atHeap     = 0x11000
	atBlobName = 0x12000
	atClasses  = 0x12100 // vmClasses
	atStatics  = 0x12200
	atFlags    = 0x12300
	atChunk    = 0x13000 // class StackChunk
	atCont     = 0x14000 // class Continuation
)

// recordedStubs reads the code of the stubs of continuations from testdata.
func recordedStubs(t testing.TB, version string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "stubs-"+version+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	code, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// barrierAt is where the return barrier was in them, by the symbol
// StubRoutines::_cont_returnBarrier of the libjvm that made them.
var barrierAt = map[string]uint64{"21.0.8": 0x7a, "25.0.2": 0x76}

func TestBarriers(t *testing.T) {
	for version, want := range barrierAt {
		code := recordedStubs(t, version)
		places := barriers(code)
		if len(places) != 2 || uint64(places[0]) != want {
			t.Errorf("%s: barriers at %#x, want 2 with the first at %#x", version, places, want)
		}
		for cut := range code { // what ends too early is refused, not read beyond
			if got := barriers(code[:cut]); len(got) > 2 {
				t.Errorf("%s: %d barriers in its first %d bytes", version, len(got), cut)
			}
		}
	}
}

// newVirtual makes a JVM with the stubs given, two classes, and two options
// that are off. Its objects have headers of 12 bytes, references 4.
func newVirtual(t testing.TB, version string, stubs []byte) (*Process, tables, *image) {
	t.Helper()
	all := recordedTables(t, version)
	l := recordedLayout(t, version)
	i := &image{0x10000, make([]byte, 0x6000)}
	l.Heaps[0] = Heap{Low: atHeap, High: atHeap + 0x1000, Shift: 7}
	l.Interpreter = atHeap + 0xf00
	i.putBlob(l, all, atHeap, 2, "VM_Version stub", nil)
	i.putBlob(l, all, atHeap+2<<7, 8, "StubRoutines (continuation stubs)", stubs)

	for name, at := range map[string]uint64{"vmClasses._klasses[static_cast<int>(vmClassID::Object_klass_knum)]": atClasses,
		"CompressedOops._base": atStatics, "CompressedOops._shift": atStatics + 8,
		"CompressedKlassPointers._base": atStatics + 16, "CompressedKlassPointers._shift": atStatics + 24,
		"JVMFlag.flags": atStatics + 32, "JVMFlag.numFlags": atStatics + 40} {
		all.fields[name] = field{static: true, at: at}
	}
	i.put64(atStatics, 0x800000000)
	i.put32(atStatics+8, 3)
	i.put64(atStatics+16, 0x10000)
	i.put64(atStatics+32, atFlags)
	i.put64(atStatics+40, 2)
	for n, name := range []string{"UseZGC", "VMContinuations"} {
		at := atFlags + uint64(n)*all.sizes["JVMFlag"]
		i.put64(at+all.fields["JVMFlag._name"].at, atFlags+0x80+uint64(n)*32)
		i.put64(at+all.fields["JVMFlag._addr"].at, atFlags+0xf0+uint64(n))
		copy(i.data[atFlags+0x80+n*32-0x10000:], name)
	}
	i.put64(atClasses+8, atChunk)
	i.put64(atClasses+32, atCont)
	// The declared fields of 25.0.2, as its StackChunk tells them, and one that is added.
	i.putClass(l, all, atChunk, chunkClass, map[uint64]string{11: "parent", 20: "size", 15: "sp", 19: "bottom"},
		[]byte{5, 2, 0x0c, 0x0d, 0x29, 3, 1, 0x15, 0x11, 0x0d, 3, 1, 0x10, 0x11, 0x19, 3, 1, 0x14, 0x11, 0x1d, 3, 1, 0xe9, 5, 0xc0, 0xc, 0x2d, 1, 3})
	i.putClass(l, all, atCont, continuationClass, map[uint64]string{1: "parent", 2: "child", 3: "tail", 4: "PINNED"},
		[]byte{5, 1, 5, 5, 2, accessStatic + 1, 1, 2, 5, 0x19, 3, 5, 9, 3, 5, 0x1d, 3, 1, 4, 5, 0x21, 3, 1})
	return newProcess(memory{i}, l), all, i
}

func (i *image) putBlob(l layout, all tables, at, segments uint64, name string, code []byte) {
	i.put32(at+all.fields["HeapBlock::Header._length"].at, uint32(segments))
	i.data[at+uint64(l.used)-i.base] = 1
	blob := at + uint64(l.Header)
	text := atBlobName + 64*(segments&1) + segments
	copy(i.data[text-i.base:], name+"\x00")
	i.put64(blob+uint64(l.blobName), text)
	i.put32(blob+uint64(l.blobSize), uint32(0x100+len(code)))
	if l.CodeRelative == 1 {
		i.put32(blob+uint64(l.codeAt), 0x100)
	} else {
		i.put64(blob+uint64(l.codeAt), blob+0x100)
	}
	copy(i.data[blob+0x100-i.base:], code)
}

func (i *image) putClass(l layout, all tables, at uint64, name string, names map[uint64]string, stream []byte) {
	pool, symbols, list := at+0x400, at+0x800, at+0xc00
	i.putSymbol(l, symbols, name, 0x1234)
	i.put64(at+uint64(l.KlassName), symbols)
	i.put32(at+all.fields["Klass._layout_helper"].at, 49) // 48 bytes, made slowly
	i.put64(at+all.fields["InstanceKlass._constants"].at, pool)
	i.put64(at+all.fields["InstanceKlass._fieldinfo_stream"].at, list)
	for index, text := range names {
		symbols += 0x40
		i.putSymbol(l, symbols, text, 0x2345)
		i.put64(pool+uint64(l.PoolSlots)+8*index, symbols)
	}
	i.put32(list, uint32(len(stream)))
	copy(i.data[list+4-i.base:], stream)
}

func TestVirtualThreads(t *testing.T) {
	for version, at := range barrierAt {
		t.Run(version, func(t *testing.T) {
			p, all, _ := newVirtual(t, version, recordedStubs(t, version))
			if err := p.readVirtualThreads(all); err != nil {
				t.Fatal(err)
			}
			got := p.l.Parameters
			want := got
			want.Barrier = atHeap + 2<<7 + uint64(got.Header) + 0x100 + at
			want.References, want.ReferenceShift, want.Compressed = 0x800000000, 3, 1
			want.ClassAt, want.ClassMask, want.ChunkClass = 8, 1<<32-1, atChunk-0x10000
			want.ContinuationTail, want.ChunkParent, want.ChunkSize, want.ChunkSP, want.ChunkBottom, want.ChunkWords = 32, 40, 12, 24, 28, 48
			if got != want {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestVirtualThreadsNotFound(t *testing.T) {
	stubs := recordedStubs(t, "25.0.2")
	for name, c := range map[string]struct {
		stubs []byte
		spoil func(*Process, tables, *image)
		err   error
		walk  bool // stacks in the heap can be walked
	}{
		"one barrier":       {stubs: stubs[:0x120], err: errBarrier},
		"no stubs":          {stubs: stubs, spoil: func(_ *Process, _ tables, i *image) { i.put32(atHeap, 0) }, err: errBarrier},
		"no such block":     {stubs: stubs, spoil: func(_ *Process, _ tables, i *image) { i.put32(atHeap, 1<<30) }, err: errBarrier},
		"switched off":      {stubs: nil},
		"on, but not there": {stubs: nil, spoil: func(_ *Process, _ tables, i *image) { i.data[atFlags+0xf1-0x10000] = 1 }, err: errBarrier},
		"classes not there": {stubs: stubs, spoil: func(_ *Process, _ tables, i *image) { i.put64(atClasses+32, 0) }, err: errStarting},
		"unknown fields": {stubs: stubs, spoil: func(p *Process, _ tables, i *image) {
			i.putSymbol(p.l, atChunk+0x840, "top", 0x1234)
			i.putSymbol(p.l, atChunk+0x880, "top", 0x2345)
		}},
		"wide references": {stubs: stubs, spoil: func(_ *Process, _ tables, i *image) { i.data[atCont+0xc00+4+15-0x10000] += 4 }, walk: true},
		"references of ZGC": {stubs: stubs, spoil: func(p *Process, _ tables, i *image) {
			i.data[atCont+0xc00+4+15-0x10000] += 4
			i.data[atFlags+0xf0-0x10000] = 1
		}},
		"references overlap": {stubs: stubs, spoil: func(_ *Process, _ tables, i *image) { i.data[atCont+0xc00+4+15-0x10000] += 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			p, all, i := newVirtual(t, "25.0.2", c.stubs)
			if c.spoil != nil {
				c.spoil(p, all, i)
			}
			err := p.readVirtualThreads(all)
			if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if walked := p.l.ChunkWords != 0; err == nil && walked != c.walk {
				t.Errorf("heaps can be walked: %v, want %v", walked, c.walk)
			}
		})
	}
}

// TestChunkHeader has objects with each kind of header.
func TestChunkHeader(t *testing.T) {
	_, all, i := newVirtual(t, "25.0.2", nil)
	for first, want := range map[uint32]Parameters{
		wideHeader:    {ClassAt: 8, ClassMask: ^uint64(0), ChunkClass: 0x28000},
		narrowHeader:  {ClassAt: 8, ClassMask: 1<<32 - 1, ChunkClass: 0x60},
		compactHeader: {ClassAt: 0, ClassMask: 1<<64 - 1<<42, ChunkClass: 0x60 << 42},
		20:            {},
	} {
		i.put32(atStatics+24, 10)
		var l layout
		s := &statics{m: memory{i}, t: tables{maps.Clone(all.fields), all.sizes, all.ints}}
		if ok := l.chunkHeader(s, first, 0x28000); ok != (want != Parameters{}) || l.Parameters != want || s.err != nil {
			t.Errorf("fields from %d: %v, %+v, want %+v (%v)", first, ok, l.Parameters, want, s.err)
		}
	}
}
