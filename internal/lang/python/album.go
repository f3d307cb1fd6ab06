package python

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// What a photograph holds: enum python_value and the sizes of python.h.
const (
	valueCode      = iota
	valueFirstLine // and the version's minor << 56, the process first read << 32
	valueName
	valueNameState // length << 32 | state
	valueFile
	valueFileState
	valueLines
	valueLinesLength

	nameBytes = 256
	fileBytes = 400
	linesAt   = nameBytes + fileBytes
	maxLines  = 1 << 20 // bytes of a table of lines
)

// Album keeps what photographs of code objects show, and names activations by
// it. The zero value is ready.
type Album struct {
	functions lang.Album[uint64, *function]

	developing sync.Mutex // guards sources
	sources    sources
}

// function is what a code object says of itself.
type function struct {
	minor int
	name  string
	file  string
	first int
	lines []byte
}

// Add keeps what a photograph shows.
func (a *Album) Add(p lang.Photograph) {
	f, ok := develop(p, memory{proc.Memory{PID: p.PID}})
	if !ok {
		return
	}
	if f.minor < firstQualified {
		a.developing.Lock()
		f.name = a.sources.qualify(f, p.PID, int(p.Values[valueFirstLine]>>32&0xffffff))
		a.developing.Unlock()
	}
	a.functions.Keep(p.What, f)
}

// Name tells the function of an activation: none where its photograph was lost.
func (a *Album) Name(of lang.Activation, _ lang.Walked) []profile.Frame {
	f, ok := a.functions.Find(of.What)
	if !ok {
		return nil
	}
	return []profile.Frame{{Kind: profile.KindPython, Function: f.name, File: f.file, Line: f.line(of.Where), StartLine: f.first}}
}

// line finds where the function stood; 0 where that is in no line.
func (f *function) line(where uint64) int {
	if where >= 1<<31 { // before its first instruction
		return f.first
	}
	line, ok := lineAt(f.minor, f.lines, f.first, int(where))
	if !ok || line < 0 {
		return 0
	}
	return line
}

// develop reads a photograph. What the walk could not copy, because it was too
// long or not in memory, is read from the process, where it is still there.
func develop(p lang.Photograph, m memory) (*function, bool) {
	minor := int(p.Values[valueFirstLine] >> 56)
	l, err := layoutOf(minor)
	if err != nil || len(p.Bytes) < linesAt {
		return nil, false
	}
	f := &function{minor: minor, first: int(int32(p.Values[valueFirstLine]))}
	lines := piece(p.Bytes[linesAt:], p.Lengths[2])
	name := text(l, p.Values[valueNameState], piece(p.Bytes[:nameBytes], p.Lengths[0]), false)
	file := text(l, p.Values[valueFileState], piece(p.Bytes[nameBytes:linesAt], p.Lengths[1]), true)
	whole := p.Values[valueLinesLength]
	lacks := p.Lengths[0] == 0 || p.Lengths[1] == 0 || whole > uint64(len(lines))
	if lacks && stillThere(l, p, m) {
		name = firstOf(name, func() string { return l.readText(m, p.Values[valueName], false) })
		file = firstOf(file, func() string { return l.readText(m, p.Values[valueFile], true) })
		lines = l.readLines(m, p.Values[valueLines], lines)
	}
	if name == "" {
		return nil, false
	}
	f.name, f.file, f.lines = name, file, bytes.Clone(lines)
	return f, true
}

func piece(of []byte, length uint32) []byte { return of[:min(int(length), len(of))] }

func firstOf(text string, or func() string) string {
	if text != "" {
		return text
	}
	return or()
}

// stillThere tells whether the code object is the one that was photographed.
func stillThere(l layout, p lang.Photograph, m memory) bool {
	for _, same := range []struct {
		offset uint32
		value  int
	}{{l.CodeName, valueName}, {l.CodeFile, valueFile}, {l.CodeLines, valueLines}} {
		word, err := m.word(p.Values[valueCode] + uint64(same.offset))
		if err != nil || word != p.Values[same.value] {
			return false
		}
	}
	return true
}

// readText reads a string of the process.
func (l layout) readText(m memory, at uint64, end bool) string {
	length, err := m.word(at + uint64(l.StringLength))
	state, err2 := m.word(at + uint64(l.StringState))
	if err != nil || err2 != nil || length > fileBytes {
		return ""
	}
	state = length<<32 | state&0xffffffff
	data := at + uint64(l.StringOther)
	if l.isASCII(state) {
		data = at + uint64(l.StringASCII)
	}
	raw := make([]byte, int(length)*l.kind(state))
	if n, err := m.ReadAt(raw, int64(data)); err != nil || n < len(raw) {
		return ""
	}
	return text(l, state, raw, end)
}

// readLines reads a table of lines of the process that begins with what is
// known; that is all there is where it does not.
func (l layout) readLines(m memory, at uint64, known []byte) []byte {
	length, err := m.word(at + uint64(l.BytesLength))
	if err != nil || length > maxLines {
		return known
	}
	table := make([]byte, length)
	n, err := m.ReadAt(table, int64(at+uint64(l.BytesData)))
	if err != nil || n < len(table) || !bytes.HasPrefix(table, known) {
		return known
	}
	return table
}

// kind is how many bytes a character has.
func (l layout) kind(state uint64) int { return int(state >> l.KindBit & 7) }

func (l layout) isASCII(state uint64) bool { return state>>l.ASCIIBit&1 != 0 }

// cut stands for what did not fit.
const cut = "…"

// text decodes the characters of a string: its beginning, or its end, where
// state tells that it has more.
func text(l layout, state uint64, raw []byte, end bool) string {
	var s string
	kind := l.kind(state)
	switch kind {
	case 1:
		s = latin1(raw, l.isASCII(state))
	case 2:
		units := make([]uint16, len(raw)/2)
		for i := range units {
			units[i] = binary.LittleEndian.Uint16(raw[2*i:])
		}
		s = string(utf16.Decode(units))
	case 4:
		var b strings.Builder
		for ; len(raw) >= 4; raw = raw[4:] {
			r := rune(binary.LittleEndian.Uint32(raw))
			if !utf8.ValidRune(r) {
				r = utf8.RuneError
			}
			b.WriteRune(r)
		}
		s = b.String()
	default:
		return ""
	}
	switch whole := int(state>>32) * kind; {
	case s == "" || whole <= fileBytes && end || whole <= nameBytes && !end:
	case end:
		s = cut + s
	default:
		s += cut
	}
	return s
}

func latin1(raw []byte, ascii bool) string {
	if ascii && utf8.Valid(raw) {
		return string(raw)
	}
	runes := make([]rune, len(raw))
	for i, b := range raw {
		runes[i] = rune(b)
	}
	return string(runes)
}
