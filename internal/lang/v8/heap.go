package v8

import (
	"io"
	"slices"
	"strings"
	"unicode/utf16"
)

// heap reads V8's objects in a process. Whatever is there may change while it
// is read: every method tells whether it saw what it expects, and bounds what
// it reads.
type heap struct {
	memory io.ReaderAt
	layout layout
}

const maxName = 1 << 10 // characters of a function's or a script's name

// pointer tells whether a word is a pointer to an object.
func pointer(word uint64) bool { return word&3 == 1 }

// small is the value of a word that is a small integer.
func small(word uint64) (int, bool) { return int(int64(word) >> 32), word&0xffffffff == 0 }

func (h *heap) read(b []byte, address uint64) bool {
	n, _ := h.memory.ReadAt(b, int64(address))
	return n == len(b)
}

// word reads a field of an object.
func (h *heap) word(object uint64, offset uint32) (uint64, bool) {
	var b [8]byte
	ok := h.read(b[:], object-1+uint64(offset))
	return le.Uint64(b[:]), ok
}

// half reads a field of 32 bits.
func (h *heap) half(object uint64, offset uint32) (uint32, bool) {
	var b [4]byte
	ok := h.read(b[:], object-1+uint64(offset))
	return le.Uint32(b[:]), ok
}

// typeOf is the instance type of an object.
func (h *heap) typeOf(object uint64) (uint32, bool) {
	if !pointer(object) {
		return 0, false
	}
	m, ok := h.word(object, 0)
	if !ok || !pointer(m) {
		return 0, false
	}
	var b [2]byte
	ok = h.read(b[:], m-1+uint64(h.layout.instanceType))
	return uint32(le.Uint16(b[:])), ok
}

func (h *heap) is(object uint64, types ...uint32) bool {
	t, ok := h.typeOf(object)
	return ok && slices.Contains(types, t)
}

// field reads a field that points to an object of one of some types.
func (h *heap) field(object uint64, offset uint32, types ...uint32) (uint64, bool) {
	v, ok := h.word(object, offset)
	return v, ok && h.is(v, types...)
}

// length is the number of elements of an array, no more than most.
func (h *heap) length(array uint64, most int) (int, bool) {
	v, ok := h.word(array, 8)
	n, isSmall := small(v)
	return n, ok && isSmall && n >= 0 && n <= most
}

const arrayData = 16

// bytes reads an array of bytes.
func (h *heap) bytes(array uint64, most int) ([]byte, bool) {
	if !h.is(array, h.layout.byteArrayTypes...) {
		return nil, false
	}
	n, ok := h.length(array, most)
	if !ok {
		return nil, false
	}
	b := make([]byte, n)
	return b, h.read(b, array-1+arrayData)
}

// Kinds of strings, by the lower bits of their type.
const (
	stringTypes   = 128
	oneByte       = 8
	uncached      = 16
	flatString    = 0
	twoStrings    = 1
	externString  = 2
	slicedString  = 3
	thinString    = 5
	maxIndirect   = 16
	stringLength  = 12
	stringChars   = 16
	stringFirst   = 16 // of two, parent of a slice, target of a thin one
	stringSecond  = 24
	externAddress = 24
)

// chars is the text of a string: Latin-1, or UTF-16 in little-endian bytes.
type chars struct {
	bytes []byte
	wide  bool
}

func (c chars) len() int {
	if c.wide {
		return len(c.bytes) / 2
	}
	return len(c.bytes)
}

func (c chars) at(i int) uint16 {
	if c.wide {
		return le.Uint16(c.bytes[2*i:])
	}
	return uint16(c.bytes[i])
}

func (c chars) String() string {
	units := make([]uint16, c.len())
	for i := range units {
		units[i] = c.at(i)
	}
	return strings.ToValidUTF8(string(utf16.Decode(units)), "\ufffd")
}

// text reads a string of at most so many characters, a longer one up to there
// if it may be cut.
func (h *heap) text(string uint64, most int, cut bool) (chars, bool) {
	from, want := 0, -1 // of a slice
	for range maxIndirect {
		t, ok := h.typeOf(string)
		n, ok2 := h.half(string, stringLength)
		if !ok || !ok2 || t >= stringTypes || int32(n) < 0 {
			return chars{}, false
		}
		if want < 0 {
			want = int(n)
			if want > most && !cut {
				return chars{}, false
			}
			want = min(want, most)
		}
		at := string - 1 + stringChars
		switch t & 7 {
		case externString:
			at, ok = h.word(string, externAddress)
			if !ok || t&uncached != 0 {
				return chars{}, false
			}
			fallthrough
		case flatString:
			if from+want > int(n) {
				return chars{}, false
			}
			return h.chars(at, from, want, t&oneByte == 0)
		case twoStrings:
			second, _ := h.word(string, stringSecond)
			if rest, ok := h.half(second, stringLength); !ok || rest != 0 {
				return chars{}, false // not put together yet
			}
		case slicedString:
			offset, _ := h.word(string, stringSecond)
			skip, ok := small(offset)
			if !ok || skip < 0 {
				return chars{}, false
			}
			from += skip
		case thinString:
		default:
			return chars{}, false
		}
		if string, ok = h.word(string, stringFirst); !ok {
			return chars{}, false
		}
	}
	return chars{}, false
}

func (h *heap) chars(at uint64, from, n int, wide bool) (chars, bool) {
	c := chars{wide: wide}
	size := uint64(1)
	if wide {
		size = 2
	}
	c.bytes = make([]byte, uint64(n)*size)
	return c, n == 0 || h.read(c.bytes, at+uint64(from)*size)
}

// name reads a short string; "" where it is none.
func (h *heap) name(string uint64) string {
	name, _ := h.readName(string)
	return name
}

// readName is name that tells an empty string from one that cannot be read.
func (h *heap) readName(string uint64) (name string, ok bool) {
	c, ok := h.text(string, maxName, true)
	if !ok {
		return "", false
	}
	return c.String(), true
}

// function is what V8 knows of a function's source: SharedFunctionInfo.
type function struct {
	shared uint64
	nameAt uint64 // its name, or the scope that holds it
	script uint64
	name   string
	known  bool // the name, which may be none
	start  int  // position in the script, -1 unknown
}

// function reads one that the process has in use.
func (h *heap) function(shared uint64) (f function, ok bool) {
	if !h.is(shared, h.layout.sharedType) {
		return f, false
	}
	var ok1, ok2 bool
	f.shared, f.start = shared, -1
	f.nameAt, ok1 = h.word(shared, h.layout.parameters.name)
	f.script, ok2 = h.word(shared, h.layout.parameters.script)
	if !ok1 || !ok2 {
		return f, false
	}
	if h.is(f.nameAt, h.layout.scopeType) {
		f.name, f.known, f.start = h.scope(f.nameAt)
	} else if f.name, f.known = h.readName(f.nameAt); !f.known {
		_, f.known = small(f.nameAt) // in place of a name: none
	}
	return f, true
}

// place is where a function lies: another one can lie there later.
func (f *function) place() [3]uint64 { return [3]uint64{f.shared, f.nameAt, f.script} }

// contradicts tells whether two functions cannot be one, by what is known of both.
func (f *function) contradicts(o *function) bool {
	if f.start >= 0 && o.start >= 0 && f.start != o.start {
		return true
	}
	return f.name != "" && o.name != "" && certain(f.name) != certain(o.name)
}

// certain is what a photograph is sure to hold of a name: the rest may be cut off.
func certain(name string) string { return name[:min(len(name), photographedName)] }

const (
	scopeLocals  = 24
	scopeInlined = 75 // from so many locals on their names are kept apart
)

// scope finds a function's name and position in its scope; v8.h draws it.
func (h *heap) scope(scope uint64) (name string, known bool, start int) {
	v, ok := h.word(scope, scopeLocals)
	locals, isSmall := small(v)
	if !ok || !isSmall || locals < 0 || locals > 1<<20 {
		return "", false, -1
	}
	if locals < scopeInlined {
		locals *= 2
	} else {
		locals++
	}
	at := scope - 1 + 8 + 8*(uint64(h.layout.scopeVariables)+uint64(locals))
	var b [48]byte
	if !h.read(b[:], at) {
		return "", false, -1
	}
	words := make([]uint64, 6)
	for i := range words {
		words[i] = le.Uint64(b[8*i:])
	}
	if words[0]&1 == 0 {
		words = words[1:]
	}
	start = -1
	t, ok := h.typeOf(words[0])
	named := ok && t < stringTypes
	if p := h.layout.scopePositions; p != 0 {
		if v, ok := h.word(scope, p); ok {
			start = position(v)
		}
	} else if named && words[2]&1 != 0 {
		start = position(words[3])
	} else if named {
		start = position(words[2])
	}
	if !named {
		return "", ok || !pointer(words[0]), start
	}
	if name, known = h.readName(words[0]); known && name == "" {
		name = h.name(words[2]) // inferred: nobody wrote it, so without it there is none
	}
	return name, known, start
}

func position(word uint64) int {
	if p, ok := small(word); ok && p >= 0 {
		return p
	}
	return -1
}
