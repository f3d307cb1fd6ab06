package v8

import (
	"slices"
	"testing"
)

// operandCounts are those of V8 13.6: of frames, of what follows them, and of the last two.
var operandCounts = slices.Concat([]int{6, 4, 3, 3, 2, 1, 3, 4, 3, 3, 3, 1, 0, 0, 3, 3}, slices.Repeat([]int{1}, 25), []int{2, 1})

// Opcodes of V8 13.6.
const (
	opReturning = 0
	opPlain     = 1
	opBuiltin   = 2
	opExtra     = 10 // arguments that were inlined: a frame, not of JavaScript
	opBegin     = 14
	opValue     = 20
	opMatch     = 42
)

func table(counts []int) (b []byte) {
	for _, n := range counts {
		b = le.AppendUint32(b, uint32(n))
	}
	return b
}

// unsigned and ofSign write operands.
func unsigned(v int) (b []byte) {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func ofSign(v int) []byte {
	if v < 0 {
		return unsigned(-v<<1 | 1)
	}
	return unsigned(v << 1)
}

func instruction(op int, operands ...int) []byte {
	b := []byte{byte(op)}
	for _, v := range operands {
		b = append(b, ofSign(v)...)
	}
	return b
}

// translated begins a translation that takes from one so many bytes before.
func translated(back, frames, js int) []byte {
	return slices.Concat([]byte{opBegin}, unsigned(back), ofSign(frames), ofSign(js))
}

func TestTranslations(t *testing.T) {
	o := newOpcodes(slices.Concat(table(operandCounts), table([]int{7, 7})), 13)
	if o == nil || len(o.operands) != len(operandCounts) {
		t.Fatalf("opcodes: %+v", o)
	}
	first := slices.Concat(translated(0, 3, 2),
		instruction(opPlain, 300, 5, 9, -4), instruction(opValue, 7), instruction(opValue, -700),
		instruction(opExtra, 1, 2, 3),
		instruction(opReturning, 12, 6, 9, 4, 1, 1), instruction(opValue, 3))
	short := byte(len(operandCounts))
	tests := map[string]struct {
		bytes []byte
		want  []interpreted
	}{
		"by itself":      {nil, []interpreted{{300, 5}, {12, 6}}},
		"all another's":  {slices.Concat(translated(len(first), 3, 2), []byte{opMatch, 6}), []interpreted{{300, 5}, {12, 6}}},
		"begins as that": {slices.Concat(translated(len(first), 2, 2), []byte{short + 3}, instruction(opPlain, 4, 7, 9, 1)), []interpreted{{300, 5}, {4, 7}}},
		"ends as that":   {slices.Concat(translated(len(first), 3, 2), instruction(opPlain, 9, 8, 9, 1), []byte{short + 5}), []interpreted{{9, 8}, {12, 6}}},
		"both": {slices.Concat(translated(len(first), 3, 2), []byte{short + 2}, instruction(opValue, 8), []byte{short + 2}),
			[]interpreted{{300, 5}, {12, 6}}},
		"of a builtin":     {slices.Concat(translated(0, 2, 2), instruction(opPlain, 9, 8, 9, 1), instruction(opBuiltin, 9, 8, 0)), []interpreted{{9, 8}}},
		"of builtins only": {slices.Concat(translated(0, 1, 1), instruction(opBuiltin, 9, 8, 0)), nil},
		"takes from none":  {slices.Concat(translated(0, 2, 2), []byte{short + 2}), nil},
		"takes nothing":    {slices.Concat(translated(len(first), 2, 2), []byte{short}), nil},
		"before all":       {slices.Concat(translated(len(first)+1, 2, 2), []byte{short + 2}), nil},
		"ends early":       {slices.Concat(translated(0, 2, 2), instruction(opPlain, 9, 8, 9, 1)), nil},
		"cut":              {slices.Concat(translated(0, 1, 1), []byte{opPlain, 2, 2, 2}), nil},
		"no frames":        {translated(0, 0, 0), nil},
		"too many":         {translated(0, maxDepth+1, maxDepth+1), nil},
		"does not begin":   {instruction(opValue, 1), nil},
	}
	for name, test := range tests {
		bytes, at, left := slices.Concat(first, test.bytes), len(first), 100
		if test.bytes == nil {
			at = 0
		}
		got, ok := o.interpreted(bytes, at, &left)
		if ok != (test.want != nil) || ok && !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, ok, test.want)
		}
	}
	left := 5
	if got, ok := o.interpreted(first, 0, &left); ok {
		t.Errorf("%v was read with 5 instructions", got)
	}
}

func TestOpcodes(t *testing.T) {
	changed := func(i, n int) []byte {
		counts := slices.Clone(operandCounts)
		counts[i] = n
		return table(counts)
	}
	tests := map[string]struct {
		table []byte
		major int
		known bool
	}{
		"of V8 13":              {table(operandCounts), 13, true},
		"in the order of names": {table(operandCounts), 11, false},
		"frames return more":    {changed(0, 5), 13, false},
		"builtin frames":        {changed(2, 4), 13, false},
		"no count":              {changed(20, 7), 13, false},
		"cut":                   {table(operandCounts[:len(operandCounts)-1]), 13, false},
		"none":                  {nil, 13, false},
	}
	for name, test := range tests {
		if got := newOpcodes(test.table, test.major); (got != nil) != test.known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzTranslations reads translations that may be anything.
func FuzzTranslations(f *testing.F) {
	f.Add(slices.Concat(translated(0, 2, 2), instruction(opPlain, 300, 5, 9, -4), instruction(opPlain, 12, 6, 9, 4)), 0)
	f.Add(slices.Concat(translated(0, 1, 1), instruction(opPlain, 3, 5, 9, 4), translated(9, 1, 1), []byte{opMatch, 1}), 8)
	o := newOpcodes(table(operandCounts), 13)
	f.Fuzz(func(t *testing.T, bytes []byte, at int) {
		left := 100
		all, ok := o.interpreted(bytes, at, &left)
		if ok != (len(all) > 0) || len(all) > 100 {
			t.Fatalf("%d functions, %v", len(all), ok)
		}
	})
}

// TestUnlisted finds where a call that code does not list goes on.
func TestUnlisted(t *testing.T) {
	const at = 0x1000
	for _, test := range []struct {
		name string
		code []byte
		want uint64
	}{
		{"in the body", []byte{0x48, 0x89, 0xc3, 0x90}, at},
		{"back at once", []byte{0xe9, 0xfb, 0xfe, 0xff, 0xff}, at + 5 - 0x105},
		{"a short way", []byte{0xeb, 0xf0}, at + 2 - 0x10},
		{"registers first", []byte{0x5f, 0x41, 0x58, 0x58, 0xe9, 0x10, 0, 0, 0}, at + 9 + 0x10},
		{"registers, then more of the body", []byte{0x5f, 0x48, 0x8b, 0x45, 0xf8}, at},
	} {
		if got := jumpBehind(append(test.code, make([]byte, 24)...)[:24], at); got != test.want {
			t.Errorf("%s: %#x, want %#x", test.name, got, test.want)
		}
	}
	for code, want := range map[string]bool{
		"\x90\x90\xe8\x01\x02\x03\x04": true, "\x90\x90\x90\x90\x90\xff\xd0": true, "\x90\x90\x90\x90\x41\xff\xd2": true,
		"\x41\xff\x95\x01\x02\x03\x04": true, "\x90\xff\x15\x01\x02\x03\x04": true, "\x90\x90\x90\x41\xff\x55\x08": true,
		"\x90\x90\x90\x90\x90\x90\x90": false, "\x90\x90\x90\x90\x48\x89\xc3": false, "\x90\x90\x90\x90\x90\xff\xe0": false,
	} {
		if got := endsWithCall([]byte(code)); got != want {
			t.Errorf("% x: %v", code, got)
		}
	}
}
