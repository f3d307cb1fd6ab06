package binfile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func digests(t *testing.T, file string) (code, all [32]byte, id string) {
	t.Helper()
	f, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err = f.DigestCode()
	if err != nil {
		t.Fatal(err)
	}
	all, err = f.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return code, all, f.BuildID()
}

// Digests tell files apart that have one build-id: by their code, by their symbols
// and, where names are made from it, by their debug information.
func TestDigests(t *testing.T) {
	dir := t.TempDir()
	run := func(script string) {
		t.Helper()
		c := exec.Command("sh", "-ec", script)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	run(`echo 'int f(int x) { return x + 1; } int main(void) { return f(1); }' > p.c
gcc -g -O1 -Wl,--build-id=0x11223344 -o real p.c && cp real copied
sed 's/x + 1/x - 1/' p.c > q.c && gcc -g -O1 -Wl,--build-id=0x11223344 -o other q.c
objcopy --redefine-sym f=evil real renamed
objcopy --strip-debug real stripped
objcopy --dump-section .debug_str=str real && tr 'a-m' 'n-z' < str > str2 && objcopy --update-section .debug_str=str2 real lying`)
	code, all, id := digests(t, filepath.Join(dir, "real"))
	for _, tc := range []struct {
		file              string
		sameCode, sameAll bool
	}{{"copied", true, true}, {"other", false, false}, {"renamed", false, false}, {"stripped", false, false}, {"lying", true, false}} {
		otherCode, otherAll, otherID := digests(t, filepath.Join(dir, tc.file))
		if otherID != id {
			t.Errorf("%s: build-id %s, want %s", tc.file, otherID, id)
		}
		if (otherCode == code) != tc.sameCode || (otherAll == all) != tc.sameAll {
			t.Errorf("%s: same code: %v, same names: %v", tc.file, otherCode == code, otherAll == all)
		}
	}
}

// A file that says it is larger than anybody's is not read for hours.
func TestDigestOfHugeFile(t *testing.T) {
	if _, err := DigestAll(bytes.NewReader(nil), maxDigest+1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestOwn(t *testing.T) {
	id, err := Own()
	if err != nil || id == "" || IsSubstitute(id) {
		t.Errorf("%q, %v", id, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, want := digests(t, self); !IsSubstitute(want) && want != id {
		t.Errorf("%q, want %q", id, want)
	}
}

func TestQualifiedBuildIDs(t *testing.T) {
	if q := Qualify("ab12", "34"); q == "ab12" || Unqualified(q) != "ab12" || Unqualified("ab12") != "ab12" {
		t.Errorf("%q is of %q", q, Unqualified(q))
	}
}
