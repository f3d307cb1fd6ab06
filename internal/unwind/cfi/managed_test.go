package cfi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// TestManagedRows reads functions as .NET compiled them (System.Private.CoreLib
// 3.1.23, and shortened ones).
func TestManagedRows(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		want       string // offset: rule, for each row
	}{
		{"keeps rbp", "\x55\x48\x83\xec\x10\x48\x8d\x6c\x24\x10\x90\x48\x8d\x65\x00\x5d\xc3",
			"0: sp+8, 1: sp+16 rbp-16, 5: sp+32 rbp-16, 10: rbp+16 rbp-16, 16: sp+8"},
		{"short", "\x55\x48\x8b\xec\x90\x5d\xc3", "0: sp+8, 1: sp+16 rbp-16, 4: rbp+16 rbp-16, 6: sp+8"},
		{"registers", "\x55\x41\x57\x53\x48\x83\xec\x08\x48\x8d\x6c\x24\x18\x90\x5b\x41\x5f\x5d\xc3\x90",
			"0: sp+8, 1: sp+16 rbp-16, 3: sp+24 rbp-16, 4: sp+32 rbp-16, 8: sp+40 rbp-16, 13: rbp+16 rbp-16, 18: sp+8, 19: rbp+16 rbp-16"},
		{"leaf", "\x8b\xc7\xc3", "0: sp+8, 2: sp+8"},
		{"one call", "\x53\x48\x8b\xde\xe8\x01\x02\x03\x04\x48\x8b\xc3\x5b\xc3", "0: sp+8, 1: sp+16, 11: sp+8, 12: sp+16, 13: sp+8"}, // 11 is within an instruction,
		{"two registers", "\x41\x56\x53\x50\x90\x48\x83\xc4\x08\x5b\x41\x5e\xc3\x90",
			"0: sp+8, 2: sp+16, 3: sp+24, 4: sp+32, 9: sp+24, 10: sp+16, 12: sp+8, 13: sp+32"},
		{"room", "\x50\x0f\x1f\x40\x00\x48\x83\xc4\x08\xc3\xcc", "0: sp+8, 1: sp+16, 9: sp+8, 10: sp+16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range appendManaged(nil, 0, []byte(tt.code)) {
				got = append(got, describeManaged(r))
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func describeManaged(r rows.Row) string {
	of := r.Rule()
	s := fmt.Sprintf("%d: %s+%d", r.Offset(), map[rows.Type]string{rows.SP: "sp", rows.BP: "rbp"}[of.Type()], 8*of.CFA())
	if n := of.RBP(); n > 0 {
		s += fmt.Sprintf(" rbp-%d", 8*int(n))
	}
	return s
}

// TestBuildManagedReal makes the table of an installed .NET's library.
func TestBuildManagedReal(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(home + "/.cache/atys/runtimes/dotnet-*/shared/Microsoft.NETCore.App/*/System.Private.CoreLib.dll")
	if len(found) == 0 {
		t.Skip("no .NET: run .ci/runtimes")
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pe, err := binfile.NewPE(f)
	if err != nil {
		t.Fatal(err)
	}
	table, err := BuildManaged(pe)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(table.Rows); i++ {
		if table.Rows[i].Offset() <= table.Rows[i-1].Offset() {
			t.Fatalf("rows %d and %d are at %#x and %#x", i-1, i, table.Rows[i-1].Offset(), table.Rows[i].Offset())
		}
	}
	if len(table.Rows) < 2*len(pe.Functions) {
		t.Errorf("%d rows for %d functions", len(table.Rows), len(pe.Functions))
	}
	t.Logf("%d functions, %d rows", len(pe.Functions), len(table.Rows))
}

// FuzzManagedRows asserts that rows are sorted and lie in the function.
func FuzzManagedRows(f *testing.F) {
	f.Add([]byte("\x55\x48\x83\xec\x10\x48\x8d\x6c\x24\x10\x90\x5d\xc3"))
	f.Add([]byte("\x41\x56\x53\x50\x90\x48\x83\xc4\x08\x5b\x41\x5e\xc3\x90"))
	f.Add(bytes.Repeat([]byte{0x41, 0xc3, 0x58}, 9))
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) == 0 {
			return
		}
		last := int64(-1)
		for _, r := range appendManaged(nil, 0, code) {
			if int64(r.Offset()) <= last || int(r.Offset()) >= len(code) {
				t.Fatalf("a row is at %d after %d, of %d bytes", r.Offset(), last, len(code))
			}
			last = int64(r.Offset())
		}
	})
}
