package cfi

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/flow"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// compareDecoded decodes the functions of a file that has unwind information,
// as if it had none, and compares each instruction with what it says. It
// returns how many bytes of code are decoded, and how many are not.
func compareDecoded(t *testing.T, path string) (decoded, missing int) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	im := newImage(f)
	eh, err := ehFrame(im)
	if err != nil || eh == nil {
		t.Fatalf("no .eh_frame: %v", err)
	}
	told := eh.rows(nil, im, &executor{unsupported: map[string]int{}})
	table := symbols(im)
	if f.Section(".symtab") == nil {
		table = frameSymbols(im, eh, told)
	}
	d := decoder{im: im, w: flow.Walker{Budget: maxInstructions}}
	d.find(table, nil)
	d.run()
	both, wrong, left := 0, 0, d.w.Budget
	for i := range d.list {
		f := &d.list[i]
		if f.cold || bytes.HasPrefix(table.name(f.name), []byte("__mpn_")) {
			continue
		}
		if !f.trusted {
			missing += len(f.Code)
			continue
		}
		d.w.Budget = maxInstructions
		d.walk(f)
		for _, p := range d.w.Pieces {
			for at, m := range p.Mark {
				if m == flow.MarkNone {
					missing++
					continue
				}
				decoded++
				if m == flow.MarkInside || m == flow.MarkPad {
					continue
				}
				want := rows.Find(told, p.Off+uint32(at))
				if want.Type() == rows.Gap {
					continue
				}
				both++
				if problem := differs(&d.w.Frames[m-1], want); problem != "" {
					if wrong++; wrong < 20 {
						t.Errorf("%#x (%#x+%#x): %s", p.Addr+uint64(at), f.Addr, at, problem)
					}
				}
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d instructions are wrong", wrong, both)
	}
	t.Logf("%s: %d functions, %d instructions compared, %d wrong, %d bytes decoded, %d not; %d instructions left", filepath.Base(path), len(d.list), both, wrong, decoded, missing, left)
	return decoded, missing
}

// differs compares a frame with the rule of the same instruction.
func differs(f *flow.Frame, want rows.Rule) string {
	got := f.Rule()
	switch {
	case want.Type() == rows.Signal:
		return "" // what handlers return to looks like a function without a frame
	case want.Type() == rows.SP && f.SP != flow.Unknown && f.SP != int32(want.CFA())*8,
		want.Type() == rows.BP && f.BP != flow.Unknown && f.BP != int32(want.CFA())*8:
		return fmt.Sprintf("frame %+v, want type %d cfa %d", *f, want.Type(), want.CFA())
	case want.Type() != got.Type() && want.Type() != rows.BP:
		return fmt.Sprintf("type %d, want %d cfa %d", got.Type(), want.Type(), want.CFA())
	case got.RBP() == want.RBP() || got.RBP() == rows.RBPLost:
		return ""
	case want.RBP() == rows.RBPSame && f.Held, got.RBP() == rows.RBPSame && want.RBP() <= rows.RBPMax:
		return "" // it is in both places
	}
	return fmt.Sprintf("frame %+v, want rbp %d", *f, want.RBP())
}

// frameSymbols has a symbol for each FDE.
func frameSymbols(im *image, eh *frameSection, told []rows.Row) *symbolTable {
	var b []byte
	for _, fn := range eh.functions(im, &executor{unsupported: map[string]int{}}) {
		e, _ := eh.entry(int(uint32(fn)))
		d, ok := eh.fde(&e)
		if !ok {
			continue
		}
		name := byte(0)
		off, _, _ := im.offset(d.addr)
		switch start := rows.Find(told, off); {
		case start.Type() != rows.SP:
			continue
		case start != rows.NewRule(rows.SP, rows.RBPSame, 1):
			name = 1 // entered with a frame
		}
		b = append(b, name, 0, 0, 0, byte(elf.STB_GLOBAL)<<4|byte(elf.STT_FUNC), 0, 1, 0)
		b = append(append(b, u64(d.addr)...), u64(d.size)...)
	}
	return &symbolTable{symbols: b, names: []byte("\x00.cold\x00")}
}

// TestDecodedAgainstFrames wants no row that contradicts a compiler's. These
// files have right ones: those of LLVM 14 and 15 miss a push behind some calls,
// OpenSSL's assembly does not tell of lea, and glibc's mpn of nothing.
func TestDecodedAgainstFrames(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	static := build(t, "gcc", "-O2", "-static", "-pthread", "-o", "OUT", "testdata/library.c", "-lm")
	for _, path := range append(realFiles(), static) {
		if name := filepath.Base(path); path != static && name != "perl" && name != "python3.11" && !strings.HasPrefix(name, "ld-") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			decoded, missing := compareDecoded(t, path)
			if missing > decoded/9 {
				t.Errorf("%d bytes are decoded, %d not", decoded, missing)
			}
		})
	}
}
