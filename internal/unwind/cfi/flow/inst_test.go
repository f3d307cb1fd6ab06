package flow

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

// stackRegs are the registers, of any width, whose writes must not be missed.
func stackRegs(r x86asm.Arg) uint32 {
	switch r {
	case x86asm.RSP, x86asm.ESP, x86asm.SP, x86asm.SPB:
		return 1 << rsp
	case x86asm.RBP, x86asm.EBP, x86asm.BP, x86asm.BPB:
		return 1 << rbp
	}
	return 0
}

// writesByX86asm is which of rsp and rbp an instruction writes, by its first
// operand.
func writesByX86asm(in *x86asm.Inst) (w uint32) {
	switch in.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.PUSH, x86asm.BT, x86asm.CALL, x86asm.JMP, x86asm.NOP,
		x86asm.MUL, x86asm.DIV, x86asm.IDIV, x86asm.LEAVE, x86asm.RET, x86asm.UD0, x86asm.UD1:
		return 0
	case x86asm.IMUL:
		if in.Args[1] == nil {
			return 0
		}
	case x86asm.XCHG, x86asm.XADD, x86asm.MULX:
		w = stackRegs(in.Args[1])
	}
	return w | stackRegs(in.Args[0])
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

// TestDecode compares every instruction of real programs with x86asm:
// its length, its target, and whether it writes rsp or rbp.
func TestDecode(t *testing.T) {
	for _, path := range realFiles() {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := elf.Open(path)
			if err != nil {
				t.Skip(err)
			}
			defer f.Close()
			s := f.Section(".text")
			// In Go and node the text begins with something else than code.
			code := make([]byte, min(s.Size, 1<<20))
			if _, err := s.ReadAt(code, 0); err != nil {
				t.Fatal(err)
			}
			same, unknown, wrong := 0, 0, 0
			for at := 0; at+maxInst < len(code); {
				want, err := x86asm.Decode(code[at:], 64)
				var in inst
				ok := in.decode(code[at:])
				// x86asm takes vzeroupper and vzeroall for five bytes, and prefixes for instructions.
				if err != nil || want.Op == 0 || want.Op == x86asm.VZEROUPPER || want.Op == x86asm.VZEROALL || want.Op == x86asm.XEND {
					unknown++
					if ok {
						at += in.len
					} else {
						at++
					}
					continue
				}
				problem := ""
				switch w := writesByX86asm(&want); {
				case !ok:
					problem = "not decoded"
				case in.len != want.Len:
					problem = fmt.Sprintf("length %d", in.len)
				case in.writes&(1<<rsp|1<<rbp) != w:
					problem = fmt.Sprintf("writes %#x, want %#x", in.writes, w)
				}
				if rel, isRel := want.Args[0].(x86asm.Rel); isRel && problem == "" && int64(rel) != in.imm {
					problem = fmt.Sprintf("target %d", in.imm)
				}
				if problem == "" {
					same++
				} else if wrong++; wrong < 20 {
					t.Logf("%#x: %v (% x): %s", s.Addr+uint64(at), want, code[at:at+want.Len], problem)
				}
				at += want.Len
			}
			// Some are data: libcrypto keeps tables between its functions.
			if wrong > 10 {
				t.Errorf("%d of %d instructions are not as x86asm has them", wrong, same)
			}
			t.Logf("%d instructions, %d wrong, %d unknown to x86asm", same, wrong, unknown)
		})
	}
}
