package python

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// oracle is a code object and what its interpreter says of its lines.
type oracle struct {
	Name  string
	First int
	Table string
	Size  int
	Lines [][3]int // from, to, line
}

func readOracle(t testing.TB, minor int) (codes []oracle) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("testdata/lines/3.%d.json", minor))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &codes); err != nil {
		t.Fatal(err)
	}
	return codes
}

func TestLineAt(t *testing.T) {
	for minor := firstMinor; minor <= lastMinor; minor++ {
		t.Run(fmt.Sprintf("3.%d", minor), func(t *testing.T) {
			checked := 0
			for _, code := range readOracle(t, minor) {
				checked += checkLines(t, minor, code)
			}
			if checked < 500 {
				t.Errorf("%d instructions compared", checked)
			}
		})
	}
}

// checkLines compares each instruction of a code object.
func checkLines(t *testing.T, minor int, code oracle) (checked int) {
	t.Helper()
	table, err := hex.DecodeString(code.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range code.Lines {
		for offset := r[0]; offset < min(r[1], code.Size); offset += 2 {
			checked++
			line, ok := lineAt(minor, table, code.First, offset)
			if !ok || line != r[2] {
				t.Errorf("%s at %d: line %d (%v), want %d", code.Name, offset, line, ok, r[2])
				return checked
			}
		}
	}
	if _, ok := lineAt(minor, table, code.First, code.Size+1000); ok && minor >= 10 {
		t.Errorf("%s: a line behind its end", code.Name)
	}
	return checked
}

// FuzzLineAt asserts of any table that it ends, and that what follows an
// instruction does not change its line.
func FuzzLineAt(f *testing.F) {
	for minor := firstMinor; minor <= lastMinor; minor++ {
		for _, code := range readOracle(f, minor)[:4] {
			table, err := hex.DecodeString(code.Table)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(minor), table, uint16(code.Size/2))
		}
	}
	f.Add(uint8(11), []byte{0xf5}, uint16(0)) // entries that are cut
	f.Add(uint8(11), []byte{0xf4, 0x30}, uint16(12))
	f.Fuzz(func(t *testing.T, minor uint8, table []byte, offset uint16) {
		line, ok := lineAt(int(minor), table, 1, int(offset))
		if !ok || minor <= 10 && len(table)%2 != 0 {
			return
		}
		longer := append(append([]byte{}, table...), 0x7f, 1, 0x7f, 1)
		again, ok := lineAt(int(minor), longer, 1, int(offset))
		if minor < 10 { // its end is the end of the code: more can be added
			return
		}
		if !ok || again != line {
			t.Errorf("line %d, with more behind it %d", line, again)
		}
	})
}
