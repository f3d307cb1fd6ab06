package replay

import (
	"slices"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// Each rule by itself, on a made-up process: code of one file at code, whose
// file offsets begin at fileStart, and a stack at stackStart.
const (
	code       = 0x400000
	fileStart  = 0x1000
	codeSize   = 0x3000
	stackStart = 0x7fff0000
)

// ruled is code from a file offset on.
type ruled struct {
	offset uint64
	kind   rows.Type
	rbp    uint64
	cfa    uint64
}

// high and low are the two parts of a cfa field of the types that split it.
func split(high uint64, low int16) uint64 { return high<<16 | uint64(uint16(low)) }

// at is the address of a file offset.
func at(offset uint64) uint64 { return code + offset - fileStart }

// scene makes an image. words lie on the stack from stackStart on.
func scene(rules []ruled, ip, sp, bp uint64, words ...uint64) *Image {
	f := File{Name: "made", First: fileStart, Shift: 12}
	if len(rules) == 0 || rules[0].offset != fileStart {
		f.Rows = append(f.Rows, fileStart<<32)
	}
	for _, r := range rules {
		f.Rows = append(f.Rows, r.offset<<32|uint64(r.kind)<<28|r.rbp<<20|r.cfa)
	}
	for page := uint64(fileStart); page <= fileStart+codeSize; page += 1 << f.Shift {
		last := 0
		for i, row := range f.Rows {
			if row>>32 <= page {
				last = i
			}
		}
		f.Index = append(f.Index, uint32(last))
	}
	i := &Image{Mappings: []Mapping{{Start: code, End: code + codeSize, Offset: fileStart, File: 1}}, Files: []File{f}}
	i.Registers[RegisterIP], i.Registers[RegisterSP], i.Registers[RegisterBP] = ip, sp, bp
	p := Piece{Start: stackStart}
	for _, w := range words {
		for b := range 8 {
			p.Bytes = append(p.Bytes, byte(w>>(8*b)))
		}
	}
	i.Memory = []Piece{p}
	return i
}

// outer is where main returns to: the end of every scene's stack.
const outer = 0x2f00

// word is the address of the nth word of the stack.
func word(n uint64) uint64 { return stackStart + 8*n }

func TestRules(t *testing.T) {
	end := ruled{outer - 1, rows.End, 0, 0}
	ret := at(outer)
	m := machine(t)
	for _, test := range []struct {
		name  string
		image *Image
		want  []uint64 // file offsets
		end   profile.End
	}{
		{"rsp", scene([]ruled{{0x1000, rows.SP, 0, 2}, end}, at(0x1010), word(0), 0, 7, ret),
			[]uint64{0x1010, outer - 1}, profile.EndComplete},
		{"rsp, then rbp that was saved two frames in", scene([]ruled{{0x1000, rows.SP, 2, 3}, {0x1100, rows.SP, 0, 1}, {0x1200, rows.BP, 2, 2}, end},
			at(0x1010), word(0), 0xbad, 0, word(6), at(0x1110), at(0x1210), 0, 0, 99, ret),
			[]uint64{0x1010, 0x110f, 0x120f, outer - 1}, profile.EndComplete},
		{"rbp saved elsewhere", scene([]ruled{{0x1000, rows.SP, 4, 4}, {0x1100, rows.BP, 0, 2}, end},
			at(0x1010), word(0), 0xbad, word(4), 0, 0, at(0x1110), 0, ret),
			[]uint64{0x1010, 0x110f, outer - 1}, profile.EndComplete},
		{"rbp lost, and needed", scene([]ruled{{0x1000, rows.SP, rows.RBPLost, 1}, {0x1100, rows.BP, 2, 2}, end}, at(0x1010), word(0), word(1), at(0x1110), 0, ret),
			[]uint64{0x1010, 0x110f}, profile.EndUnsupport},
		{"rbp lost, and not needed", scene([]ruled{{0x1000, rows.SP, rows.RBPLost, 1}, {0x1100, rows.SP, 0, 1}, end}, at(0x1010), word(0), word(1), at(0x1110), ret),
			[]uint64{0x1010, 0x110f, outer - 1}, profile.EndComplete},
		{"realigned: cfa at rbp-8, rbp where it points", scene([]ruled{{0x1000, rows.BPDeref, rows.RBPAtRBP, split(0, -1)}, {0x1100, rows.BP, 0, 2}, end},
			at(0x1010), word(0), word(1), word(4), word(5), 0, at(0x1110), 0, 0, ret),
			[]uint64{0x1010, 0x110f, outer - 1}, profile.EndComplete},
		{"cfa kept on the stack", scene([]ruled{{0x1000, rows.SPDeref, 0, split(1, 2)}, end}, at(0x1010), word(0), 0, 0, 0, word(4), 0, ret),
			[]uint64{0x1010, outer - 1}, profile.EndComplete},
		{"cfa kept in the red zone", scene([]ruled{{0x1000, rows.SPDeref, 0, split(1, -1)}, end}, at(0x1010), word(1), 0, word(4), 0, 0, 0, ret),
			[]uint64{0x1010, outer - 1}, profile.EndComplete},
		{"cfa in another register", leaf(scene([]ruled{{0x1000, rows.LeafReg, 0, split(10, 2)}, end}, at(0x1010), word(0), 0, 0, 0, 0, ret), 7, word(2)),
			[]uint64{0x1010, outer - 1}, profile.EndComplete},
		{"cfa in another register, no leaf", leaf(scene([]ruled{{0x1000, rows.SP, 0, 1}, {0x1100, rows.LeafReg, 0, split(10, 1)}, end}, at(0x1010), word(0), 0, at(0x1110), ret), 7, word(1)),
			[]uint64{0x1010, 0x110f}, profile.EndUnsupport},
		{"maker of a thread", leaf(scene([]ruled{{0x1000, rows.Fork, 0, 1}, end}, at(0x1010), word(0), 0, ret), 10, 77),
			[]uint64{0x1010, outer - 1}, profile.EndComplete},
		{"new thread", leaf(scene([]ruled{{0x1000, rows.Fork, 0, 1}, end}, at(0x1010), word(0), 0, ret), 10, 0),
			[]uint64{0x1010}, profile.EndComplete},
		{"maker of a thread, no leaf", leaf(scene([]ruled{{0x1000, rows.SP, 0, 1}, {0x1100, rows.Fork, 0, 1}, end}, at(0x1010), word(0), 0, at(0x1110), ret), 10, 0),
			[]uint64{0x1010, 0x110f, outer - 1}, profile.EndComplete},
		{"stub before its push", scene([]ruled{{0x1000, rows.PLT, 0, 11}, end}, at(0x100a), word(0), 0, ret),
			[]uint64{0x100a, outer - 1}, profile.EndComplete},
		{"stub after its push", scene([]ruled{{0x1000, rows.PLT, 0, 11}, end}, at(0x100b), word(0), 0, 5, ret),
			[]uint64{0x100b, outer - 1}, profile.EndComplete},
		{"frame pointer into another stack", scene([]ruled{{0x1000, rows.FramePointer, 0, 0}, end}, at(0x1010), word(6), word(1), 0, 0, ret, 0, 0, 0, 0),
			[]uint64{0x1010, outer - 1}, profile.EndComplete},
		{"signal", signal(scene([]ruled{{0x1000, rows.Signal, 0, 0}, {0x1100, rows.BP, 2, 2}, end}, at(0x1000), word(0), 0, make([]uint64, 40)...), at(0x1100), word(30), word(32), ret),
			[]uint64{0x1000, 0x1100, outer - 1}, profile.EndComplete},
		{"gap", scene([]ruled{{0x1000, rows.SP, 0, 1}, {0x1100, rows.Gap, 0, 0}}, at(0x1010), word(0), word(1), at(0x1110), 0, ret),
			[]uint64{0x1010, 0x110f}, profile.EndNoUnwind},
		{"gap in code that keeps frame pointers", keeps(scene([]ruled{{0x1000, rows.SP, 0, 1}, {0x1100, rows.Gap, 0, 0}, end}, at(0x1010), word(0), word(1), at(0x1110), 0, ret)),
			[]uint64{0x1010, 0x110f, outer - 1}, profile.EndComplete},
		{"before the first row", scene([]ruled{{0x1100, rows.SP, 0, 1}}, at(0x1010), word(0), 0, ret), []uint64{0x1010}, profile.EndNoUnwind},
		{"unsupported", scene([]ruled{{0x1000, rows.Unsupported, 0, 0}}, at(0x1010), word(0), 0, ret), []uint64{0x1010}, profile.EndUnsupport},
		{"return address 0", scene([]ruled{{0x1000, rows.SP, 0, 1}}, at(0x1010), word(0), 0, 0), []uint64{0x1010}, profile.EndCorrupt},
		{"no stack", scene([]ruled{{0x1000, rows.SP, 0, 1}}, at(0x1010), 0x10, 0), []uint64{0x1010}, profile.EndUnreadable},
		{"returns to no mapping", scene([]ruled{{0x1000, rows.SP, 0, 1}}, at(0x1010), word(0), 0, 0x1234), []uint64{0x1010, 0x1233}, profile.EndNoMapping},
		{"rows not loaded", absent(scene([]ruled{{0x1000, rows.SP, 0, 1}}, at(0x1010), word(0), 0, ret)), []uint64{0x1010}, profile.EndNotLoaded},
		{"rows evicted", evicted(scene([]ruled{{0x1000, rows.SP, 0, 1}}, at(0x1010), word(0), 0, ret)), []uint64{0x1010}, profile.EndEvicted},
		{"rows replaced meanwhile", replaced(scene([]ruled{{0x1000, rows.SP, 0, 1}, end}, at(0x1010), word(0), 0, ret)), []uint64{0x1010}, profile.EndEvicted},
		{"does not progress", scene([]ruled{{0x1000, rows.SP, 0, 0}}, at(0x1010), word(1), 0, at(0x1010), 0), []uint64{0x1010}, profile.EndCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := walked(t, m, test.image)
			var got []uint64
			for _, f := range w.Frames {
				got = append(got, f.Offset)
			}
			if !slices.Equal(got, test.want) || w.End != test.end {
				t.Errorf("got %#x %s, want %#x %s", got, w.End, test.want, test.end)
			}
		})
	}
}

// TestTooDeep recurses for more frames than a walk keeps.
func TestTooDeep(t *testing.T) {
	const most = 2047
	words := make([]uint64, most+100)
	for i := range words {
		words[i] = at(0x1010)
	}
	w := walked(t, machine(t), scene([]ruled{{0x1000, rows.SP, 0, 1}}, at(0x1010), word(0), 0, words...))
	if len(w.Frames) != most || w.End != profile.EndTooDeep {
		t.Errorf("got %d frames, %s", len(w.Frames), w.End)
	}
}

// TestRowSearch looks up every offset of pages with all counts of rows that a
// page can hold, against a plain search.
func TestRowSearch(t *testing.T) {
	m := machine(t)
	for _, n := range []int{1, 2, 3, 7, 8, 9, 127, 128, 129, 253, 254} {
		var rules []ruled
		for i := range n {
			rules = append(rules, ruled{fileStart + uint64(i*i*7%4096+i)%4096, rows.SP, 0, 1})
		}
		slices.SortFunc(rules, func(a, b ruled) int { return int(a.offset) - int(b.offset) })
		rules = slices.CompactFunc(rules, func(a, b ruled) bool { return a.offset == b.offset })
		for i := range rules {
			rules[i].cfa = uint64(i) + 1
		}
		words := make([]uint64, 300)
		for i := range words {
			words[i] = 0x100000 + uint64(i) // where rule number i+1 returns to: no mapping
		}
		for offset := uint64(fileStart); offset < fileStart+4096; offset += 5 {
			if err := m.Load(scene(rules, at(offset), word(0), 0, words...)); err != nil {
				t.Fatal(err)
			}
			w, err := m.Walk()
			if err != nil {
				t.Fatal(err)
			}
			want := -1
			for i, r := range rules {
				if r.offset <= offset {
					want = i
				}
			}
			got := -1
			if len(w.Frames) == 2 {
				got = int(w.Frames[1].Offset - 0x100000 + 1)
			}
			if got != want {
				t.Fatalf("%d rows: offset %#x is led by row %d, want %d (%s)", len(rules), offset, got, want, w.End)
			}
		}
	}
}

func walked(t *testing.T, m *Machine, i *Image) Walk {
	t.Helper()
	if err := m.Load(i); err != nil {
		t.Fatal(err)
	}
	w, err := m.Walk()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// leaf sets a register, by its place in struct pt_regs.
func leaf(i *Image, register int, value uint64) *Image {
	i.Registers[register] = value
	return i
}

func keeps(i *Image) *Image {
	i.Files[0].FramePointers = true
	return i
}

func evicted(i *Image) *Image {
	i.Files[0].Evicted = []int{0}
	return i
}

func replaced(i *Image) *Image {
	i.Files[0].Replaced = true
	return i
}

func absent(i *Image) *Image {
	i.Files[0].Absent = true
	return i
}

// signal puts a ucontext at rsp, and a frame with a return address at rbp.
func signal(i *Image, ip, sp, bp, ret uint64) *Image {
	p := i.Memory[0].Bytes
	for offset, value := range map[uint64]uint64{120: bp, 160: sp, 168: ip, bp - stackStart + 8: ret} {
		for b := range uint64(8) {
			p[offset+b] = byte(value >> (8 * b))
		}
	}
	return i
}
