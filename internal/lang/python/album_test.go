package python

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// str is a string as CPython keeps it.
func str(s string) (state uint64, raw []byte) {
	kind := 1
	for _, r := range s {
		switch {
		case r > 0xffff:
			kind = 4
		case r > 0xff && kind < 2:
			kind = 2
		}
	}
	for _, r := range s {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(r))
		raw = append(raw, b[:kind]...)
	}
	state = uint64(utf8.RuneCountInString(s))<<32 | uint64(kind)<<2
	if len(raw) == len(s) {
		state |= 1 << 6
	}
	return state, raw
}

// photograph is what a walk would have taken of a function.
func photograph(minor int, name, file string, first int, lines []byte) lang.Photograph {
	p := lang.Photograph{PID: -1, What: 1, Bytes: make([]byte, 2048)}
	p.Values[valueFirstLine] = uint64(minor)<<56 | uint64(uint32(first))
	state, raw := str(name)
	p.Values[valueNameState] = state
	p.Lengths[0] = uint32(copy(p.Bytes[:nameBytes], raw))
	state, raw = str(file)
	p.Values[valueFileState] = state
	p.Lengths[1] = uint32(copy(p.Bytes[nameBytes:linesAt], raw[max(0, len(raw)-fileBytes):]))
	p.Values[valueLinesLength] = uint64(len(lines))
	p.Lengths[2] = uint32(copy(p.Bytes[linesAt:], lines))
	return p
}

func TestAlbum(t *testing.T) {
	var a Album
	code := readOracle(t, 11)[1]
	table, err := hex.DecodeString(code.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Worker.run", "naïve", "関数", "𐌰𐌱"} {
		p := photograph(11, name, "/srv/"+name+".py", code.First, table)
		a.Add(p)
		frames := a.Name(lang.Activation{PID: 7, What: p.What, Where: uint64(code.Lines[1][0])}, nil)
		want := profile.Frame{Kind: profile.KindPython, Function: name, File: "/srv/" + name + ".py", Line: code.Lines[1][2], StartLine: code.First}
		if len(frames) != 1 || frames[0] != want {
			t.Errorf("%+v, want %+v", frames, want)
		}
	}
	if got := a.Name(lang.Activation{What: 1, Where: 0xffffffff}, nil); got[0].Line != code.First {
		t.Errorf("before its first instruction: line %d", got[0].Line)
	}
	if got := a.Name(lang.Activation{What: 2}, nil); got != nil {
		t.Errorf("who has no photograph is called %+v", got)
	}
	long := strings.Repeat("n", 300)
	a.Add(photograph(11, long, strings.Repeat("/f", 300), 1, nil))
	f := a.Name(lang.Activation{What: 1}, nil)[0]
	if f.Function != long[:nameBytes]+cut || f.File != cut+strings.Repeat("/f", fileBytes/2) {
		t.Errorf("what is too long: %q in %q", f.Function, f.File)
	}
	a.Add(photograph(15, "f", "f.py", 1, nil))
	if got := a.Name(lang.Activation{What: 1}, nil)[0].Function; got != f.Function {
		t.Errorf("an unknown version replaced a function by %q", got)
	}
}

// fakeMemory is a process's memory: words and bytes by address.
type fakeMemory map[int64][]byte

func (m fakeMemory) ReadAt(p []byte, at int64) (int, error) {
	for start, bytes := range m {
		if at >= start && at+int64(len(p)) <= start+int64(len(bytes)) {
			return copy(p, bytes[at-start:]), nil
		}
	}
	return 0, errors.New("nothing there")
}

// TestDevelopFromMemory asserts that what a photograph lacks is read from the
// process, and only while the code object is the same.
func TestDevelopFromMemory(t *testing.T) {
	l := layouts[11]
	table := []byte(strings.Repeat("\xd0\x01\x01", 1000)) // one unit each, on the first line
	p := photograph(11, "late", "late.py", 7, table[:100])
	p.Values[valueLinesLength] = uint64(len(table))
	p.Values[valueCode], p.Values[valueName], p.Values[valueFile], p.Values[valueLines] = 0x1000, 0x2000, 0x3000, 0x4000
	p.Lengths[0] = 0 // its name was not in memory
	code, object := make([]byte, 256), make([]byte, 64)
	binary.LittleEndian.PutUint64(code[l.CodeName:], 0x2000)
	binary.LittleEndian.PutUint64(code[l.CodeFile:], 0x3000)
	binary.LittleEndian.PutUint64(code[l.CodeLines:], 0x4000)
	state, raw := str("late")
	binary.LittleEndian.PutUint64(object[l.StringLength:], state>>32)
	binary.LittleEndian.PutUint32(object[l.StringState:], uint32(state))
	copy(object[l.StringASCII:], raw)
	bytes := make([]byte, l.BytesData)
	binary.LittleEndian.PutUint64(bytes[l.BytesLength:], uint64(len(table)))
	m := fakeMemory{0x1000: code, 0x2000: object, 0x4000: append(bytes, table...)}

	f, ok := develop(p, memory{m})
	if !ok || f.name != "late" || f.file != "late.py" || len(f.lines) != len(table) {
		t.Fatalf("%+v, %v", f, ok)
	}
	binary.LittleEndian.PutUint64(code[l.CodeLines:], 0x5000)
	if f, ok := develop(p, memory{m}); ok {
		t.Errorf("another code object gave %+v", f)
	}
	p.Lengths[0] = 4
	if f, ok := develop(p, memory{m}); !ok || len(f.lines) != 100 {
		t.Errorf("with its name known: %+v, %v", f, ok)
	}
}

func FuzzDevelop(f *testing.F) {
	p := photograph(11, "f", "f.py", 1, []byte{0xd0, 1, 1})
	f.Add(uint64(11)<<56|1, p.Values[valueNameState], p.Values[valueFileState], uint64(3), uint32(1), uint32(4), uint32(3), p.Bytes)
	p = photograph(9, "関数", "𐌰.py", 1, []byte{1, 1})
	f.Add(uint64(9)<<56|1, p.Values[valueNameState], p.Values[valueFileState], uint64(2), uint32(4), uint32(16), uint32(2), p.Bytes)
	f.Fuzz(func(t *testing.T, first, name, file, length uint64, n0, n1, n2 uint32, bytes []byte) {
		p := lang.Photograph{Bytes: bytes, Lengths: [4]uint32{n0, n1, n2}}
		p.Values[valueFirstLine], p.Values[valueNameState], p.Values[valueFileState], p.Values[valueLinesLength] = first, name, file, length
		got, ok := develop(p, memory{fakeMemory{}})
		if !ok {
			return
		}
		if !utf8.ValidString(got.name) || !utf8.ValidString(got.file) || got.name == "" || len(got.name) > 4*nameBytes+len(cut) {
			t.Errorf("%q in %q", got.name, got.file)
		}
		for where := uint64(0); where < 100; where += 2 {
			if got.line(where) < 0 {
				t.Errorf("line %d", got.line(where))
			}
		}
	})
}
