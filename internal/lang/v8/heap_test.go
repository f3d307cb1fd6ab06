package v8

import (
	"strings"
	"testing"
)

func TestStrings(t *testing.T) {
	m := newObjects()
	plain := m.text("plain")
	empty := m.text("")
	far := m.allocate(16)
	copy(m.at[far-1], "far away")
	external := m.object(2|8, 8<<32, 0, far-1)
	tests := []struct {
		name   string
		string uint64
		want   string
	}{
		{"one byte", plain, "plain"},
		{"Latin-1", m.text("caf\xe9"), "café"},
		{"two bytes", m.wide("имя 𝒇"), "имя 𝒇"},
		{"empty", empty, ""},
		{"put together", m.object(1|8, 5<<32, plain, empty), "plain"},
		{"not put together", m.object(1|8, 10<<32, plain, plain), ""},
		{"moved", m.object(5|8, 5<<32, plain), "plain"},
		{"a slice", m.object(3|8, 3<<32, plain, smi(2)), "ain"},
		{"a slice beyond the end", m.object(3|8, 3<<32, plain, smi(3)), ""},
		{"a slice before the beginning", m.object(3|8, 3<<32, plain, smi(-1)), ""},
		{"outside the heap", external, "far away"},
		{"no string", m.object(typeOdd, 5<<32), ""},
		{"a small integer", smi(7), ""},
		{"nowhere", 0xdead0001, ""},
		{"longer than its memory", m.object(8, 100<<32), ""},
		{"of a negative length", m.object(8, 0xffffffff<<32), ""},
		{"long", m.text(strings.Repeat("x", 3000)), strings.Repeat("x", maxName)},
	}
	loop := m.object(5|8, 5<<32, 0)
	m.put(loop, 16, loop)
	tests = append(tests, struct {
		name   string
		string uint64
		want   string
	}{"itself", loop, ""})
	h := &heap{m, laidOut()}
	for _, test := range tests {
		if got := h.name(test.string); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// scope makes one with locals, as V8 10 to 12 lays it out or, with positions
// first, 13 and later.
func (m *objects) scope(locals, start int, first bool, rest ...uint64) uint64 {
	words := []uint64{smi(0), smi(0), smi(locals)}
	if first {
		words = append(words, smi(start), smi(start+10))
	}
	if locals >= scopeInlined {
		words = append(words, m.array())
	}
	for range locals {
		if locals < scopeInlined {
			words = append(words, m.text("local"))
		}
	}
	for range locals {
		words = append(words, smi(0))
	}
	words = append(words, rest...)
	if !first {
		words = append(words, smi(start), smi(start+10))
	}
	return m.object(typeScope, append(words, 0, 0, 0, 0)...)
}

func TestFunctions(t *testing.T) {
	m := newObjects()
	name, empty, undefined := m.text("named"), m.text(""), m.object(typeOdd)
	inferred := m.text("obj.method")
	outer := m.object(typeScope, smi(0), smi(0), smi(0))
	tests := []struct {
		name   string
		nameAt func(first bool) uint64
		want   string
		start  int
	}{
		{"plain", func(b bool) uint64 { return m.scope(2, 7, b, name, smi(0)) }, "named", 7},
		{"inferred", func(b bool) uint64 { return m.scope(0, 7, b, empty, smi(0), inferred) }, "obj.method", 7},
		{"not inferred", func(b bool) uint64 { return m.scope(0, 7, b, empty, smi(0), undefined) }, "", 7},
		{"of a class", func(b bool) uint64 { return m.scope(1, 7, b, smi(3), name, smi(0), undefined) }, "named", 7},
		{"many locals", func(b bool) uint64 { return m.scope(80, 7, b, name, smi(0)) }, "named", 7},
		{"only a name", func(bool) uint64 { return name }, "named", -1},
		{"no name", func(bool) uint64 { return smi(0) }, "", -1},
	}
	for _, first := range []bool{false, true} {
		l := laidOut()
		if !first {
			l.scopeVariables, l.scopePositions = 3, 0
		}
		for _, test := range tests {
			shared := m.object(typeShared, 0, 0, test.nameAt(first), 0, outer, 0)
			f, ok := (&heap{m, l}).function(shared)
			if !ok || f.name != test.want || f.start != test.start {
				t.Errorf("%s, positions first %v: %q from %d (%v), want %q from %d", test.name, first, f.name, f.start, ok, test.want, test.start)
			}
		}
	}
	if _, ok := (&heap{m, laidOut()}).function(name); ok {
		t.Error("a string passed for a function")
	}
}

func TestScriptLines(t *testing.T) {
	const source = "one\ntwo\r\nthree\rfour\u2028five"
	m := newObjects()
	make := func(source, name, ends uint64) uint64 {
		return m.object(typeScript, source, name, smi(0), 0, 0, 0, ends)
	}
	r := newRuntime(m, laidOut())
	name := m.text("file:///srv/a%20b.js")
	tests := map[string]*script{
		"counted": r.script(make(m.wide(source), name, smi(0))),
		"told":    r.script(make(m.text("gone"), name, m.array(smi(3), smi(8), smi(14), smi(19), smi(24)))),
	}
	for how, s := range tests {
		if s == nil {
			t.Errorf("%s: no lines", how)
			continue
		}
		if s.file != "/srv/a b.js" {
			t.Errorf("%s: the script is %q", how, s.file)
		}
		for position, want := range map[int]int{-1: 0, 0: 1, 3: 1, 4: 2, 9: 3, 14: 3, 15: 4, 20: 5, 24: 5, 25: 0} {
			if got := s.line(position); got != want {
				t.Errorf("%s: position %d is in line %d, want %d", how, position, got, want)
			}
		}
	}
	later := make(m.text("x\ny"), name, smi(0))
	m.put(later, 24, smi(100))
	if got := r.script(later).line(2); got != 102 {
		t.Errorf("the second line of a script that begins in line 101 is %d", got)
	}
	if (*script)(nil).line(3) != 0 || r.script(name) != nil {
		t.Error("what is no script has lines")
	}
}
