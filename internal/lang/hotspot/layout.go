package hotspot

import "fmt"

// Heap is one heap of code, as walks know it.
type Heap struct {
	Low, High uint64 // reserved addresses
	Segments  uint64 // address of its segment map
	Shift     uint32 // log2 of a segment's size
	_         uint32
}

// Parameters are what walks need of a JVM; struct hotspot_process.
type Parameters struct {
	Heaps                       [4]Heap
	Interpreter, InterpreterEnd uint64
	Barrier, References         uint64
	ChunkClass, ClassMask       uint64
	SymbolMask                  uint64
	Header, Tail                uint16

	Name, Size, Code, FrameSize, FrameComplete, CompileID, OrigPC, Deopt, DeoptMH uint16

	CodeRelative, CompleteShort, DeoptRelative, NoMirror uint8

	MethodConstant, ConstantPool, ConstantName, PoolHolder, PoolSlots, KlassName uint16

	ContinuationTail, ClassAt, ChunkParent, ChunkSize, ChunkSP, ChunkBottom, ChunkWords uint16

	Compressed, ReferenceShift uint8
	PoolSource, KlassSource    uint16
	_                          [3]uint16
}

const (
	headBytes = 136 // HOTSPOT_HEAD
	tailBytes = 64  // HOTSPOT_TAIL
)

// offset is where a field lies in its structure.
type offset uint64

// none is the offset of a field that this JVM does not have.
const none = ^offset(0)

func (o offset) known() bool { return o != none }

// layout is where everything is in the structures of one JVM.
type layout struct {
	Parameters

	used                                         offset // in the block's header
	nmethodBytes                                 uint64
	method                                       offset // nmethod's
	compileID                                    offset // in the blob
	codeAt, blobName, blobSize                   offset // likewise
	immutable, immutableSize, mutable            offset // likewise; where data is kept apart
	mutableSize, relocationSize                  offset
	metadata, scopesPCs, scopesData, scopesBegin offset
	dependencies                                 offset
	pcDescBytes                                  uint64
	pcOffset, pcDecode                           offset
	constMethodBytes                             uint64
	codeSize, constFlags                         offset
	hasLines                                     uint64 // flag of constFlags
	poolLength                                   offset
	klassMethods                                 offset
	poolBytes                                    uint64
	symbolLength, symbolBody                     offset
	biased                                       bool // numbers are compressed without zero bytes
}

// newLayout takes a layout from what a JVM says of itself. What decides is
// which fields there are, not the version: vendors carry layouts back.
func newLayout(t tables) (l layout, err error) {
	l.immutable, l.mutable, l.metadata, l.scopesData, l.scopesBegin, l.dependencies = none, none, none, none, none, none
	f := finder{t: t}
	l.blob(&f)
	l.nmethod(&f)
	l.scopes(&f)
	l.classes(&f)
	l.fits(&f)
	return l, f.err
}

// finder looks up fields, and notes the first that is missing.
type finder struct {
	t   tables
	err error
}

func (f *finder) fail(what string) {
	if f.err == nil {
		f.err = fmt.Errorf("this JVM does not tell %s: it is newer than atys, or of a kind it does not know", what)
	}
}

// has finds the offset of the first of some fields that is there.
func (f *finder) has(names ...string) offset {
	for _, n := range names {
		if x, ok := f.t.fields[n]; ok && !x.static && x.at < 1<<12 {
			return offset(x.at)
		}
	}
	return none
}

// offset is has, of a field that is needed.
func (f *finder) offset(names ...string) offset {
	at := f.has(names...)
	if !at.known() {
		f.fail(names[0])
	}
	return at
}

func (f *finder) size(name string) uint64 {
	if size := f.t.sizes[name]; size > 0 && size < 1<<12 {
		return size
	}
	f.fail("the size of " + name)
	return 0
}

// inside has fields lie in the structure that they are read from: its size and
// their offsets are both the target's word.
func (f *finder) inside(structure string, size, width uint64, offsets ...offset) {
	for _, at := range offsets {
		if at.known() && uint64(at)+width > size {
			f.fail("a size of " + structure + " that holds its fields")
		}
	}
}

// place is where an offset is among the bytes of a blob that walks read.
func (f *finder) place(at, tail offset, what string) uint16 {
	switch {
	case !at.known():
		return 0
	case at+8 <= headBytes:
		return uint16(at)
	case at >= tail && at+4 <= tail+tailBytes:
		return uint16(headBytes + at - tail)
	}
	f.fail(what + " within reach")
	return 0
}

func (l *layout) blob(f *finder) {
	l.Header = uint16(f.size("HeapBlock"))
	l.used = f.offset("HeapBlock::Header._used")
	l.blobName = f.offset("CodeBlob._name")
	l.blobSize = f.offset("CodeBlob._size")
	l.codeAt = f.has("CodeBlob._code_begin")
	if !l.codeAt.known() {
		l.codeAt = f.offset("CodeBlob._code_offset")
		l.CodeRelative = 1
	}
	complete := f.offset("CodeBlob._frame_complete_offset")
	if f.t.fields["CodeBlob._frame_complete_offset"].kind == "int16_t" {
		l.CompleteShort = 1
	}
	l.compileID = f.offset("nmethod._compile_id")
	orig := f.offset("nmethod._orig_pc_offset")
	deopt, mh := f.has("CompiledMethod._deopt_handler_begin", "nmethod._deopt_handler_begin"), f.has("CompiledMethod._deopt_mh_handler_begin", "nmethod._deopt_mh_handler_begin")
	if !deopt.known() {
		deopt, mh = f.offset("nmethod._deopt_handler_offset", "nmethod._deoptimize_offset"), f.has("nmethod._deopt_mh_handler_offset", "nmethod._deoptimize_mh_offset")
		l.DeoptRelative = 1
	}
	tail := min(orig, l.compileID)
	if l.DeoptRelative == 1 {
		tail = min(tail, deopt, mh)
	}
	if f.err != nil {
		return
	}
	l.Tail = uint16(tail)
	l.Name = f.place(l.blobName, tail, "CodeBlob._name")
	l.Code = f.place(l.codeAt, tail, "CodeBlob._code_begin")
	l.Size = f.place(l.blobSize, tail, "CodeBlob._size")
	l.FrameSize = f.place(f.offset("CodeBlob._frame_size"), tail, "CodeBlob._frame_size")
	l.FrameComplete = f.place(complete, tail, "CodeBlob._frame_complete_offset")
	l.CompileID = f.place(l.compileID, tail, "nmethod._compile_id")
	l.OrigPC = f.place(orig, tail, "nmethod._orig_pc_offset")
	l.Deopt = f.place(deopt, tail, "the deoptimisation handler")
	l.DeoptMH = l.Deopt
	if mh.known() && mh+8 <= headBytes || l.DeoptRelative == 1 && mh.known() {
		l.DeoptMH = f.place(mh, tail, "the deoptimisation handler")
	}
}

func (l *layout) nmethod(f *finder) {
	l.nmethodBytes = f.size("nmethod")
	l.method = f.offset("CompiledMethod._method", "nmethod._method")
	l.immutable, l.immutableSize = f.has("nmethod._immutable_data"), f.has("nmethod._immutable_data_size")
	l.mutable, l.mutableSize = f.has("CodeBlob._mutable_data"), f.has("CodeBlob._mutable_data_size")
	l.relocationSize = f.has("CodeBlob._relocation_size")
	if !l.mutable.known() {
		l.metadata = f.offset("nmethod._metadata_offset")
	} else if !l.relocationSize.known() || !l.mutableSize.known() {
		f.fail("CodeBlob._relocation_size")
	}
}

func (l *layout) scopes(f *finder) {
	l.scopesPCs = f.offset("nmethod._scopes_pcs_offset")
	if l.immutable.known() {
		l.scopesData = f.offset("nmethod._scopes_data_offset")
		if !l.immutableSize.known() {
			f.fail("nmethod._immutable_data_size")
		}
	} else {
		l.scopesBegin = f.has("CompiledMethod._scopes_data_begin")
		if !l.scopesBegin.known() {
			l.scopesData = f.offset("nmethod._scopes_data_offset") // of 8
		}
		l.dependencies = f.offset("nmethod._dependencies_offset")
	}
	l.pcDescBytes = f.size("PcDesc")
	l.pcOffset, l.pcDecode = f.offset("PcDesc._pc_offset"), f.offset("PcDesc._scope_decode_offset")
}

func (l *layout) classes(f *finder) {
	l.MethodConstant = uint16(f.offset("Method._constMethod"))
	l.ConstantPool = uint16(f.offset("ConstMethod._constants"))
	l.ConstantName = uint16(f.offset("ConstMethod._name_index"))
	l.PoolHolder = uint16(f.offset("ConstantPool._pool_holder"))
	l.poolBytes = f.size("ConstantPool")
	l.PoolSlots = uint16(l.poolBytes)
	l.KlassName = uint16(f.offset("Klass._name"))
	l.poolLength = f.offset("ConstantPool._length")
	if at := f.has("ConstantPool._source_file_name_index"); at.known() {
		l.PoolSource = uint16(at)
	} else if at = f.has("InstanceKlass._source_file_name_index"); at.known() {
		l.KlassSource = uint16(at)
	}
	l.klassMethods = f.has("InstanceKlass._methods")
	l.constMethodBytes = f.size("ConstMethod")
	l.codeSize = f.offset("ConstMethod._code_size")
	l.constFlags = f.has("ConstMethod._flags")
	flag := "ConstMethod::_has_linenumber_table"
	if !l.constFlags.known() {
		l.constFlags = f.offset("ConstMethod._flags._flags")
		flag = "ConstMethodFlags::_misc_has_linenumber_table"
		l.biased = true // came with the same release, 21
	}
	l.hasLines = uint64(f.t.ints[flag])
	l.symbolLength = f.offset("Symbol._length")
	l.symbolBody = f.has("Symbol._body[0]")
	if !l.symbolBody.known() {
		l.symbolBody = f.offset("Symbol._body")
	}
	count := f.has("Symbol._refcount")
	if !count.known() {
		count = f.offset("Symbol._hash_and_refcount") // the count is its lower half
	}
	if f.err == nil && (count > 6 || l.symbolLength > 6 || l.symbolBody > 16) {
		f.fail("Symbol")
	}
	l.SymbolMask = ^(uint64(0xffff) << (8 * (count & 7)))
}

// fits checks every offset into what is read in one piece.
func (l *layout) fits(f *finder) {
	if f.err != nil {
		return
	}
	f.inside("HeapBlock", uint64(l.Header), 1, l.used)
	f.inside("nmethod", l.nmethodBytes, 8, l.method, l.blobName, l.immutable, l.mutable, l.scopesBegin)
	f.inside("nmethod", l.nmethodBytes, 4, l.compileID, l.codeAt, l.blobSize, l.immutableSize, l.mutableSize, l.relocationSize,
		l.metadata, l.scopesPCs, l.scopesData, l.dependencies)
	f.inside("PcDesc", l.pcDescBytes, 4, l.pcOffset, l.pcDecode)
	f.inside("ConstMethod", l.constMethodBytes, 8, offset(l.ConstantPool))
	f.inside("ConstMethod", l.constMethodBytes, 2, offset(l.ConstantName), l.codeSize, l.constFlags)
	f.inside("ConstantPool", l.poolBytes, 8, offset(l.PoolHolder))
	f.inside("ConstantPool", l.poolBytes, 4, l.poolLength)
}
