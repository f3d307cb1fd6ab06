package binfile

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestExports compares every symbol of real libraries with what debug/elf
// reads from the whole table, for both kinds of hash table.
func TestExports(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to make a library with")
	}
	source := "int one(void){return 1;} int two_[7]={1}; extern int missing(void); int three(void){return missing();}"
	for _, style := range []string{"gnu", "sysv"} {
		t.Run(style, func(t *testing.T) {
			lib := filepath.Join(t.TempDir(), "lib.so")
			cmd := exec.Command(cc, "-shared", "-fPIC", "-Wl,--hash-style="+style, "-x", "c", "-o", lib, "-")
			cmd.Stdin = bytes.NewReader([]byte(source))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			e := compareExports(t, lib)
			if s, ok := e.Lookup("two_"); !ok || s.Size != 28 || s.Type != elf.STT_OBJECT {
				t.Errorf("two_: %+v, %v", s, ok)
			}
			for _, name := range []string{"missing", "nosuch", ""} {
				if s, ok := e.Lookup(name); ok {
					t.Errorf("%q: %+v", name, s)
				}
			}
		})
	}
	for _, lib := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"} {
		if _, err := os.Stat(lib); err == nil {
			compareExports(t, lib)
		}
	}
}

func compareExports(t *testing.T, path string) Exports {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	symbols, err := f.ELF.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	e, defined := f.Exports(), 0
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF || elf.ST_BIND(s.Info) == elf.STB_LOCAL {
			continue
		}
		defined++
		// Several versions of one name differ in their address.
		if got, ok := e.Lookup(s.Name); !ok || s.Version == "" && (got.Address != s.Value || got.Size != s.Size) {
			t.Errorf("%s of %s: %+v, %v; want %#x, %d bytes", s.Name, path, got, ok, s.Value, s.Size)
		}
	}
	if defined < 3 {
		t.Errorf("%s defines %d symbols only", path, defined)
	}
	return e
}

// FuzzExports: whatever is found really has the name and is in the file.
func FuzzExports(f *testing.F) {
	if cc, err := exec.LookPath("gcc"); err == nil {
		lib := filepath.Join(f.TempDir(), "lib.so")
		cmd := exec.Command(cc, "-shared", "-nostdlib", "-Wl,--hash-style=both", "-x", "c", "-o", lib, "-")
		cmd.Stdin = bytes.NewReader([]byte("int one(void){return 1;}"))
		if cmd.Run() == nil {
			data, _ := os.ReadFile(lib)
			f.Add(data, "one")
		}
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"), "x")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		file, err := New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if _, ok := file.Exports().Lookup(name); ok && !bytes.Contains(data, append([]byte(name), 0)) {
			t.Fatalf("%q found, which is not in the file", name)
		}
	})
}
