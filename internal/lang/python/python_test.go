package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

// runtimeFiles lists the files of installed runtimes.
func runtimeFiles(t *testing.T) (paths []string) {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{home + "/.pyenv/versions/3.*/lib/libpython3.*.so.1.0",
		home + "/.cache/atys/runtimes/cpython-3.*/libpython3.*.so.1.0", "/usr/bin/python3.*"} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if !strings.HasSuffix(path, "-config") {
				paths = append(paths, path)
			}
		}
	}
	if len(paths) == 0 {
		t.Skip("no CPython is installed")
	}
	return paths
}

func openRuntime(t *testing.T, path string) *binfile.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := binfile.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return f
}

// TestInstalled compares what is known of versions with what their files tell.
func TestInstalled(t *testing.T) {
	for _, path := range runtimeFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := openRuntime(t, path)
			if !Holds(f) {
				t.Fatal("it does not hold CPython")
			}
			told, err := readFile(f, path)
			if err != nil {
				t.Fatal(err)
			}
			minor := told.minor
			if named := fmt.Sprintf("python3.%d", minor); !strings.Contains(path, named) {
				t.Errorf("version 3.%d", minor)
			}
			if anywhere, err := readFile(f, "/bin/uwsgi"); err != nil || anywhere.minor != minor {
				t.Errorf("in a file of another name: 3.%d, %v", anywhere.minor, err)
			}
			l, err := layoutOf(minor)
			if err != nil {
				t.Fatal(err)
			}
			p := process{file: told, layout: l, minor: minor}
			keys := p.keys()
			if l.Key != 0 && (len(keys) < 2 || !slices.Contains(keys[1:], keys[0])) {
				t.Errorf("the key is at %#x, by code at %#x", keys[:1], keys[1:])
			}
			if l.Key == 0 && len(keys) == 0 {
				t.Error("the key was not found in code")
			}
			if _, err := p.interpreters(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEvaluation asserts that a function's cold part is found where GCC made
// one, as in Debian's build: jumps lead there and back.
func TestEvaluation(t *testing.T) {
	parts := map[string]int{}
	for _, path := range runtimeFiles(t) {
		f := openRuntime(t, path)
		told, err := readFile(f, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		ranges := told.evaluation
		parts[path] = len(ranges)
		hot, _ := f.Exports().Lookup(evaluationFunction)
		if offset, _ := f.Offset(hot.Address); ranges[0].Start != offset || ranges[0].End-ranges[0].Start != hot.Size {
			t.Errorf("%s: %x is not what the symbol says", path, ranges[0])
		}
		symbols, full := f.Symbols()
		if !full {
			continue // its cold part has no symbol
		}
		for _, s := range symbols {
			if s.Name != evaluationFunction+".cold" || s.Size < 64 { // less is but a trap
				continue
			}
			offset, _ := f.Offset(s.Address)
			if !slices.ContainsFunc(ranges, func(r lang.Range) bool { return r.Start == offset }) {
				t.Errorf("%s: the cold part at %#x is not in %x", path, offset, ranges)
			}
		}
	}
	if n, ok := parts["/usr/bin/python3.11"]; ok && n < 2 {
		t.Errorf("Debian's python3.11: %d parts", n)
	}
	t.Log(parts)
}

// TestLayouts has a layout for each version that is said to be walked.
func TestLayouts(t *testing.T) {
	for minor := range 30 {
		walked, why := lang.Support(lang.Runtime{Kind: lang.Python, Version: fmt.Sprintf("3.%d.0", minor)})
		if _, err := layoutOf(minor); walked != (err == nil) {
			t.Errorf("3.%d is walked: %v, %q; its layout: %v", minor, walked, why, err)
		}
	}
}

func TestMinorOf(t *testing.T) {
	if minor, err := minorOf(0x030d00f0); err != nil || minor != 13 {
		t.Errorf("3.13.0: %d, %v", minor, err)
	}
	if _, err := minorOf(0x040000f0); err == nil {
		t.Error("4.0 is taken for 3.0")
	}
	if _, err := layoutOf(15); err == nil || !strings.Contains(err.Error(), "3.15") {
		t.Errorf("3.15: %v", err)
	}
}

// debugTable makes a _Py_DebugOffsets that tells what the layout says.
func debugTable(minor int) []byte {
	raw := make([]byte, debugBytes)
	copy(raw, debugCookie)
	binary.LittleEndian.PutUint64(raw[debugVersion:], 3<<24|uint64(minor)<<16)
	l, where := layouts[minor], debugOffsets[minor]
	values := l.told()
	for i, at := range where.told() {
		binary.LittleEndian.PutUint64(raw[*at:], uint64(*values[i]))
	}
	return raw
}

func TestAdopt(t *testing.T) {
	for minor := range debugOffsets {
		l := layouts[minor]
		if err := l.adopt(minor, debugTable(minor)); err != nil || l != layouts[minor] {
			t.Errorf("3.%d: %v, %+v", minor, err, l)
		}
		moved := debugTable(minor)
		binary.LittleEndian.PutUint64(moved[debugOffsets[minor].Top:], 800)
		if err := l.adopt(minor, moved); err != nil || l.Top != 800 {
			t.Errorf("3.%d with its top moved: %v, %d", minor, err, l.Top)
		}
		for name, spoil := range map[string]func([]byte){
			"without the GIL": func(raw []byte) { raw[debugFreeThreaded] = 1 },
			"another version": func(raw []byte) { raw[debugVersion+2]++ },
			"a wild offset":   func(raw []byte) { raw[debugOffsets[minor].FrameCode+5] = 1 },
			"not begun":       func(raw []byte) { clear(raw) },
		} {
			raw := debugTable(minor)
			spoil(raw)
			l := layouts[minor]
			if err := l.adopt(minor, raw); err == nil {
				t.Errorf("3.%d, %s: no error", minor, name)
			} else if name == "not begun" && !errors.Is(err, errStarting) {
				t.Errorf("3.%d, %s: %v", minor, name, err)
			}
		}
	}
}

func FuzzAdopt(f *testing.F) {
	for minor := range debugOffsets {
		f.Add(minor == lastMinor, debugTable(minor))
	}
	f.Fuzz(func(t *testing.T, last bool, raw []byte) {
		minor := lastMinor
		if !last {
			minor--
		}
		l := layouts[minor]
		if err := l.adopt(minor, raw); err != nil {
			return
		}
		for _, offset := range l.told() {
			if *offset > maxOffset {
				t.Errorf("an offset of %#x", *offset)
			}
		}
	})
}
