package bpf

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIncludes fails on a header that includes another one after its own code began, or
// that includes itself by way of others.
func TestIncludes(t *testing.T) {
	paths, err := filepath.Glob("include/*.h")
	if err != nil || len(paths) == 0 {
		t.Fatalf("list headers: %v, %d found", err, len(paths))
	}
	includes := map[string][]string{}
	for _, path := range paths {
		includes[filepath.Base(path)] = readIncludes(t, path)
	}
	done := map[string]bool{}
	var visit func(name string, above []string)
	visit = func(name string, above []string) {
		for _, a := range above {
			if a == name {
				t.Fatalf("headers include each other: %s", strings.Join(append(above, name), " -> "))
			}
		}
		if done[name] {
			return
		}
		for _, next := range includes[name] {
			visit(next, append(above, name))
		}
		done[name] = true
	}
	for name := range includes {
		visit(name, nil)
	}
}

// readIncludes returns the headers of ours that one includes.
func readIncludes(t *testing.T, path string) (names []string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, comment := false, false
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case comment || strings.HasPrefix(line, "/*"):
			comment = !strings.Contains(line, "*/")
		case line == "" || strings.HasPrefix(line, "#if") || strings.HasPrefix(line, "#else") || strings.HasPrefix(line, "#endif"):
		case strings.HasPrefix(line, "#include"):
			if code {
				t.Errorf("%s:%d: an include after code began", path, n)
			}
			if name, ok := strings.CutPrefix(line, `#include "`); ok {
				names = append(names, strings.TrimSuffix(name, `"`))
			}
		case strings.HasPrefix(line, "#define") && len(strings.Fields(line)) == 2: // a guard or a choice for headers below
		default:
			code = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}
