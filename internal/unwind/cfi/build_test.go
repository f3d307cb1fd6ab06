package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// check is what every table must satisfy.
func check(t testing.TB, tab *rows.Table) {
	t.Helper()
	if len(tab.Rows) == 0 {
		if len(tab.Index) != 0 {
			t.Fatalf("no rows but %d index entries", len(tab.Index))
		}
		return
	}
	for i := 1; i < len(tab.Rows); i++ {
		if tab.Rows[i].Offset() <= tab.Rows[i-1].Offset() {
			t.Fatalf("rows %d and %d are out of order: %#x, %#x", i-1, i, tab.Rows[i-1], tab.Rows[i])
		}
	}
	if tab.Rows[0].Offset() != tab.First || tab.First%(1<<tab.Shift) != 0 {
		t.Fatalf("first row at %#x, first page at %#x", tab.Rows[0].Offset(), tab.First)
	}
	last := tab.Rows[len(tab.Rows)-1]
	if pages := int((last.Offset()-tab.First)>>tab.Shift) + 1; len(tab.Index) != pages+1 {
		t.Fatalf("%d index entries for %d pages", len(tab.Index), pages)
	}
	for i := range tab.Index[1:] {
		lo, hi := tab.Index[i], tab.Index[i+1]
		if hi < lo || hi-lo+1 > 256 {
			t.Fatalf("page %d has rows %d to %d", i, lo, hi)
		}
		start := uint64(tab.First) + uint64(i)<<tab.Shift
		if uint64(tab.Rows[lo].Offset()) > start || int(lo)+1 < len(tab.Rows) && uint64(tab.Rows[lo+1].Offset()) <= start {
			t.Fatalf("page %d begins at %#x, its first row at %#x", i, start, tab.Rows[lo].Offset())
		}
	}
	for i := 0; i < len(tab.Rows); i += 1 + len(tab.Rows)/1000 {
		r := tab.Rows[i]
		if got, _ := tab.Find(r.Offset()); got != r.Rule() {
			t.Fatalf("at %#x found %#x, want %#x", r.Offset(), got, r.Rule())
		}
		if i > 0 {
			if got, _ := tab.Find(r.Offset() - 1); got != tab.Rows[i-1].Rule() {
				t.Fatalf("at %#x found %#x, want %#x", r.Offset()-1, got, tab.Rows[i-1].Rule())
			}
		}
	}
}

// realFiles are programs and libraries of many kinds; those absent are skipped.
func realFiles() []string {
	var files []string
	for _, pattern := range []string{
		"/usr/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
		"/usr/lib/postgresql/*/bin/postgres",
		"/usr/lib/gcc/x86_64-linux-gnu/*/cc1",
		"/usr/lib/jvm/*/lib/server/libjvm.so",
		"/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1",
		"/usr/local/go/bin/go",
		"/usr/bin/perl",
		"/usr/bin/python3*",
		"/usr/bin/node",
	} {
		m, _ := filepath.Glob(pattern)
		files = append(files, m...)
	}
	return files
}

func TestRealFiles(t *testing.T) {
	for _, path := range realFiles() {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := elf.Open(path)
			if err != nil {
				t.Skip(err)
			}
			defer f.Close()
			tab, err := Build(f)
			if err != nil {
				t.Fatal(err)
			}
			check(t, tab)
			known, types := 0, map[rows.Type]int{}
			for _, r := range tab.Rows {
				types[r.Rule().Type()]++
				if r.Rule().Type() != rows.Unsupported {
					known++
				}
			}
			if known < len(tab.Rows)*999/1000 {
				t.Errorf("only %d of %d rows are supported: %v", known, len(tab.Rows), tab.Unsupported)
			}
			t.Logf("%d rows, %d pages of %d bytes, from %s, types %v, unsupported %v",
				len(tab.Rows), len(tab.Index)-1, 1<<tab.Shift, tab.Source, types, tab.Unsupported)
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, path := range realFiles() {
		b.Run(filepath.Base(path), func(b *testing.B) {
			all := 0
			b.ReportAllocs()
			for b.Loop() {
				f, err := elf.Open(path)
				if err != nil {
					b.Skip(err)
				}
				tab, err := Build(f)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
				all = len(tab.Rows)
			}
			b.ReportMetric(float64(all), "rows")
		})
	}
}

// TestWithoutSectionHeaders finds the same rows through the program headers.
func TestWithoutSectionHeaders(t *testing.T) {
	for _, path := range []string{"/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/perl"} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Skip(err)
			}
			whole := buildBytes(t, b)
			bare := buildBytes(t, dropSections(b))
			// Only the section headers name stubs and symbols.
			if !strings.Contains(bare.Source, "eh_frame") {
				t.Fatalf("rows come from %q", bare.Source)
			}
			for _, r := range whole.Rows {
				got, _ := bare.Find(r.Offset())
				if got != r.Rule() && got.Type() != rows.Gap {
					t.Fatalf("at %#x: %#x, with section headers %#x", r.Offset(), got, r.Rule())
				}
			}
			if len(bare.Rows) < len(whole.Rows)*99/100 {
				t.Errorf("%d rows, with section headers %d", len(bare.Rows), len(whole.Rows))
			}
		})
	}
}

func TestGoWithoutSectionHeaders(t *testing.T) {
	out := build(t, "go", "build", "-o", "OUT", "testdata/govictim/main.go")
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	whole, bare := buildBytes(t, b), buildBytes(t, dropSections(b))
	if !slices.Equal(whole.Rows, bare.Rows) {
		t.Errorf("%d rows from %q, with section headers %d", len(bare.Rows), bare.Source, len(whole.Rows))
	}
	if !whole.KeepsFramePointers || whole.Source != "pclntab" {
		t.Errorf("keeps frame pointers: %v, source %q", whole.KeepsFramePointers, whole.Source)
	}
}

// TestGoAgainstReadelf compares with the .debug_frame that Go's linker writes,
// which has the frame address only.
func TestGoAgainstReadelf(t *testing.T) {
	out := build(t, "go", "build", "-o", "OUT", "testdata/govictim/main.go")
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tab, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	check(t, tab)
	im := newImage(f)
	all, special := 0, 0
	readelfRows(t, out, ".debug_frame", func(pc uint64, cfa, _, ra string) {
		off, _, ok := im.offset(pc)
		want, known := readelfRule(cfa, "u", ra)
		if !ok || !known {
			return
		}
		all++
		got, _ := tab.Find(off)
		if got.Type() != rows.SP {
			special++ // an end, a stack switch, a frame of gigabytes
		} else if got.CFA() != want.CFA() {
			t.Errorf("%#x: cfa %s: got %d words", pc, cfa, got.CFA())
		}
	})
	if all < 1000 || special > 100 {
		t.Errorf("%d rows compared, %d special", all, special)
	}
	t.Logf("%d rows compared, %d special", all, special)
}

// TestLLD checks stubs that no FDE describes.
func TestLLD(t *testing.T) {
	dirs, _ := filepath.Glob(os.Getenv("HOME") + "/.rustup/toolchains/*/lib/rustlib/*/bin/gcc-ld")
	if len(dirs) == 0 {
		t.Skip("no lld")
	}
	out := build(t, "gcc", "-O2", "-B"+dirs[0], "-fuse-ld=lld", "-pthread", "-Wl,-z,lazy", "-o", "OUT", "testdata/victim.c")
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tab, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	plt := f.Section(".plt")
	if plt == nil {
		t.Fatal("no .plt")
	}
	for at, want := range map[uint64]rows.Rule{
		0: rows.NewRule(rows.SP, 0, 2), 6: rows.NewRule(rows.SP, 0, 3), 16: rows.NewRule(rows.PLT, 0, 11), plt.Size - 1: rows.NewRule(rows.PLT, 0, 11),
	} {
		if got, _ := tab.Find(uint32(plt.Offset + at)); got != want {
			t.Errorf(".plt+%d: got %#x, want %#x", at, got, want)
		}
	}
}

// TestMusl wants the outermost frames and the signal return of a C library that
// has no unwind information.
func TestMusl(t *testing.T) {
	out := build(t, "musl-gcc", "-static", "-O2", "-o", "OUT", "testdata/victim.c")
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tab, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	im := newImage(f)
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]rows.Type{"_start": rows.End, "libc_start_main_stage2": rows.End, "start": rows.End, "__clone": rows.SP, "memcpy": rows.SP, "__restore_rt": rows.Signal, "work": rows.SP}
	for _, s := range syms {
		w, ok := want[s.Name]
		if !ok {
			continue
		}
		delete(want, s.Name)
		off, _, _ := im.offset(s.Value)
		if got, _ := tab.Find(off); got.Type() != w {
			t.Errorf("%s: type %d, want %d", s.Name, got.Type(), w)
		}
		if w == rows.Signal {
			if got, _ := tab.Find(off - 1); got.Type() != w {
				t.Errorf("before %s: type %d, want %d", s.Name, got.Type(), w)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no symbols %v", want)
	}
}

func TestRefusals(t *testing.T) {
	for name, mend := range map[string]func(*elf.File){
		"machine": func(f *elf.File) { f.Machine = elf.EM_AARCH64 },
		"core":    func(f *elf.File) { f.Type = elf.ET_CORE },
		"class":   func(f *elf.File) { f.Class = elf.ELFCLASS32 },
	} {
		f := &elf.File{FileHeader: elf.FileHeader{Machine: elf.EM_X86_64, Class: elf.ELFCLASS64, Type: elf.ET_DYN}}
		mend(f)
		if _, err := Build(f); err != ErrMachine {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func buildBytes(t *testing.T, b []byte) *rows.Table {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	tab, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	check(t, tab)
	return tab
}

// dropSections returns a copy whose ELF header knows of no sections.
func dropSections(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint64(b[0x28:], 0) // e_shoff
	binary.LittleEndian.PutUint16(b[0x3c:], 0) // e_shnum
	binary.LittleEndian.PutUint16(b[0x3e:], 0) // e_shstrndx
	return b
}
