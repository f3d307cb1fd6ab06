package v8

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

var le = binary.LittleEndian

// Holds tells whether a file contains V8, by what it exports for debuggers.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.Node) }

const (
	prefix     = "v8dbg_"
	maxStrings = 1 << 26 // bytes of names that a file exports; node has 5 MB
)

// parameters are what walks need: struct v8_process of v8.h.
type parameters struct {
	builtins, builtinsEnd       uint64
	instanceType                uint32
	firstFunction, lastFunction uint32
	bytecodeType, scopeType     uint32
	scriptType, sharedType      uint32
	shared                      uint32
	name, script                uint32
	scriptName                  uint32
	scopeVariables              uint32
	scopePositions              uint32
	wasmFrame                   uint32
}

// layout is all that is known of a V8's objects: offsets in them, and types.
type layout struct {
	parameters
	major int // of V8's version

	fixedArrayTypes   []uint32
	weakArrayTypes    []uint32 // none: nil
	byteArrayTypes    []uint32
	interpreterData   uint32 // type
	codeType          uint32
	sharedWrapperType uint32 // none: 0

	functionData  uint32 // of what functions share
	source        uint32 // of a script
	lineEnds      uint32
	bytecodeData  uint32 // of bytecode
	bytecodeTable uint32 // its positions

	code         codeLayout
	sizes        *bytecodeSizes
	translations *opcodes // nil: not known
}

// codeLayout is how compiled code lies in memory. Up to V8 10 it is one object;
// later ones keep the instructions apart from what is known of them.
type codeLayout struct {
	instructionsType uint32 // of the object that holds them
	instructions     uint32 // where they begin in it
	start            uint32 // of the code: address of its instructions; 0: code and instructions are one
	size             uint32 // and their number of bytes, i32
	data             uint32 // what it was made from: deoptimization data or bytecode
	positions        uint32

	// Elements of deoptimization data.
	inlined, literals, function, inlining uint32
}

// dynamic are V8's exported values.
type dynamic struct {
	file    *binfile.File
	exports binfile.Exports
	names   []string // sorted, without v8dbg_
	missing []string // asked for and not there
}

func readDynamic(f *binfile.File) (*dynamic, error) {
	text, err := f.SectionData(".dynstr", maxStrings)
	if err != nil {
		return nil, fmt.Errorf("read exported names: %w", err)
	}
	d := &dynamic{file: f, exports: f.Exports()}
	for {
		i := bytes.Index(text, []byte("\x00"+prefix))
		if i < 0 {
			break
		}
		text = text[i+1+len(prefix):]
		name, _, ok := bytes.Cut(text, []byte{0})
		if !ok {
			break
		}
		d.names = append(d.names, string(name))
	}
	slices.Sort(d.names)
	return d, nil
}

// find is the value of the first name that there is. Releases spell the type at
// a name's end differently: a name that ends in "__" stands for all that begin
// with it.
func (d *dynamic) find(names ...string) (uint32, bool) {
	for _, name := range names {
		if strings.HasSuffix(name, "__") {
			i, _ := slices.BinarySearch(d.names, name)
			if i == len(d.names) || !strings.HasPrefix(d.names[i], name) {
				continue
			}
			name = d.names[i]
		}
		s, ok := d.exports.Lookup(prefix + name)
		if !ok {
			continue
		}
		var b [4]byte // a zero may lie where the file holds nothing
		if n, err := d.file.ReadAddress(b[:], s.Address); n != 0 && err != nil {
			continue
		}
		return le.Uint32(b[:]), true
	}
	return 0, false
}

// get is find for what must be there.
func (d *dynamic) get(names ...string) uint32 {
	v, ok := d.find(names...)
	if !ok {
		d.missing = append(d.missing, names[0])
	}
	return v
}

// or is find for what has always been the same where it is not told.
func (d *dynamic) or(otherwise uint32, names ...string) uint32 {
	if v, ok := d.find(names...); ok {
		return v
	}
	return otherwise
}

// fixed are the values that v8.h and this package take for granted.
var fixed = []struct {
	name  string
	value int32
}{
	{"SmiTagMask", 1}, {"SmiShiftSize", 31}, {"HeapObjectTag", 1}, {"HeapObjectTagMask", 3},
	{"off_fp_context", -8}, {"off_fp_function", -16}, {"off_fp_bytecode_array", -32}, {"off_fp_bytecode_offset", -40},
	{"FirstNonstringType", 128}, {"StringRepresentationMask", 7}, {"StringEncodingMask", 8},
	{"SeqStringTag", 0}, {"ConsStringTag", 1}, {"ExternalStringTag", 2}, {"SlicedStringTag", 3}, {"ThinStringTag", 5},
	{"class_String__length__int32_t", 12}, {"class_SeqOneByteString__chars__char", 16}, {"class_SeqTwoByteString__chars__char", 16},
	{"class_ConsString__first__String", 16}, {"class_ConsString__second__String", 24}, {"class_ThinString__actual__String", 16},
	{"class_SlicedString__parent__String", 16}, {"class_SlicedString__offset__SMI", 24}, {"class_ExternalString__resource__Object", 16},
	{"class_FixedArrayBase__length__SMI", 8}, {"class_FixedArray__data__uintptr_t", 16}, {"scopeinfo_idx_ncontextlocals", 2},
}

// functionTypes is how many instance types of functions there are, where that
// is not told: V8 10 and 11.
const functionTypes = 17

func readLayout(f *binfile.File) (layout, error) {
	d, err := readDynamic(f)
	if err != nil {
		return layout{}, err
	}
	for _, c := range fixed {
		if v := int32(d.get(c.name)); v != c.value && len(d.missing) == 0 {
			return layout{}, fmt.Errorf("this V8 is laid out in a way that is not known: %s is %d, not %d", c.name, v, c.value)
		}
	}
	l := layout{parameters: d.parameters()}
	l.major = d.version()
	l.fixedArrayTypes = d.all("type_FixedArray__FIXED_ARRAY_TYPE", "type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE", "type_ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE")
	l.byteArrayTypes = d.all("type_ByteArray__BYTE_ARRAY_TYPE", "type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE")
	l.weakArrayTypes = d.any("type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE", "type_TrustedWeakFixedArray__TRUSTED_WEAK_FIXED_ARRAY_TYPE", "type_ProtectedWeakFixedArray__PROTECTED_WEAK_FIXED_ARRAY_TYPE")
	l.interpreterData = d.get("type_InterpreterData__INTERPRETER_DATA_TYPE")
	l.codeType = d.get("type_Code__CODE_TYPE")
	l.sharedWrapperType = d.or(0, "type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE")
	l.functionData = d.or(8, "class_SharedFunctionInfo__function_data__")
	l.source = d.get("class_Script__source__")
	l.lineEnds = d.get("class_Script__line_ends__")
	l.bytecodeData = d.get("class_BytecodeArray__data__")
	l.bytecodeTable = 32
	if _, trusted := d.find("class_BytecodeArray__wrapper__"); trusted {
		l.bytecodeTable = 24 // behind the wrapper that bytecode has since V8 12
	}
	l.code = d.code()
	if len(d.missing) > 0 {
		return l, fmt.Errorf("this V8 does not export what debuggers need: %s", strings.Join(d.missing, ", "))
	}
	return l, l.readSymbols(f)
}

func (d *dynamic) parameters() (p parameters) {
	p.instanceType = d.get("class_Map__instance_type__uint16_t")
	function := d.get("type_JSFunction__JS_FUNCTION_TYPE")
	p.firstFunction = d.or(function, "FirstJSFunctionType")
	p.lastFunction = d.or(function+functionTypes-1, "LastJSFunctionType")
	p.bytecodeType = d.get("type_BytecodeArray__BYTECODE_ARRAY_TYPE")
	p.scopeType = d.get("type_ScopeInfo__SCOPE_INFO_TYPE")
	p.scriptType = d.get("type_Script__SCRIPT_TYPE")
	p.sharedType = d.get("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")
	p.shared = d.get("class_JSFunction__shared__")
	p.name = d.get("class_SharedFunctionInfo__name_or_scope_info__")
	p.script = d.get("class_SharedFunctionInfo__script__", "class_SharedFunctionInfo__raw_script__", "class_SharedFunctionInfo__script_or_debug_info__")
	p.scriptName = d.get("class_Script__name__")
	p.scopeVariables = d.get("scopeinfo_idx_first_vars")
	if p.scopeVariables == 5 {
		p.scopePositions = 32 // start and end are the two words before the variables
	}
	p.wasmFrame = d.get("frametype_WasmFrame")
	return p
}

// code is how compiled code lies, of which some versions tell all and others a
// part. What they do not tell is from their sources: code.h and
// deoptimization-data.h of V8 10.2, 11.3, 12.4, 13.6 and 14.6.
func (d *dynamic) code() (c codeLayout) {
	stream, apart := d.find("type_InstructionStream__INSTRUCTION_STREAM_TYPE")
	if apart {
		c.instructionsType = stream
		c.instructions = d.get("class_InstructionStream__instruction_start__")
		c.start = d.or(40, "class_Code__instruction_start__Address")
	} else {
		c.instructionsType = d.get("type_Code__CODE_TYPE")
		c.instructions = d.get("class_Code__instruction_start__uintptr_t")
	}
	c.size = d.or(56, "class_Code__instruction_size__int")
	c.data, c.positions = 16, 24
	if _, trusted := d.find("class_Code__wrapper__"); trusted {
		c.data, c.positions = 8, 16
	}
	c.inlined = d.or(1, "DeoptimizationDataInlinedFunctionCountIndex")
	c.literals = d.or(2, "DeoptimizationDataLiteralArrayIndex")
	c.function = d.or(6, "DeoptimizationDataSharedFunctionInfoIndex", "DeoptimizationDataWrappedSharedFunctionInfoIndex")
	c.inlining = d.or(7, "DeoptimizationDataInliningPositionsIndex")
	return c
}

// any are the values of those names that there are.
func (d *dynamic) any(names ...string) (values []uint32) {
	for _, name := range names {
		if v, ok := d.find(name); ok {
			values = append(values, v)
		}
	}
	return values
}

// all is any for names of which the first must be there.
func (d *dynamic) all(names ...string) []uint32 {
	values := d.any(names...)
	if len(values) == 0 {
		d.missing = append(d.missing, names[0])
	}
	return values
}

func (d *dynamic) version() int {
	s, ok := d.exports.Lookup("_ZN2v88internal7Version6major_E")
	var b [4]byte
	if n, _ := d.file.ReadAddress(b[:], s.Address); !ok || n != len(b) {
		d.missing = append(d.missing, "v8::internal::Version::major_")
		return 0
	}
	return int(le.Uint32(b[:]))
}

// readSymbols finds what is not meant for debuggers: the file offsets of the
// code that V8 brings along, how long instructions of bytecode are, and those of
// translations.
func (l *layout) readSymbols(f *binfile.File) error {
	t, err := lang.FindV8Tables(f)
	if err != nil {
		return err
	}
	l.builtins, _ = f.Offset(t.Builtins)
	l.builtinsEnd = l.builtins + t.BuiltinsSize
	table := make([]byte, 3*mostBytecode)
	n, _ := f.ReadAddress(table, t.BytecodeSizes)
	l.sizes = newSizes(table[:n]) // without it baseline code has no lines
	n, _ = f.ReadAddress(table[:4*mostOpcodes], t.TranslationOperands)
	l.translations = newOpcodes(table[:n], l.major)
	return nil
}
