package lang

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
)

// opened is a library as a file.
func opened(t *testing.T, l library) *binfile.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(path, l.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := binfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A function's code is where its symbol says, in bytes of the file.
func TestCodeOf(t *testing.T) {
	f := opened(t, library{map[string]string{"run": "\x90\x90\xc3", "stop": "\xc3"}, ""})
	run, _ := f.Exports().Lookup("run")
	code, err := CodeOf(f, "run", 2)
	if err != nil || len(code) != 1 || code[0] != (Range{run.Address, run.Address + 3}) { // loaded at 0
		t.Errorf("%+v, %v, want 3 bytes from %#x", code, err, run.Address)
	}
	if _, err := CodeOf(f, "walk", 2); err == nil || !strings.Contains(err.Error(), "walk") {
		t.Errorf("a function that is missing: %v", err)
	}
	if at, err := Exported(f, "run"); err != nil || at != run.Address {
		t.Errorf("%#x, %v, want %#x", at, err, run.Address)
	}
}

func TestExports(t *testing.T) {
	f := opened(t, exporting("", "run", "stop"))
	for _, c := range []struct {
		symbols []string
		want    bool
	}{{[]string{"run"}, true}, {[]string{"run", "stop"}, true}, {[]string{"run", "walk"}, false}, {[]string{"walk"}, false}} {
		if got := Exports(f, c.symbols...); got != c.want {
			t.Errorf("%q: %v", c.symbols, got)
		}
	}
}
