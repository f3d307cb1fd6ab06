package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrites replaces a file, and fails in the middle of another try: what was
// there stays, and nothing is left beside it.
func TestWrites(t *testing.T) {
	for name, write := range map[string]func(string, io.Reader) error{"Write": Write, "WriteDurably": WriteDurably} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, broken := filepath.Join(dir, "file"), errors.New("broken")
			for _, text := range []string{"first", "second"} {
				if err := write(path, strings.NewReader(text)); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != text {
					t.Errorf("it is %q, %v", got, err)
				}
			}
			if err := write(path, io.MultiReader(strings.NewReader("third"), failing{broken})); !errors.Is(err, broken) {
				t.Errorf("a source that broke: %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != "second" {
				t.Errorf("it is %q, %v", got, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("there are %v, %v", entries, err)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
