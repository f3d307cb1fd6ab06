package cfi

import (
	"bytes"
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// goFn is a function of a crafted program: its code, and what its pc table
// says: pairs of a number of bytes and the depth of the stack in them.
type goFn struct {
	name string
	flag byte
	code []byte
	sp   [][2]int
}

// craftGo lays out functions and their table, in one of the table's formats.
// Each function is padded to 64 bytes.
func craftGo(magic uint32, fns ...goFn) []byte {
	var code, names, pcs []byte
	names = append(names, 0)
	pcs = append(pcs, 0) // offset 0 means that there is no table
	type placed struct{ entry, name, pcs uint64 }
	var at []placed
	for _, f := range fns {
		at = append(at, placed{uint64(len(code)), uint64(len(names)), uint64(len(pcs))})
		names = append(append(names, f.name...), 0)
		depth, first := -1, true
		for _, s := range f.sp {
			d := s[1] - depth
			depth = s[1]
			zig := uint64(uint32(d<<1) ^ uint32(d>>31))
			if zig == 0 && !first {
				panic("a step without a change")
			}
			pcs = append(leb(pcs, zig), byte(s[0]))
			first = false
		}
		pcs = append(pcs, 0)
		code = append(code, f.code...)
		code = append(code, make([]byte, -len(code)&63)...)
	}
	field := func(v uint64) []byte { return u64(v) }
	base := uint64(codeAddr)
	if magic == pcln118 || magic == pcln120 {
		field, base = u32, 0
	}
	entrySize := len(field(0))
	head := 8 + 8*8
	if magic == pcln12 {
		head = 16
	}
	// Index, then the functions; offsets count from the index, in Go 1.2's
	// format from the start of the table.
	shift := 0
	if magic == pcln12 {
		shift = head
	}
	index := []byte{}
	bodies := []byte{}
	bodyAt := shift + (2*len(fns)+1)*entrySize
	namesAt := head
	pcsAt := namesAt + len(names)
	funcsAt := (pcsAt + len(pcs) + 7) &^ 7
	nameBase, pcsBase := uint64(0), uint64(0)
	size := (entrySize + 11*4) * len(fns)
	if magic == pcln12 { // names and pc tables follow the functions
		nameBase = uint64(bodyAt + size)
		pcsBase = nameBase + uint64(len(names))
	}
	for i, f := range fns {
		index = append(append(index, field(base+at[i].entry)...), field(uint64(bodyAt+len(bodies)))...)
		bodies = append(bodies, field(base+at[i].entry)...)
		for _, v := range []uint64{nameBase + at[i].name, 0, 0, pcsBase + at[i].pcs, 0, 0, 0, 0} {
			bodies = append(bodies, u32(v)...)
		}
		if magic == pcln120 {
			bodies = append(bodies, u32(0)...) // start line
		}
		bodies = append(bodies, 0, f.flag, 0, 0)
		bodies = append(bodies, make([]byte, (i+1)*(entrySize+11*4)-len(bodies))...)
	}
	index = append(index, field(base+uint64(len(code)))...)

	b := append(u32(uint64(magic)), 0, 0, 1, 8)
	b = append(b, u64(uint64(len(fns)))...)
	switch magic {
	case pcln12:
		b = append(append(append(append(b, index...), bodies...), names...), pcs...)
	case pcln116:
		for _, v := range []int{0, namesAt, namesAt, namesAt, pcsAt, funcsAt} {
			b = append(b, u64(uint64(v))...)
		}
	default:
		for _, v := range []int{0, codeAddr, namesAt, namesAt, namesAt, pcsAt, funcsAt} {
			b = append(b, u64(uint64(v))...)
		}
	}
	if magic != pcln12 {
		b = append(b, make([]byte, head-len(b))...)
		b = append(append(b, names...), pcs...)
		b = append(b, make([]byte, funcsAt-len(b))...)
		b = append(append(b, index...), bodies...)
	}
	return craft(code, part{".gopclntab", b})
}

func leb(b []byte, v uint64) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// code assembles hexadecimal bytes and fills up to n with nops.
func code(n int, hex string) []byte {
	var b []byte
	for _, f := range strings.Fields(hex) {
		v := byte(0)
		for _, c := range []byte(f) {
			v = v<<4 | byte(strings.IndexByte("0123456789abcdef", c))
		}
		b = append(b, v)
	}
	return append(b, bytes.Repeat([]byte{0x90}, n-len(b))...)
}

func TestGoFunctions(t *testing.T) {
	const (
		push    = "55 48 89 e5 "                   // push %rbp; mov %rsp,%rbp
		sub     = "48 83 ec 20 "                   // sub $32,%rsp
		old     = sub + "48 89 6c 24 18 "          // mov %rbp,24(%rsp)
		oldBase = "48 8d 6c 24 18 "                // lea 24(%rsp),%rbp
		swap    = "48 8b 62 38 "                   // mov 56(%rdx),%rsp
		call    = "ff d7 "                         // call *%rdi
		clear   = "31 ed "                         // xor %ebp,%ebp
		reload  = "48 8b 6c 24 18 48 83 c4 20 c3 " // mov 24(%rsp),%rbp; add $32,%rsp; ret
	)
	for _, c := range []struct {
		name  string
		magic uint32
		fn    goFn
		want  string
	}{
		{"leaf", pcln120, goFn{"main.leaf", 0, code(20, ""), [][2]int{{20, 0}}}, "0:rsp+8 20:gap"},
		{"Go 1.21", pcln120, goFn{"main.f", 0, code(30, push+sub), [][2]int{{1, 0}, {7, 8}, {20, 40}, {1, 8}, {1, 0}}},
			"0:rsp+8 1:rsp+16,c-16 8:rsp+48,c-16 28:rsp+16,c-16 29:rsp+8 30:gap"},
		{"Go 1.20", pcln120, goFn{"main.f", 0, code(30, old+oldBase), [][2]int{{4, 0}, {25, 32}, {1, 0}}},
			"0:rsp+8 4:rsp+40 9:rsp+40,c-16 29:rsp+8 30:gap"},
		{"Go 1.18", pcln118, goFn{"main.f", 0, code(30, old+oldBase), [][2]int{{4, 0}, {25, 32}, {1, 0}}},
			"0:rsp+8 4:rsp+40 9:rsp+40,c-16 29:rsp+8 30:gap"},
		{"Go 1.16", pcln116, goFn{"main.f", 0, code(30, old+oldBase), [][2]int{{4, 0}, {25, 32}, {1, 0}}},
			"0:rsp+8 4:rsp+40 9:rsp+40,c-16 29:rsp+8 30:gap"},
		{"Go 1.7", pcln12, goFn{"main.f", 0, code(30, old+oldBase), [][2]int{{4, 0}, {25, 32}, {1, 0}}},
			"0:rsp+8 4:rsp+40 9:rsp+40,c-16 29:rsp+8 30:gap"},
		{"large frame", pcln118, goFn{"main.f", 0, code(30, "48 81 ec"), [][2]int{{7, 0}, {23, 256}}},
			"0:rsp+8 7:rsp+264 15:rsp+264,c-16 30:gap"},
		{"assembly without frame", pcln120, goFn{"main.asm", flagAsm, code(30, "9c"), [][2]int{{1, 0}, {29, 8}}}, "0:rsp+8 1:rsp+16 30:gap"},
		{"assembly with frame", pcln120, goFn{"main.asm", flagAsm, code(30, push), [][2]int{{1, 0}, {29, 8}}}, "0:rsp+8 1:rsp+16,c-16 30:gap"},
		{"end", pcln120, goFn{"runtime.goexit.abi0", flagAsm, code(30, ""), [][2]int{{30, 0}}}, "0:end 64:gap"},
		{"marked end", pcln120, goFn{"runtime.unheardOf", flagTopFrame, code(30, ""), [][2]int{{30, 0}}}, "0:end 64:gap"},
		{"end that has a caller", pcln120, goFn{"runtime.sigtramp", flagTopFrame | flagAsm, code(30, "9c"), [][2]int{{1, 0}, {29, 8}}}, "0:rsp+8 1:rsp+16 30:gap"},
		{"signal return", pcln120, goFn{"runtime.sigreturn__sigaction.abi0", 0, code(30, ""), [][2]int{{30, 0}}}, "-1:signal 64:gap"},
		{"switch by frame pointer", pcln120, goFn{"runtime.systemstack.abi0", flagSPWrite | flagAsm, code(30, push+swap+call), [][2]int{{1, 0}, {28, 8}, {1, 0}}},
			"0:rsp+8 1:rsp+16,c-16 8:fp 29:rsp+8 30:gap"},
		{"switch in an old frame", pcln118, goFn{"runtime.asmcgocall.abi0", flagSPWrite | flagAsm, code(50, old+oldBase+swap+call+swap+reload+swap), [][2]int{{4, 0}, {29, 32}, {1, 0}, {16, 32}}},
			"0:rsp+8 4:rsp+40 9:rsp+40,c-16 18:fp 29:rsp+40,c-16 33:rsp+8 34:fp 50:gap"},
		{"switch with rsp kept in rbp", pcln116, goFn{"runtime.nanotime1", 0, code(30, old+"48 89 e5 "+swap+call), [][2]int{{4, 0}, {26, 32}}},
			"0:rsp+8 4:rsp+40 9:rsp+40,c-16 16:rbp+40,c-16 30:gap"},
		{"switch without frame", pcln118, goFn{"runtime.systemstack.abi0", flagSPWrite, code(30, swap+call), [][2]int{{30, 0}}}, "0:rsp+8 4:end 30:gap"},
		{"cleared frame pointer", pcln120, goFn{"main.switcher", flagSPWrite | flagAsm, code(30, push+swap+clear+call), [][2]int{{1, 0}, {29, 8}}},
			"0:rsp+8 1:rsp+16,c-16 8:fp 10:end 30:gap"},
		{"goroutine left behind", pcln120, goFn{"runtime.mcall", flagSPWrite | flagAsm, code(30, push+swap+call), [][2]int{{1, 0}, {29, 8}}},
			"0:rsp+8 1:rsp+16,c-16 8:end 30:gap"},
		{"another goroutine's stack", pcln120, goFn{"gogo", flagSPWrite | flagAsm, code(30, swap), [][2]int{{30, 0}}}, "0:rsp+8 4:unsupported 30:gap"},
		{"unknown switch", pcln120, goFn{"main.align", flagSPWrite | flagAsm, code(30, "48 83 e4 e0"), [][2]int{{30, 0}}}, "0:rsp+8 4:unsupported 30:gap"},
		{"code that does not decode", pcln120, goFn{"main.vector", flagSPWrite | flagAsm, code(30, "90 06"), [][2]int{{30, 0}}}, "0:rsp+8 1:unsupported 30:gap"},
		{"frame of a gigabyte", pcln120, goFn{"runtime.call1073741824", 0, code(30, ""), [][2]int{{1, 0}, {29, 1 << 30}}}, "0:rsp+8 1:unsupported 30:gap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := buildBytes(t, craftGo(c.magic, c.fn))
			var list []string
			for _, r := range tab.Rows {
				if r.Offset() >= codeOff || r.Rule().Type() != rows.Gap {
					list = append(list, rowText(r))
				}
			}
			if got := strings.Join(list, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if tab.Source != "pclntab" || !tab.KeepsFramePointers {
				t.Errorf("source %q, frame pointers %v", tab.Source, tab.KeepsFramePointers)
			}
		})
	}
}

// TestGoNeighbours checks that functions do not disturb each other.
func TestGoNeighbours(t *testing.T) {
	plain := goFn{"main.f", 0, code(30, ""), [][2]int{{30, 0}}}
	b := craftGo(pcln120, plain,
		goFn{"runtime.sigreturn__sigaction", 0, code(9, ""), [][2]int{{9, 0}}}, plain)
	tab := buildBytes(t, b)
	var list []string
	for _, r := range tab.Rows {
		list = append(list, rowText(r))
	}
	want := "0:rsp+8 30:gap 63:signal 128:rsp+8 158:gap"
	if got := strings.Join(list, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
