package cfi

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/arch/x86/x86asm"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// TestStartup strips programs and a library, and compares what is told of their
// startup code with what it does to rsp.
func TestStartup(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"program", nil},
		{"program at a fixed address", []string{"-no-pie"}},
		{"static", []string{"-static"}},
		{"static-pie", []string{"-static-pie"}},
		{"library", []string{"-shared", "-fPIC"}},
		{"packed relocations", []string{"-shared", "-fPIC", "-Wl,-z,pack-relative-relocs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			named := build(t, append([]string{"gcc", "-O2", "testdata/victim.c", "-o", "OUT"}, c.flags...)...)
			bare := filepath.Join(t.TempDir(), "stripped")
			if msg, err := exec.Command("strip", "-o", bare, named).CombinedOutput(); err != nil {
				t.Skipf("strip: %v\n%s", err, msg)
			}
			f, err := elf.Open(named)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			stripped, err := elf.Open(bare)
			if err != nil {
				t.Fatal(err)
			}
			defer stripped.Close()
			for _, file := range []*elf.File{f, stripped} {
				table, err := Build(file)
				if err != nil {
					t.Fatal(err)
				}
				check(t, table)
				for _, name := range []string{"deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux", "frame_dummy", "_init", "_fini"} {
					checkStraight(t, f, table, name)
				}
			}
		})
	}
}

// checkStraight reads a function up to its first return or jump, with a decoder
// that is not the one the table was made with. All of these functions pop, on
// the way there, what they have pushed.
func checkStraight(t *testing.T, named *elf.File, table *rows.Table, name string) {
	t.Helper()
	im := newImage(named)
	off, ok := symbolOffset(t, named, name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	for words, at, saved := int64(1), uint32(0), false; ; {
		b := make([]byte, 15)
		for _, s := range im.exec {
			if uint64(off) >= s.off && uint64(off)-s.off < s.size {
				s.r.ReadAt(b, int64(uint64(off+at)-s.off))
			}
		}
		r, _ := table.Find(off + at)
		if r.Type() != rows.SP || r.CFA() != uint32(words) || (r.RBP() == 2) != saved {
			t.Errorf("%s+%#x: %s, want rsp+%d", name, at, rowText(rows.NewRow(off+at, r)), 8*words)
		}
		if string(b[:len(endbr64)]) == endbr64 { // unknown to x86asm
			at += uint32(len(endbr64))
			continue
		}
		in, err := x86asm.Decode(b, 64)
		if err != nil {
			t.Fatalf("%s+%#x: %v", name, at, err)
		}
		at += uint32(in.Len)
		switch n, _ := in.Args[1].(x86asm.Imm); {
		case in.Op == x86asm.RET, in.Op == x86asm.JMP:
			return
		case in.Op == x86asm.PUSH:
			words, saved = words+1, in.Args[0] == x86asm.RBP
		case in.Op == x86asm.POP:
			words, saved = words-1, false
		case in.Op == x86asm.SUB && in.Args[0] == x86asm.RSP:
			words += int64(n) / 8
		case in.Op == x86asm.ADD && in.Args[0] == x86asm.RSP:
			words -= int64(n) / 8
		}
	}
}
