package v8

import (
	"bytes"
	"slices"
	"testing"
)

// encode writes a table of positions as V8 does: zigzag numbers, and of the code
// what is one less and negative where an expression begins, or two flags below.
func encode(entries []entry, statement []bool, flags bool) (table []byte) {
	last := entry{code: -1}
	number := func(v uint64) {
		for ; v > 0x7f; v >>= 7 {
			table = append(table, byte(v)|0x80)
		}
		table = append(table, byte(v))
	}
	zigzag := func(v int64) uint64 { return uint64(v<<1 ^ v>>63) }
	for i, e := range entries {
		code := int64(e.code - last.code)
		switch {
		case flags && statement[i]:
			number(uint64(code)<<2 | 1)
		case flags:
			number(uint64(code) << 2)
		case statement[i]:
			number(zigzag(code))
		default:
			number(zigzag(-code - 1))
		}
		number(zigzag(int64(e.position - last.position)))
		last = e
	}
	return table
}

// at is a position in a script, of an inlined call (-1 none).
func at(offset, inlined int) sourcePosition {
	return sourcePosition(uint64(offset+1)<<1 | uint64(inlined+1)<<31)
}

func TestPositions(t *testing.T) {
	entries := []entry{{0, at(10, -1)}, {5, at(300, -1)}, {5, at(20, -1)}, {900, at(7, 3)}, {70000, at(1<<29, 65534)}}
	statement := []bool{true, false, true, false, true}
	for _, flags := range []bool{false, true} {
		table := positions{encode(entries, statement, flags), flags}
		var got []entry
		if !table.each(func(e entry) bool { got = append(got, e); return true }) || !slices.Equal(got, entries) {
			t.Errorf("flags %v: %v, want %v", flags, got, entries)
		}
		for code, want := range map[int]sourcePosition{0: at(10, -1), 4: at(10, -1), 5: at(20, -1), 899: at(20, -1), 900: at(7, 3), 1 << 30: at(1<<29, 65534)} {
			if p, ok := table.find(code); !ok || p != want {
				t.Errorf("flags %v: at %d runs %d of %d, want %d of %d", flags, code, p.offset(), p.inlined(), want.offset(), want.inlined())
			}
		}
		if p, ok := table.find(-1); ok {
			t.Errorf("flags %v: before the first entry runs %d", flags, p)
		}
	}
	for name, table := range map[string][]byte{"cut off": {0x82}, "half an entry": {2}, "endless": bytes.Repeat([]byte{0xff}, 20)} {
		if _, ok := (positions{table, false}).find(100); ok {
			t.Errorf("%s: a position was found", name)
		}
	}
}

// FuzzPositions decodes tables, writes what was decoded, and decodes that again.
func FuzzPositions(f *testing.F) {
	f.Add(encode([]entry{{0, at(10, -1)}, {5, at(300, 2)}}, []bool{true, false}, false), false)
	f.Add(encode([]entry{{0, at(10, -1)}, {5, at(300, 2)}}, []bool{true, false}, true), true)
	f.Add([]byte{0x80}, false)
	f.Fuzz(func(t *testing.T, table []byte, flags bool) {
		var entries, again []entry
		last := -1
		positions{table, flags}.each(func(e entry) bool {
			if e.code < last {
				t.Fatalf("the code goes back from %d to %d", last, e.code)
			}
			last = e.code
			entries = append(entries, e)
			return true
		})
		encoded := positions{encode(entries, make([]bool, len(entries)), flags), flags}
		if !encoded.each(func(e entry) bool { again = append(again, e); return true }) || !slices.Equal(entries, again) {
			t.Fatalf("%v became %v", entries, again)
		}
	})
}

// sizes is a made-up table of bytecodeSizes with operands of different widths.
func sizes(count int) []byte {
	table := make([]byte, 3*count)
	for i := range count {
		operands := i % 4
		table[i], table[count+i], table[2*count+i] = byte(1+operands), byte(1+2*operands), byte(1+4*operands)
	}
	return table
}

func TestBytecodeSizes(t *testing.T) {
	for _, count := range []int{150, 199, 255} {
		if got := newSizes(append(sizes(count), bytes.Repeat([]byte{7, 9}, 300)...)[:min(3*mostBytecode, 3*count+600)]).count; got != count {
			t.Errorf("%d instructions, want %d", got, count)
		}
	}
	noise := make([]byte, 3*mostBytecode)
	for i := range noise {
		noise[i] = byte(1 + i*i%97)
	}
	if got := newSizes(noise).count; got != 0 {
		t.Errorf("noise tells of %d instructions", got)
	}
	s := newSizes(sizes(200))
	// of 2 bytes; 1; 3 and a prefix that doubles them; 9 and one that makes four of each; 1
	code := []byte{5, 0, 8, 0, 9, 0, 0, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 4}
	table := []byte{10, 4, 2, 6, 20, 3} // bytes of code before them, and of each
	want := map[int]int{0: 0, 9: 0, 10: 0, 13: 0, 14: 2, 15: 2, 16: 3, 21: 3, 22: 7, 41: 7, 42: 17, 44: 17}
	for offset, at := range want {
		if got, ok := s.offset(code, table, offset); !ok || got != at {
			t.Errorf("offset %d belongs to the instruction at %d (%v), want %d", offset, got, ok, at)
		}
	}
	for _, offset := range []int{45, 1 << 20} {
		if got, ok := s.offset(code, table, offset); ok {
			t.Errorf("offset %d, behind the code, belongs to the instruction at %d", offset, got)
		}
	}
	if _, ok := s.offset([]byte{199}, []byte{1, 1}, 1); ok {
		t.Error("an instruction that is cut off has a size")
	}
}

// FuzzBytecode walks bytecode and tables that may be anything.
func FuzzBytecode(f *testing.F) {
	f.Add([]byte{5, 0, 8, 0, 9, 0, 0}, []byte{10, 4, 2, 6}, 17, sizes(200))
	f.Add([]byte{}, []byte{0}, 1, []byte{})
	f.Fuzz(func(t *testing.T, code, table []byte, offset int, sizes []byte) {
		s := newSizes(sizes[:min(len(sizes), 3*mostBytecode)])
		if at, ok := s.offset(code, table, offset); ok && (at < 0 || at >= len(code)) {
			t.Fatalf("offset %d belongs to an instruction at %d of %d bytes", offset, at, len(code))
		}
	})
}
