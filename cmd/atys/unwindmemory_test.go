package main

import (
	"strings"
	"testing"
)

func TestUnwindMemory(t *testing.T) {
	const machine = 100 << 20
	for _, test := range []struct {
		text string
		want int64
		err  string
	}{
		{"", 0, ""}, {"16", 16, ""}, {"16MB", 16, ""}, {"1", 1, ""}, {"25MiB", 25, ""},
		{"0", 0, "--unwind-memory 0: want 1 to 128 megabytes"}, {"-1", 0, "--unwind-memory -1: want 1 to 128 megabytes"}, {"129", 0, "--unwind-memory 129: want 1 to 128 megabytes"},
		{"26", 0, "--unwind-memory 26: this machine has 100 megabytes of memory: want at most 25"},
		{"much", 0, `--unwind-memory "much": want megabytes, 1 to 128, such as 16`}, {"1GB", 0, "--unwind-memory 1GB: want 1 to 128 megabytes"}, {"32 parsecs", 0, `--unwind-memory "32 parsecs": want megabytes`},
		{"1e3", 0, "want megabytes"}, {"99999999999999999999", 0, "want megabytes"},
	} {
		got, err := unwindMemory(test.text).megabytes(machine)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %d, %v; want %d, %q", test.text, got, err, test.want, test.err)
		}
	}
}

// TestUnwindMemoryFollowsBudget says what a sixteenth of --max-memory is.
func TestUnwindMemoryFollowsBudget(t *testing.T) {
	for budget, want := range map[int64]int64{0: 16, 64e6: 4, 128e6: 8, 256e6: 16, 512e6: 32, 1e9: 64, 64e9: 64} {
		if got := defaultUnwind(budget); got != want {
			t.Errorf("of %d bytes it is %d MB, want %d", budget, got, want)
		}
	}
	if rows, err := unwindMemory("16").rowsWithin(64e6); err == nil || !strings.Contains(err.Error(), "--max-memory") {
		t.Errorf("more than a quarter of the budget is taken: %d, %v", rows, err)
	}
	if rows, err := unwindMemory("8").rowsWithin(64e6); err != nil || rows != 1<<20 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
