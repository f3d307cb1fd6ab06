package binfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const partsSource = `
__thread int first;
__thread int second;
void unlikely(int) __attribute__((cold));
void likely(int);
int split(int a)
{
	if (__builtin_expect(a == 42, 0)) {
		unlikely(a);
		a = second;
	}
	first++;
	likely(0);
	return a * 3;
}
int whole(int a) { return a * 5; }
`

func TestPartsAndThreadLocal(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here: make deps installs it")
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "parts.c"), filepath.Join(dir, "parts.so")
	if err := os.WriteFile(source, []byte(partsSource), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(gcc, "-O2", "-fPIC", "-shared", "-freorder-blocks-and-partition", "-o", library, source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	cold := uint64(0)
	f.EachSymbol(func(s Symbol) {
		if s.Name == "split.cold" {
			cold = s.Address
		}
	})
	if cold == 0 {
		t.Fatal("gcc did not split the function")
	}
	for name, want := range map[string][]uint64{"split": {0, cold}, "whole": {0}} {
		s, ok := f.Exports().Lookup(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		want[0] = s.Address
		parts := f.Parts(s)
		if len(parts) != len(want) {
			t.Errorf("%s has %+v, not %#x", name, parts, want)
			continue
		}
		for i, p := range parts {
			if offset, ok := f.Offset(want[i]); !ok || p.Address != want[i] || p.Offset != offset || p.Size == 0 {
				t.Errorf("part %d of %s is %+v, not at %#x", i, name, p, want[i])
			}
		}
	}
	if parts := f.Parts(Export{Address: 1 << 40, Size: 16}); parts != nil {
		t.Errorf("a function outside the file: %+v", parts)
	}

	first, ok1 := f.ThreadLocal("first")
	second, ok2 := f.ThreadLocal("second")
	if !ok1 || !ok2 || first == second {
		t.Errorf("slots %#x %v, %#x %v", first, ok1, second, ok2)
	}
	if slot, ok := f.ThreadLocal("whole"); ok {
		t.Errorf("a function has a slot: %#x", slot)
	}
}
