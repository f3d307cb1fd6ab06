package beam

import (
	"encoding/binary"
	"errors"
	"testing"

	"atys.dev/atys/internal/lang"
)

// memory is that of a process: pieces by address.
type memory map[uint64][]byte

func (m memory) ReadAt(p []byte, address int64) (int, error) {
	for at, b := range m {
		if a := uint64(address); a >= at && a < at+uint64(len(b)) {
			if n := copy(p, b[a-at:]); n < len(p) {
				return n, errors.New("cut")
			}
			return len(p), nil
		}
	}
	return 0, errors.New("nothing is mapped there")
}

func words(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

const (
	atomsAt    = 0x10000
	segmentAt  = 0x11000
	atomAt     = 0x12000
	textAt     = 0x13000
	tableAt    = 0x14000
	bottomAt   = 0x15000
	processAt  = 0x16000
	heapAt     = 0x17000
	codeAt     = 0x20000
	codeBytes  = 3 * page
	firstAtom  = 0x0b
	secondAtom = 1<<6 | 0x0b
	endOfAll   = codeAt + 0x30
)

// machine is a BEAM with two atoms, a process, and code with the functions given.
func machine(heads map[int][]byte) memory {
	code := make([]byte, codeBytes)
	for at, head := range heads {
		copy(code[at:], head)
	}
	process := make([]byte, 256)
	copy(process[stopOf:], words(heapAt+0x30))
	copy(process[heapOf:], words(heapAt, heapAt+0x40, 0, 8))
	return memory{
		atomsAt:         append(make([]byte, atomSegments), words(segmentAt)...),
		segmentAt:       words(segmentAt + 8), // the only segment follows
		segmentAt + 8:   append(words(atomAt, atomAt+0x100), make([]byte, 64)...),
		atomAt:          append(make([]byte, 24), words(5, textAt)...),
		atomAt + 0x100:  append(make([]byte, 24), words(3, textAt+5)...),
		textAt:          []byte("listsmap"),
		tableAt:         append(make([]byte, processes), words(tableAt+0x800)...),
		tableAt + 0x800: append(words(0, processAt), make([]byte, 8*62)...),
		bottomAt:        words(endOfAll),
		processAt:       process,
		heapAt:          append(make([]byte, 0x38), words(endOfAll)...),
		codeAt:          code,
	}
}

func head(module, function, arity uint64) []byte {
	return append([]byte{0xe8, 1, 2, 3, 4, 0xff, 0x0f, 0x1f}, words(0, module, function, arity)...)
}

func TestName(t *testing.T) {
	m := machine(map[int][]byte{
		0x100:      head(firstAtom, secondAtom, 2),
		page - 16:  head(secondAtom, firstAtom, 0), // over the edge of a page
		2 * page:   head(firstAtom, 7<<6|0x0b, 1),  // an atom that is not
		2*page + 8: head(firstAtom, secondAtom, 300),
	})
	r, err := find(m, atomsAt, tableAt, bottomAt)
	if err != nil {
		t.Fatal(err)
	}
	if r.parameters != (Parameters{Bottom: endOfAll, Heap: heapOf, Stop: stopOf}) {
		t.Errorf("got %+v", r.parameters)
	}
	for at, want := range map[uint64]string{
		0x100:             "", // that is its head
		0x100 + headBytes: "lists:map/2",
		page - 17:         "lists:map/2",
		page + 24:         "map:lists/0",
		2*page + 200:      "map:lists/0",
	} {
		var got string
		if frames := new(Namer).Name(lang.Activation{Where: codeAt + at}, r); len(frames) > 0 {
			got = frames[0].Function
		}
		if got != want {
			t.Errorf("at %#x is %q, want %q", at, got, want)
		}
	}
	if _, ok := r.name(0x9000000); ok {
		t.Error("code where nothing is mapped has a name")
	}
}

func TestFindRefuses(t *testing.T) {
	for name, damage := range map[string]func(memory){
		"starting":     func(m memory) { m[bottomAt] = words(0) },
		"other heap":   func(m memory) { copy(m[processAt][heapOf:], words(heapAt, heapAt+0x40, 0, 9)) },
		"other bottom": func(m memory) { copy(m[heapAt][0x38:], words(1)) },
		"other stop":   func(m memory) { copy(m[processAt][stopOf:], words(heapAt+0x40)) },
		"no table":     func(m memory) { delete(m, tableAt) },
	} {
		m := machine(nil)
		damage(m)
		if _, err := find(m, atomsAt, tableAt, bottomAt); err == nil {
			t.Errorf("%s: a runtime was found", name)
		}
	}
}

func TestCallOf(t *testing.T) {
	m := machine(nil)
	r := &Runtime{memory: m, parameters: Parameters{Bottom: codeAt + page}}
	copy(m[codeAt][0x100:], "\xff\x15\xfa\x00\x00\x00\xff\x15\xfc\x00\x00\x00") // 0x106+0xfa, 0x10c+0xfc
	copy(m[codeAt][0x200:], words(1, 0x1234))
	if got := r.callOf(0x1234); got != codeAt+0x10c {
		t.Errorf("got %#x", got)
	}
	if got := r.callOf(0x5678); got != 0 {
		t.Errorf("a call of nothing returns to %#x", got)
	}
}

// FuzzName asserts that whatever the code holds, a name has its three parts.
func FuzzName(f *testing.F) {
	f.Add(head(firstAtom, secondAtom, 2), uint16(headBytes))
	f.Add(head(firstAtom, 9, 2), uint16(100))
	f.Fuzz(func(t *testing.T, code []byte, at uint16) {
		r, err := find(machine(map[int][]byte{0: code[:min(len(code), codeBytes)]}), atomsAt, tableAt, bottomAt)
		if err != nil {
			t.Fatal(err)
		}
		switch name, ok := r.name(codeAt + uint64(at)); {
		case !ok && name != "":
			t.Errorf("%q is no name", name)
		case ok && (len(name) < len("map:map/0") || len(name) > len("lists:lists/255")):
			t.Errorf("got %q", name)
		}
	})
}
