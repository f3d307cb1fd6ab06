package cfi

import (
	"debug/elf"
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

func TestAfterSyscall(t *testing.T) {
	const sigreturn = "48 c7 c0 0f 00 00 00 0f 05" // mov $15,%rax; syscall
	const nothing = "06"
	for _, c := range []struct {
		name string
		fns  []fn
		want string
	}{
		{"before a gap", []fn{{"__restore_rt", sigreturn}, {"f", nothing + nothing}}, "-1:signal 10:gap"},
		{"before one byte", []fn{{"__restore_rt", sigreturn}, {"f", nothing}, {"g", "c3"}}, "-1:signal 10:rsp+8 11:gap"},
		{"before a function", []fn{{"__restore_rt", sigreturn}, {"g", "c3"}}, "-1:signal 9:rsp+8 10:gap"},
		{"at the end of the code", []fn{{"__restore_rt", sigreturn}}, "-1:signal 9:gap"},
		{"no system call", []fn{{"__restore_rt", "0f 0b"}, {"f", nothing + nothing}}, "-1:signal 2:gap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := buildBytes(t, craftCode(c.fns...))
			check(t, tab)
			var list []string
			for _, r := range tab.Rows[1:] { // the first begins the page
				list = append(list, rowText(r))
			}
			if got := strings.Join(list, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestSigreturn wants the C libraries' whole sigreturn covered, from the byte
// before it to the pc after its system call.
func TestSigreturn(t *testing.T) {
	for _, cc := range []string{"gcc", "musl-gcc"} {
		t.Run(cc, func(t *testing.T) {
			f, err := elf.Open(build(t, cc, "-static", "-O2", "-o", "OUT", "testdata/victim.c"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			tab, err := Build(f)
			if err != nil {
				t.Fatal(err)
			}
			off, ok := symbolOffset(t, f, "__restore_rt")
			if !ok {
				t.Fatal("no __restore_rt")
			}
			for at := off - 1; at <= off+9; at++ {
				if got, _ := tab.Find(at); got.Type() != rows.Signal {
					t.Errorf("__restore_rt%+d: type %d", int(at)-int(off), got.Type())
				}
			}
		})
	}
}

// symbolOffset is the file offset of a symbol.
func symbolOffset(t *testing.T, f *elf.File, name string) (off uint32, ok bool) {
	t.Helper()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == name {
			off, _, ok = newImage(f).offset(s.Value)
			return off, ok
		}
	}
	return 0, false
}
