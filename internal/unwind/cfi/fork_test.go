package cfi

import (
	"debug/elf"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// TestForks wants every byte of the C libraries' own clone covered from its
// system call to where the new thread goes its own way, in programs with
// symbols and without.
func TestForks(t *testing.T) {
	for _, cc := range []string{"gcc", "musl-gcc"} {
		for _, stripped := range []bool{false, true} {
			name := cc
			args := []string{cc, "-static", "-pthread", "-O2", "-o", "OUT", "testdata/victim.c"}
			if stripped {
				if cc == "musl-gcc" {
					continue // has no unwind information that would tell where its clone is
				}
				name, args = cc+" -s", append(args, "-s")
			}
			t.Run(name, func(t *testing.T) {
				f, err := elf.Open(build(t, args...))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				tab, err := Build(f)
				if err != nil {
					t.Fatal(err)
				}
				forks := 0
				for i, r := range tab.Rows {
					if r.Rule().Type() != rows.Fork {
						continue
					}
					forks++
					if next := tab.Rows[i+1]; next.Rule().Type() != rows.End || next.Offset()-r.Offset() > forkCode {
						t.Errorf("%#x: until %#x, then type %d", r.Offset(), next.Offset(), next.Rule().Type())
					}
				}
				if forks == 0 {
					t.Error("no code of clone was found")
				}
			})
		}
	}
}
