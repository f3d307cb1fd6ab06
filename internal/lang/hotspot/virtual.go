package hotspot

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
)

// readVirtualThreads finds what walks need of virtual threads, whose older
// frames lie in the heap: see stack_chunk.h.
//
//	code cache -> blob with the stubs of continuations -> the return barrier
//	vmClasses  -> StackChunk, Continuation -> where their fields are
//
// No symbol is needed, so that a stripped libjvm is read like any other.
func (r *reader) readVirtualThreads(t tables) error {
	s := &statics{m: r.m, t: t}
	r.l.Barrier = r.findBarrier(s)
	if s.err != nil || r.l.Barrier == 0 {
		return s.err
	}
	r.readStackChunks(s)
	return s.err
}

const (
	continuationStubs = "StubRoutines (continuation" // as the name of their blob begins
	maxBlocks         = 1 << 12                      // of the heap of code that are looked at; it is one of the first 10
	maxStubs          = 1 << 16                      // bytes of that blob
)

var errBarrier = errors.New("where frames of virtual threads return to that are copied back from the heap is not found: this JVM is newer than atys, or of a kind it does not know, and its stacks could look whole where they are not")

// findBarrier finds the return barrier; 0: this JVM was started without
// virtual threads of its own kind, -XX:-VMContinuations.
func (r *reader) findBarrier(s *statics) uint64 {
	length := s.at("HeapBlock::Header._length")
	if s.err == nil && max(offset(length), r.l.used, r.l.blobName, r.l.codeAt, r.l.blobSize)+8 > headBytes {
		s.err = errBarrier
	}
	if s.err != nil {
		return 0
	}
	wide := s.t.fields["HeapBlock::Header._length"].kind == "size_t"
	heap := r.l.heapOf(r.l.Interpreter) // these stubs are made with it, and never go
	at := heap.Low
	for range maxBlocks {
		head, ok := r.m.bytes(at, uint64(r.l.Header)+headBytes, 1<<10)
		if !ok {
			break // not in use from here on
		}
		segments := uint64(le.Uint32(head[length:]))
		if wide {
			segments = le.Uint64(head[length:])
		}
		if segments == 0 || segments > (heap.High-at)>>heap.Shift {
			break
		}
		if code := r.continuationStubs(at+uint64(r.l.Header), head); code.begin != 0 {
			return r.barrierIn(s, code)
		}
		at += segments << heap.Shift
	}
	s.err = errBarrier
	return 0
}

// heapOf gives the heap that holds an address.
func (l *layout) heapOf(address uint64) Heap {
	for _, h := range l.Heaps {
		if address >= h.Low && address < h.High {
			return h
		}
	}
	return Heap{}
}

// continuationStubs gives the code of a blob, if it holds the stubs of continuations.
func (r *reader) continuationStubs(blob uint64, head []byte) span {
	l := &r.l
	if head[l.used] == 0 {
		return span{}
	}
	head = head[l.Header:]
	name, ok := r.m.text(le.Uint64(head[l.blobName:]), maxName)
	if !ok || !strings.HasPrefix(name, continuationStubs) {
		return span{}
	}
	code := le.Uint64(head[l.codeAt:])
	if l.CodeRelative == 1 {
		code = blob + uint64(le.Uint32(head[l.codeAt:]))
	}
	return span{code, blob + uint64(le.Uint32(head[l.blobSize:]))}
}

// barrierIn finds the return barrier in the code of the stubs, where it is the
// first of two, the second being for exceptions:
//
//	49 8b a7 ........   mov rsp, [r15 + JavaThread::_cont_entry]
//	50                  push rax
//	48 83 ec 10         sub rsp, 16
//	..                  movsd [rsp], xmm0
//
// (generate_cont_thaw of src/hotspot/cpu/x86/stubGenerator_x86_64.cpp)
func (r *reader) barrierIn(s *statics, code span) uint64 {
	if code.end < code.begin || code.end-code.begin > maxStubs {
		s.err = errBarrier
		return 0
	}
	raw, ok := r.m.bytes(code.begin, code.end-code.begin, maxStubs)
	s.starting(ok)
	places := barriers(raw)
	switch {
	case s.err != nil:
		return 0
	case len(places) == 2 && bytes.Equal(raw[places[0]+3:places[0]+7], raw[places[1]+3:places[1]+7]):
		return code.begin + uint64(places[0])
	case len(places) == 0:
		if on, ok := s.flag("VMContinuations"); ok && !on {
			return 0
		}
	}
	s.err = errBarrier
	return 0
}

// barriers gives where code begins as return barriers do.
func barriers(code []byte) (places []int) {
	begins, saves := []byte{0x49, 0x8b, 0xa7}, []byte{0x50, 0x48, 0x83, 0xec, 0x10}
	for at := 0; ; at++ {
		i := bytes.Index(code[at:], begins)
		if i < 0 {
			return places
		}
		at += i
		if at+7 <= len(code) && bytes.HasPrefix(code[at+7:], saves) {
			places = append(places, at)
		}
	}
}

const (
	continuationClass = "jdk/internal/vm/Continuation"
	chunkClass        = "jdk/internal/vm/StackChunk"

	maxClasses = 256 // known to the JVM itself that are looked at; 25 has 110
	maxFields  = 1 << 12

	compactHeader, narrowHeader, wideHeader = 8, 12, 16 // bytes of an object before its fields
)

// readStackChunks finds how to read the stack of a virtual thread in the heap.
// Where that is not possible, such as under ZGC, whose references tell more
// than addresses, ChunkWords stays 0: stacks are cut there, and say so.
func (r *reader) readStackChunks(s *statics) {
	classes := r.knownClasses(s, continuationClass, chunkClass)
	if s.err != nil {
		return
	}
	chunk := r.fieldsOf(s, classes[chunkClass])
	continuation := r.fieldsOf(s, classes[continuationClass])
	size := s.u32(classes[chunkClass] + s.at("Klass._layout_helper"))
	if s.err != nil {
		return
	}
	at, ok := fieldOffsets(chunk.declared, "parent", "size", "sp", "bottom")
	tail, ok2 := fieldOffsets(continuation.declared, "tail", "parent", "child")
	if !ok || !ok2 || size > 1<<10 {
		return // it is laid out in a way not known
	}
	l := &r.l
	switch max(tail[1], tail[2]) - min(tail[1], tail[2]) { // two references, side by side
	case 4:
		l.Compressed = 1
		l.References = s.static("CompressedOops._base", "CompressedOops._narrow_oop._base")
		l.ReferenceShift = uint8(s.u32(s.staticAt("CompressedOops._shift", "CompressedOops._narrow_oop._shift")))
	case 8:
		if z, known := s.flag("UseZGC"); !known || z {
			return
		}
	default:
		return
	}
	if !l.chunkHeader(s, chunk.first, classes[chunkClass]) || s.err != nil {
		return
	}
	l.ContinuationTail = tail[0]
	l.ChunkParent, l.ChunkSize, l.ChunkSP, l.ChunkBottom = at[0], at[1], at[2], at[3]
	l.ChunkWords = uint16(size &^ 7) // its lowest bits are flags
}

// chunkHeader tells how the header of a StackChunk shows its class. Where an
// object's fields begin tells how headers are made.
func (l *layout) chunkHeader(s *statics, first uint32, class uint64) bool {
	if first == wideHeader {
		l.ClassAt, l.ClassMask, l.ChunkClass = 8, ^uint64(0), class
		return true
	}
	base := s.static("CompressedKlassPointers._base", "CompressedKlassPointers._narrow_klass._base")
	shift := s.u32(s.staticAt("CompressedKlassPointers._shift", "CompressedKlassPointers._narrow_klass._shift"))
	narrow := (class - base) >> (shift & 31)
	switch first {
	case narrowHeader:
		l.ClassAt, l.ClassMask, l.ChunkClass = 8, 1<<32-1, narrow
		return true
	case compactHeader:
		at, ok := s.t.ints["markWord::klass_shift"]
		l.ClassAt, l.ClassMask, l.ChunkClass = 0, ^uint64(0)<<(at&63), narrow<<(at&63)
		return ok && at > 0
	}
	return false
}

// fieldOffsets gives where some fields are, if all of them are there.
func fieldOffsets(fields map[string]uint32, names ...string) (offsets []uint16, ok bool) {
	for _, name := range names {
		offset, ok := fields[name]
		if !ok || offset > 1<<10 {
			return nil, false
		}
		offsets = append(offsets, uint16(offset))
	}
	return offsets, true
}

// knownClasses finds classes among those that the JVM itself refers to. Its
// tables name some places of that array.
func (r *reader) knownClasses(s *statics, names ...string) map[string]uint64 {
	first := uint64(math.MaxUint64)
	for name, f := range s.t.fields {
		if strings.HasPrefix(name, "vmClasses._klasses[") && f.static {
			first = min(first, f.at)
		}
	}
	if first == math.MaxUint64 {
		s.err = finderOf(s.t, "vmClasses._klasses")
		return nil
	}
	found := map[string]uint64{}
	for at := first; at < first+8*maxClasses && len(found) < len(names); at += 8 {
		class, ok := r.m.u64(at)
		if !ok {
			break
		}
		symbol, ok := r.m.u64(class + uint64(r.l.KlassName))
		if !ok || class == 0 {
			continue
		}
		text, _, ok := r.symbol(symbol)
		for _, name := range names {
			if ok && text == name {
				found[name] = class
			}
		}
	}
	s.starting(len(found) == len(names))
	return found
}

// fields are where those of a class's objects are.
type fields struct {
	declared map[string]uint32
	first    uint32 // where they begin, with those that the JVM adds
}

// fieldsOf reads where the fields of a class are.
//
//	counts of declared and added fields, then of each
//	name | type | offset | access | flags | initial value? | generic type? | group?
//
// as numbers (src/hotspot/share/oops/fieldInfo.hpp).
func (r *reader) fieldsOf(s *statics, class uint64) fields {
	pool := s.u64(class + s.at("InstanceKlass._constants"))
	list := s.u64(class + s.at("InstanceKlass._fieldinfo_stream"))
	length := s.u32(list + s.at("Array<int>._length"))
	data := s.at("Array<u1>._data")
	found := fields{map[string]uint32{}, ^uint32(0)}
	if s.err != nil {
		return found
	}
	raw, ok := r.m.bytes(list+data, uint64(length), maxFields)
	s.starting(ok)
	n := numbers{raw: raw, biased: true}
	declared, added := n.next(), n.next()
	for i := uint32(0); i < declared+added; i++ {
		name := n.next()
		n.next()
		offset, access, flags := n.next(), n.next(), n.next()
		for _, optional := range []string{"initialized", "generic", "contended"} {
			if flags>>(s.t.ints["FieldInfo::FieldFlags::_ff_"+optional]&31)&1 != 0 {
				n.next()
			}
		}
		if n.short {
			break
		}
		if access&accessStatic != 0 {
			continue
		}
		found.first = min(found.first, offset)
		if symbol, ok := r.slot(pool, name); ok && i < declared {
			text, _, _ := r.symbol(symbol)
			found.declared[text] = offset
		}
	}
	return found
}

const accessStatic = 8 // the format of class files, table 4.5-A

// flag reads an option of the JVM that is on or off.
func (s *statics) flag(name string) (on, known bool) {
	flags, count := s.static("JVMFlag.flags"), s.static("JVMFlag.numFlags")
	size, nameAt, valueAt := s.t.sizes["JVMFlag"], s.at("JVMFlag._name"), s.at("JVMFlag._addr")
	if s.err != nil || size > 1<<8 || count > 1<<13 || max(nameAt, valueAt)+8 > size {
		return false, false
	}
	all, ok := s.m.bytes(flags, size*count, 1<<21)
	if !ok {
		return false, false
	}
	cached := memory{paged{s.m, map[uint64][]byte{}}}
	for ; len(all) > 0; all = all[size:] {
		text, _ := cached.text(le.Uint64(all[nameAt:]), maxName)
		if text != name {
			continue
		}
		var b [1]byte
		ok := s.m.read(b[:], le.Uint64(all[valueAt:]))
		return b[0] != 0, ok
	}
	return false, false
}

// finderOf is the error of a JVM that does not tell something.
func finderOf(t tables, what string) error {
	f := finder{t: t}
	f.fail(what)
	return fmt.Errorf("virtual threads: %w", f.err)
}
