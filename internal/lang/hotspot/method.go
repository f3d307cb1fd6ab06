package hotspot

import (
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
	"unsafe"

	"atys.dev/atys/internal/profile"
)

// identified is a Method as it was when it was sampled.
type identified struct {
	address  uint64
	identity uint64 // short
}

// method is what is known of a Method.
type method struct {
	identity uint64 // of which a sample has 44 bits; see short
	constant uint64 // address of its ConstMethod
	bytecode uint64 // address of its bytecode
	size     int    // of that
	function string // as shown
	file     string
	lines    lines
	start    int // lowest line
}

const (
	maxSymbol    = 1 << 13 // bytes of a name; the format allows 65,535
	maxLineBytes = 1 << 16
	maxPool      = 1 << 16

	nameCost, lineCost = 16, 64 // of a byte that is decoded, as meter counts
)

// readMethod follows a Method to its names.
//
//	Method -> ConstMethod: code, lines -> ConstantPool: name, source -> Klass: name
func (r *reader) readMethod(address uint64) (*method, bool) {
	l := &r.l
	constant, ok := r.m.u64(address + uint64(l.MethodConstant))
	if !ok || address == 0 || address%8 != 0 {
		return nil, false
	}
	c, ok := r.m.bytes(constant, l.constMethodBytes, 1<<12)
	if !ok {
		return nil, false
	}
	pool := le.Uint64(c[l.ConstantPool:])
	head, ok := r.m.bytes(pool, l.poolBytes, 1<<12)
	if !ok {
		return nil, false
	}
	slots := le.Uint32(head[l.poolLength:])
	index := uint32(le.Uint16(c[l.ConstantName:]))
	holder := le.Uint64(head[l.PoolHolder:])
	if slots > maxPool || index == 0 || index >= slots {
		return nil, false
	}
	name, ok1 := r.slot(pool, index)
	class, ok2 := r.m.u64(holder + uint64(l.KlassName))
	if !ok1 || !ok2 {
		return nil, false
	}
	nameText, nameMark, ok1 := r.symbol(name)
	classText, classMark, ok2 := r.symbol(class)
	if !ok1 || !ok2 {
		return nil, false
	}
	if !r.declares(holder, classText, address) {
		return nil, false
	}
	m := &method{constant: constant, bytecode: constant + l.constMethodBytes, size: int(le.Uint16(c[l.codeSize:]))}
	shown := shownClass(classText)
	m.function = strings.ReplaceAll(shown, "/", ".") + "." + nameText
	var sourceMark uint64
	if source, ok := r.slot(pool, r.sourceSlot(pool, holder)); ok {
		text, mark, ok := r.symbol(source)
		if !ok {
			return nil, false
		}
		m.file, sourceMark = path.Join(path.Dir(shown), path.Base(text)), mark
	}
	m.identity = identityOf(nameMark, classMark, sourceMark)
	if uint64(le.Uint16(c[l.constFlags:]))&l.hasLines != 0 {
		m.lines = r.readLines(m.bytecode + uint64(m.size))
		m.start = m.lines.first()
	}
	return m, true
}

// slot reads what a constant pool holds at an index: a symbol, where that is
// what is there.
func (r *reader) slot(pool uint64, index uint32) (uint64, bool) {
	if index == 0 {
		return 0, false
	}
	symbol, ok := r.m.u64(pool + uint64(r.l.PoolSlots) + 8*uint64(index))
	return symbol &^ 3, ok && symbol != 0
}

const (
	maxMethods = 1 << 16 // of one class
	arrayData  = 8       // of the JVM's arrays of pointers, behind their length
)

// declares tells whether a class has a Method among its own. Of a class that is
// being unloaded parts may be another's already, while code that was compiled of
// it is still there: names read from both would be of neither. The linkers of
// method handles are made apart, and in no list.
func (r *reader) declares(class uint64, name string, method uint64) bool {
	if !r.l.klassMethods.known() || strings.HasPrefix(name, "java/lang/invoke/") {
		return true
	}
	array, ok := r.m.u64(class + uint64(r.l.klassMethods))
	if !ok {
		return false
	}
	var length [4]byte
	if !r.m.read(length[:], array) {
		return false
	}
	n := le.Uint32(length[:])
	if n > maxMethods {
		return false
	}
	all, ok := r.m.bytes(array+arrayData, 8*uint64(n), 8*maxMethods)
	for ; ok && len(all) >= 8; all = all[8:] {
		if le.Uint64(all) == method {
			return true
		}
	}
	return false
}

// sourceSlot is which slot of a class's pool has the name of its source file;
// 0: none.
func (r *reader) sourceSlot(pool, holder uint64) uint32 {
	at := pool + uint64(r.l.PoolSource)
	if r.l.PoolSource == 0 {
		at = holder + uint64(r.l.KlassSource)
	}
	var b [2]byte
	if r.l.PoolSource|r.l.KlassSource == 0 || !r.m.read(b[:], at) {
		return 0
	}
	return uint32(le.Uint16(b[:]))
}

// symbol reads a name, and what it is known by.
func (r *reader) symbol(address uint64) (text string, mark uint64, ok bool) {
	var b [256]byte
	n, _ := r.m.r.ReadAt(b[:], int64(address))
	if address == 0 || n < 8 {
		return "", 0, false
	}
	length, body := int(le.Uint16(b[r.l.symbolLength:])), int(r.l.symbolBody)
	if length == 0 || length > maxSymbol {
		return "", 0, false
	}
	raw := make([]byte, length)
	if body+length <= n {
		copy(raw, b[body:])
	} else if !r.m.read(raw, address+uint64(body)) {
		return "", 0, false
	}
	r.m.spend(nameCost * length)
	text, ok = decodeName(raw)
	return text, r.l.mark(address, le.Uint64(b[:])), ok
}

// decodeName takes a name out of a class file's UTF-8, which writes characters
// beyond 16 bits as two halves. Bytes that make no name are refused.
func decodeName(raw []byte) (string, bool) {
	for _, c := range raw {
		if c < ' ' {
			return "", false
		}
	}
	if utf8.Valid(raw) {
		return string(raw), true
	}
	return joinSurrogates(raw)
}

// joinSurrogates decodes halves: ED A0..AF xx ED B0..BF xx.
func joinSurrogates(raw []byte) (string, bool) {
	var b strings.Builder
	for len(raw) > 0 {
		if len(raw) >= 6 && raw[0] == 0xed && raw[1]&0xf0 == 0xa0 && raw[3] == 0xed && raw[4]&0xf0 == 0xb0 {
			high := rune(raw[1]&0xf)<<6 | rune(raw[2]&0x3f)
			low := rune(raw[4]&0xf)<<6 | rune(raw[5]&0x3f)
			b.WriteRune(0x10000 + high<<10 + low)
			raw = raw[6:]
			continue
		}
		r, n := utf8.DecodeRune(raw)
		if r == utf8.RuneError && n == 1 {
			return "", false
		}
		b.WriteRune(r)
		raw = raw[n:]
	}
	return b.String(), true
}

// hidden is what a JVM appends to the names of classes that are not found by
// name: an address, and before it the number of a lambda. Both differ from run
// to run.
var hidden = regexp.MustCompile(`(\$\$Lambda)?(?:\$\d+)?[+/]0x[0-9a-f]+$|(\$\$Lambda)\$\d+(?:/\d+)?$`)

// hiddenBytes is more than that takes; expressions are slow.
const hiddenBytes = 64

func shownClass(name string) string {
	if !strings.Contains(name, "0x") && !strings.Contains(name, "$$Lambda$") {
		return name
	}
	tail := max(len(name)-hiddenBytes, 0)
	return name[:tail] + hidden.ReplaceAllString(name[tail:], "$1$2")
}

// readLines reads a table of lines, which ends with a zero.
func (r *reader) readLines(address uint64) lines {
	var raw []byte
	for size := 256; len(raw) < maxLineBytes; size *= 2 {
		b := make([]byte, size)
		n, _ := r.m.r.ReadAt(b, int64(address)+int64(len(raw)))
		raw = append(raw, b[:n]...)
		r.m.spend(lineCost * n)
		if end := tableEnd(raw, r.l.biased); end >= 0 {
			return lines{append([]byte(nil), raw[:end]...), r.l.biased}
		}
		if n < size {
			break
		}
	}
	return lines{}
}

// tableEnd finds where a table of lines ends; -1: not in these bytes.
func tableEnd(raw []byte, biased bool) int {
	n := numbers{raw: raw, biased: biased}
	for len(n.raw) > 0 {
		b := n.raw[0]
		if b == 0 {
			return len(raw) - len(n.raw)
		}
		n.raw = n.raw[1:]
		if b == 255 {
			n.signed()
			n.signed()
			if n.short {
				return -1
			}
		}
	}
	return -1
}

// identityOf is what walks tell Methods by: method_identity of hotspot.h.
func identityOf(name, class, source uint64) uint64 { return mix(mix(name, class), source) }

// mark is what a symbol is known by: symbol_identity of hotspot.h.
func (l *layout) mark(symbol, begins uint64) uint64 { return mix(symbol, begins&l.SymbolMask) }

// short is what a sample has of an identity.
func short(identity uint64) uint64 { return identity >> placeBits }

// mix is the one of unwind.h.
func mix(hash, value uint64) uint64 {
	hash ^= value
	hash *= 0x9E3779B97F4A7C15
	return hash ^ hash>>29
}

// bytes are what a method takes to keep.
func (m *method) bytes() int {
	return int(unsafe.Sizeof(*m)) + len(m.function) + len(m.file) + len(m.lines.raw)
}

// frame shows a place in a method; a negative bytecode is none.
func (m *method) frame(kind profile.Kind, bytecode int) profile.Frame {
	f := profile.Frame{Function: m.function, File: m.file, StartLine: m.start, Kind: kind}
	if bytecode >= 0 && bytecode < m.size {
		f.Line = m.lines.at(bytecode)
	}
	return f
}
