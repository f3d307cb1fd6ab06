package dwarf

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
)

const source = `static inline int inner(int x) { return x * 31 + (x >> 3); }
static inline int middle(int x) { int s = 0; for (int i = 0; i < x; i++) s += inner(i ^ x); return s; }
__attribute__((noinline)) int outer(int x) { return middle(x) + middle(x / 2); }
int main(int c, char **v) { return outer(c); }
`

// compiled compiles the source and gives its debug information.
func compiled(t testing.TB, flags ...string) *Data {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	c := exec.Command("gcc", append(flags, "-O2", "-x", "c", "-o", out, "-")...)
	c.Stdin = strings.NewReader(source)
	if text, err := c.CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, text)
	}
	f, err := binfile.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d, err := New(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Addresses of real programs are compared with addr2line by package symbol,
// which turns the tables into frames; here is what it does not see.
func TestFlatten(t *testing.T) {
	for _, flag := range []string{"-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5", "-gdwarf64"} {
		t.Run(flag, func(t *testing.T) {
			d := compiled(t, flag, "-g")
			units := d.Units()
			if len(units) == 0 {
				t.Fatal("no units")
			}
			code := d.Flatten(units[0].Unit)
			checkCode(t, code)
			deepest := ""
			for _, s := range code.Spans {
				path := ""
				for call := s.Call; call >= 0; call = code.Calls[call].Parent {
					path += code.Calls[call].Name + " "
				}
				if len(path) > len(deepest) {
					deepest = path
				}
			}
			if deepest != "inner middle outer " {
				t.Errorf("the deepest inlined call is %q", deepest)
			}
			for _, c := range code.Calls {
				want := map[string]int{"inner": 1, "middle": 2, "outer": 3, "main": 4}[c.Name]
				if c.DeclLine != want {
					t.Errorf("%s starts in line %d, want %d", c.Name, c.DeclLine, want)
				}
			}
		})
	}
}

func TestNoDebugInfo(t *testing.T) {
	f, err := binfile.Open("/bin/sh")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	if _, err := New(f, nil); !errors.Is(err, ErrNoDebugInfo) {
		t.Errorf("error %v", err)
	}
}

func TestFlattenOfWrongOffsets(t *testing.T) {
	d := compiled(t, "-g")
	for _, off := range []uint32{1, 7, 1 << 20, 1<<32 - 1} {
		if code := d.Flatten(off); len(code.Calls)+len(code.Lines) > 0 {
			t.Errorf("unit at %d: %+v", off, code)
		}
	}
}

func TestLEB(t *testing.T) {
	for _, tc := range []struct {
		data     string
		unsigned uint64
		signed   int64
	}{
		{"\x00", 0, 0}, {"\x7f", 127, -1}, {"\x80\x01", 128, 128}, {"\xff\x7e", 16255, -129},
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 1 << 63, -1 << 63},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 1<<64 - 1, -1},
	} {
		u, s := cursor{data: []byte(tc.data)}, cursor{data: []byte(tc.data)}
		if got := u.uleb(); got != tc.unsigned || u.bad {
			t.Errorf("%x is %d, want %d", tc.data, got, tc.unsigned)
		}
		if got := s.sleb(); got != tc.signed || s.bad {
			t.Errorf("%x is %d, want %d", tc.data, got, tc.signed)
		}
	}
	if c := (cursor{data: []byte("\x80\x80")}); c.uleb() != 0 || !c.bad {
		t.Error("a number without an end was read")
	}
}

// checkCode tells whether tables hold what their types promise.
func checkCode(t *testing.T, code *Code) {
	t.Helper()
	end := uint64(0)
	for i, s := range code.Spans {
		if s.Start < end || s.End <= s.Start || s.Call < 0 || s.Call >= len(code.Calls) {
			t.Fatalf("span %d: %+v, the one before ends at %#x", i, s, end)
		}
		end = s.End
	}
	for i, c := range code.Calls {
		if c.Parent >= i || c.Parent < -1 || c.CallFile >= len(code.Files) || c.DeclFile >= len(code.Files) {
			t.Fatalf("call %d: %+v", i, c)
		}
	}
	for i, l := range code.Lines {
		if l.File >= len(code.Files) || l.Line < 0 || i > 0 && l.Address < code.Lines[i-1].Address {
			t.Fatalf("line %d: %+v", i, l)
		}
	}
}

func FuzzFlatten(f *testing.F) {
	for _, flag := range []string{"-gdwarf-4", "-gdwarf-5"} {
		d := compiled(f, flag)
		var all [][]byte
		for _, name := range []string{"info", "abbrev", "line", "ranges", "rnglists", "str"} {
			all = append(all, d.bytes(name, 0, 1<<16))
		}
		f.Add(all[0], all[1], all[2], all[3], all[4], all[5])
	}
	f.Fuzz(func(t *testing.T, info, abbrev, line, ranges, rnglists, str []byte) {
		d := &Data{sections: map[string]*binfile.SectionReader{}, abbrevs: map[uint64]*abbrevs{}}
		for name, data := range map[string][]byte{"info": info, "abbrev": abbrev, "line": line, "ranges": ranges,
			"rnglists": rnglists, "str": str, "line_str": str, "str_offsets": line, "addr": ranges} {
			d.sections[name] = &binfile.SectionReader{ReaderAt: bytes.NewReader(data), Size: int64(len(data))}
		}
		d.alt = d
		d.readHeaders()
		d.Units()
		for _, u := range d.headers {
			checkCode(t, d.Flatten(uint32(u.off)))
		}
	})
}

// The largest debug file of this machine, or the one DEBUG_FILE names.
func BenchmarkFlatten(b *testing.B) {
	file := os.Getenv("DEBUG_FILE")
	if file == "" {
		found, _ := filepath.Glob("/usr/lib/debug/.build-id/*/*.debug")
		largest := int64(0)
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Size() > largest {
				file, largest = path, info.Size()
			}
		}
	}
	f, err := binfile.Open(file)
	if err != nil {
		b.Skip(err)
	}
	defer f.Close()
	b.ReportAllocs()
	for b.Loop() {
		d, err := New(f, nil)
		if err != nil {
			b.Fatal(err)
		}
		done := map[uint32]bool{}
		for _, u := range d.Units() {
			if !done[u.Unit] {
				done[u.Unit] = true
				d.Flatten(u.Unit)
			}
		}
		b.ReportMetric(float64(len(done)), "units")
		b.ReportMetric(float64(d.sections["info"].Size)/1e6, "MB-info")
		d.Close()
	}
}
