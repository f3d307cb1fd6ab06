package v8

import (
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// compiled makes functions outer, middle and inner in one script, and optimised
// code of outer in which inner is inlined into middle, and that into outer.
func compiled(t *testing.T) (r *Runtime, n *Namer, what, begin uint64) {
	t.Helper()
	m := newObjects()
	source := m.text("function outer() {\n  middle();\n}\nfunction middle() {\n  inner();\n}\nfunction inner() {\n  work();\n}\n")
	script := m.object(typeScript, source, m.text("/srv/a.js"), smi(0), 0, 0, 0, smi(0))
	shared := map[string]uint64{}
	for name, f := range map[string]struct{ start, calls int }{"outer": {14, 21}, "middle": {46, 55}, "inner": {76, 87}} {
		table := m.byteArray(encode([]entry{{0, at(f.start, -1)}, {6, at(f.calls, -1)}}, []bool{true, true}, true))
		shared[name] = m.object(typeShared, m.object(typeBytecode, 0, 0, table), 0, m.scope(0, f.start, true, m.text(name), smi(0)), 0, script, 0)
	}
	positions := m.byteArray(encode([]entry{{0, at(14, -1)}, {8, at(87, 1)}, {16, at(55, 0)}, {24, at(21, -1)}, {32, at(87, 7)}},
		[]bool{true, true, true, true, true}, true))
	inlining := make([]byte, 2*inlinedBytes)
	le.PutUint64(inlining[0:], uint64(at(21, -1))) // middle, called by outer
	le.PutUint32(inlining[8:], 0)
	le.PutUint64(inlining[16:], uint64(at(55, 0))) // inner, called there
	le.PutUint32(inlining[24:], 1)
	literals := m.array(shared["middle"]|2, shared["inner"], shared["outer"])
	outer, middle, inner := instruction(opPlain, 6, 2, 0, 0), instruction(opPlain, 7, 0, 0, 0), instruction(opPlain, 6, 1, 0, 0)
	whole := slices.Concat(translated(0, 3, 3), outer, middle, inner)
	two := slices.Concat(translated(0, 2, 2), outer, middle)
	wrong := slices.Concat(translated(0, 2, 2), outer, inner) // which outer does not call
	data := m.array(m.byteArray(slices.Concat(whole, two, wrong)), smi(2), smi(0), literals, smi(0), smi(0), smi(0),
		m.object(typeWrapper, shared["outer"]), m.byteArray(inlining), smi(40), smi(1), smi(3),
		smi(0), smi(len(whole)), smi(13), // no call's
		smi(0), smi(0), smi(13), smi(0), smi(len(whole)), smi(42), smi(0), smi(len(whole)+len(two)), smi(21))
	m.next = (m.next + codePage - 1) &^ (codePage - 1)
	m.allocate(64)
	instructions := m.object(typeInstructions, make([]uint64, 3+64)...)
	begin = instructions - 1 + 32
	code := m.object(typeCode, data, positions, 0, 0, begin, 0, 48)
	m.put(instructions, 8, code)
	copy(m.at[instructions-1][32+48:], []byte{1, 0, 0, 0, 7, 0, 0, 0, 1 | 1<<4 | 1<<7, 0, 0, 0,
		12, 1, 41, 13, 3, 42, 15, 0, 0, 18, 4, 44, 20, 5, 43, 21, 6, 46, 30, 2, 45}) // calls return to 12 (or 40), 13 (or 41), 15 ...

	l := laidOut()
	l.translations = newOpcodes(table(operandCounts), 13)
	r, n = newRuntime(m.whole(), l), &Namer{}
	f, _ := r.heap.function(shared["outer"])
	p := lang.Photograph{What: 99, Bytes: make([]byte, 2048)}
	p.Values = [8]uint64{f.shared, f.nameAt, f.script, 1, smi(14)}
	p.Lengths[0], p.Lengths[1] = uint32(copy(p.Bytes, "outer")), uint32(copy(p.Bytes[scriptText:], "/srv/a.js"))
	n.Look(p, r)
	return r, n, p.What, begin
}

// names writes frames as "inner:8 < outer:2", with inlined ones before "<".
func names(frames []profile.Frame) string {
	var all []string
	for _, f := range frames {
		text := f.Function
		if f.Line != 0 {
			text += ":" + string(rune('0'+f.Line))
		}
		if f.Inlined {
			text += " in"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestInlined(t *testing.T) {
	r, n, what, begin := compiled(t)
	tests := []struct {
		offset int
		want   string
	}{
		{0, "outer:1"}, {7, "outer:1"}, {4, "[javascript function] in outer"},
		{8, "inner:8 in middle:5 in outer:2"},
		{16, "middle:5 in outer:2"},
		{24, "outer:2"},
		{32, "outer"}, // in a call that is not among those inlined
		{11, "inner:8 in middle:5 in outer:2"},
		{39, "inner:8 in middle:5 in outer:2"}, // will return elsewhere
		{14, "[javascript function] in outer"}, // a call without a position of its own
		{29, "outer:2"},
		{43, "outer:2"},
		{46, "[javascript function] in outer"}, // leaving the code
		{12, "inner:8 in middle:5 in outer:2"}, // a call whose translation tells
		{40, "inner:8 in middle:5 in outer:2"},
		{19, "middle:5 in outer:2"},            // and one which that of its exit does
		{20, "[javascript function] in outer"}, // one that cannot be true
	}
	for _, test := range tests {
		kind := uint64(kindCompiled)
		if test.offset > 0 && test.offset < 7 {
			kind = kindCalling // where the code has no call
		}
		where := kind<<kindShift | (begin + uint64(test.offset))
		if got := names(n.Name(lang.Activation{What: what, Where: where}, r)); got != test.want {
			t.Errorf("at %d: %q, want %q", test.offset, got, test.want)
		}
	}
	outside := uint64(kindCompiled)<<kindShift | (begin + 48)
	if got := names(n.Name(lang.Activation{What: what, Where: outside}, r)); got != "outer" {
		t.Errorf("behind the code: %q", got)
	}
}

// TestCodeGone has code and its process go away after they were looked at.
func TestCodeGone(t *testing.T) {
	r, n, what, begin := compiled(t)
	where := uint64(kindCompiled)<<kindShift | (begin + 8)
	p := lang.Photograph{What: 5}
	p.Values[valueWhat], p.Values[valuePC] = what, begin+8
	n.Look(p, r)
	if got := names(n.Name(lang.Activation{What: what, Where: where}, nil)); got != "inner:8 in middle:5 in outer:2" {
		t.Errorf("without its process: %q", got)
	}
	r.heap.memory = noise(nil)
	if got := names(n.Name(lang.Activation{What: what, Where: where}, r)); got != "inner:8 in middle:5 in outer:2" {
		t.Errorf("without its memory: %q", got)
	}
	if got := names(n.Name(lang.Activation{What: what, Where: where + 512}, r)); got != "outer" {
		t.Errorf("elsewhere, without its memory: %q", got)
	}
}

func TestNames(t *testing.T) {
	n := &Namer{}
	p := lang.Photograph{What: 1, Bytes: make([]byte, 2048)}
	p.Values[valueShared], p.Values[valueScript], p.Values[valueIsScript] = 9, 17, 1
	p.Lengths[1] = twoBytes | uint32(copy(p.Bytes[scriptText:], "f\x00i\x00"))
	n.Look(p, nil)
	p.What, p.Lengths[0] = 4, uint32(copy(p.Bytes, "f"))
	n.Look(p, nil)
	library := lang.Photograph{What: 2, Bytes: make([]byte, 2048)}
	library.Lengths[0] = uint32(copy(library.Bytes, "map"))
	n.Look(library, nil)
	for name, test := range map[string]struct {
		a    lang.Activation
		want string
		file string
	}{
		"of a script":    {lang.Activation{What: 4, Where: kindInterpreted << kindShift}, "f", "fi"},
		"of the library": {lang.Activation{What: 2, Where: kindBuiltin << kindShift}, "map", ""},
		"wasm":           {lang.Activation{What: 0, Where: kindWasm << kindShift}, "[wasm function]", ""},
	} {
		got := n.Name(test.a, nil)
		if len(got) != 1 || got[0].Function != test.want || got[0].File != test.file || got[0].Kind != profile.KindV8 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := n.Name(lang.Activation{What: 1}, nil); got != nil {
		t.Errorf("a function whose name may not have been read is %+v", got)
	}
	if got := n.Name(lang.Activation{What: 3}, nil); got != nil {
		t.Errorf("a function that was never photographed is %+v", got)
	}
}

// TestReused has functions without names, and others that came to lie where a
// function was photographed.
func TestReused(t *testing.T) {
	m := newObjects()
	script := m.object(typeScript, m.text("function f() {}"), m.text("/srv/a.js"), smi(0), 0, 0, 0, smi(0))
	tests := map[string]struct{ photographed, now, want string }{
		"the same":                   {"f", "f", "f"},
		"another":                    {"f", "g", ""},
		"not read when photographed": {"", "f", "f"},
		"anonymous":                  {"", "", "(anonymous)"},
	}
	for name, test := range tests {
		scope := m.scope(0, 7, true, m.text(test.now), smi(0), m.object(typeOdd))
		shared := m.object(typeShared, 0, 0, scope, 0, script, 0)
		p := lang.Photograph{What: 1, Bytes: make([]byte, 2048)}
		p.Values = [8]uint64{shared, scope, script, 1, smi(7)}
		p.Lengths[0] = uint32(copy(p.Bytes, test.photographed))
		n := &Namer{}
		n.Look(p, nil)
		got := names(n.Name(lang.Activation{What: 1, Where: kindInterpreted << kindShift}, newRuntime(m, laidOut())))
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// FuzzPhotograph develops photographs that may be anything.
func FuzzPhotograph(f *testing.F) {
	f.Add([]byte("a name"), uint32(6), uint32(0), uint64(7)<<32)
	f.Add([]byte{}, uint32(1<<31|1), uint32(1<<30), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, name, script uint32, start uint64) {
		p := lang.Photograph{Bytes: text}
		p.Values[valueIsScript], p.Values[valueStart] = 1, start
		p.Lengths[0], p.Lengths[1] = name, script
		if got := develop(p); len(got.name) > 3*len(text) || got.start < -1 {
			t.Fatalf("%q from %d bytes, from %d", got.name, len(text), got.start)
		}
	})
}
