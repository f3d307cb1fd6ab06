package binfile

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

const tinySource = `int twice(int x) { return x * 2; } int main(int c, char **v) { return twice(c); }`

// tiny compiles a small program with the given flags.
func tiny(t testing.TB, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "tiny")
	c := exec.Command("gcc", append(flags, "-x", "c", "-o", out, "-")...)
	c.Stdin = strings.NewReader(tinySource)
	if text, err := c.CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, text)
	}
	return out
}

func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestBuildID(t *testing.T) {
	plain := tiny(t)
	want := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(run(t, "readelf", "-n", plain))
	if got := open(t, plain).BuildID(); want == nil || got != want[1] {
		t.Errorf("build-id %q, readelf says %q", got, want)
	}
	t.Run("without section table", func(t *testing.T) {
		data, err := os.ReadFile(plain)
		if err != nil {
			t.Fatal(err)
		}
		// A section table that lies behind the end is damaged, not absent.
		for i := range 8 {
			data[0x28+i] = 0x7f
		}
		f, err := New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.BuildID(); got != want[1] {
			t.Errorf("build-id %q, want %q", got, want[1])
		}
	})
	t.Run("Go", func(t *testing.T) {
		dir := t.TempDir()
		source, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
		if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, "go", "build", "-ldflags=-B none", "-o", out, source)
		id := open(t, out).BuildID()
		if !regexp.MustCompile(`^go-[0-9a-f]{40}$`).MatchString(id) {
			t.Errorf("build-id %q", id)
		}
		if f := open(t, out); !f.IsGo() {
			t.Error("a Go program is none")
		}
	})
	t.Run("none", func(t *testing.T) {
		ids := map[string]bool{}
		for _, flag := range []string{"-O0", "-O2", "-O0"} {
			id := open(t, tiny(t, flag, "-Wl,--build-id=none")).BuildID()
			if !regexp.MustCompile(`^txt-[0-9a-f]{40}$`).MatchString(id) {
				t.Errorf("build-id %q", id)
			}
			ids[id] = true
		}
		if len(ids) != 2 {
			t.Errorf("2 programs have %d build-ids: %v", len(ids), ids)
		}
	})
}

func TestFindNote(t *testing.T) {
	note := func(name, desc string, kind byte, align int) []byte {
		b := []byte{byte(len(name)), 0, 0, 0, byte(len(desc)), 0, 0, 0, kind, 0, 0, 0}
		b = append(b, name...)
		for len(b)%align != 0 {
			b = append(b, 0)
		}
		b = append(b, desc...)
		for len(b)%align != 0 {
			b = append(b, 0)
		}
		return b
	}
	two := append(note("Linux\x00", "\x00", 1, 4), note("GNU\x00", "abc", 3, 4)...)
	for _, tc := range []struct {
		name  string
		data  []byte
		align uint64
		want  string
	}{
		{"alone", note("GNU\x00", "abcd", 3, 4), 4, "abcd"},
		{"second", two, 4, "abc"},
		{"aligned to 8", append(note("GNU\x00", "x", 5, 8), note("GNU\x00", "y", 3, 8)...), 8, "y"},
		{"cut off", two[:len(two)-4], 4, ""},
		{"of another owner", note("Go\x00\x00", "abcd", 3, 4), 4, ""},
		{"of another type", note("GNU\x00", "abcd", 1, 4), 4, ""},
		{"empty", nil, 4, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(FindNote(tc.data, tc.align, "GNU\x00", 3)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOffsetsAndAddresses(t *testing.T) {
	for _, flag := range []string{"-no-pie", "-pie", "-static"} {
		t.Run(flag, func(t *testing.T) {
			f := open(t, tiny(t, flag))
			address := f.LookupSymbols("twice")["twice"]
			off, ok := f.Offset(address)
			back, ok2 := f.Address(off)
			if !ok || !ok2 || back != address || address == 0 {
				t.Fatalf("address %#x is at offset %#x (%v), that is at address %#x (%v)", address, off, ok, back, ok2)
			}
			fromAddress, fromFile := make([]byte, 8), make([]byte, 8)
			if _, err := f.ReadAddress(fromAddress, address); err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReadAt(fromFile, int64(off)); err != nil || !bytes.Equal(fromAddress, fromFile) {
				t.Errorf("%x by address, %x by offset, %v", fromAddress, fromFile, err)
			}
			if _, ok := f.Offset(0); ok {
				t.Error("address 0 has an offset")
			}
			if f.IsGo() {
				t.Error("a C program is one of Go")
			}
		})
	}
}

func TestSymbolsAgainstNm(t *testing.T) {
	file := tiny(t)
	symbols, full := open(t, file).Symbols()
	if !full {
		t.Error("no full table")
	}
	got := map[string]string{}
	for _, s := range symbols {
		got[s.Name] = fmt.Sprintf("%x %x", s.Address, s.Size)
	}
	seen := 0
	for line := range strings.Lines(run(t, "nm", "-S", "--defined-only", file)) {
		f := strings.Fields(line)
		if len(f) == 4 && strings.Contains("tT", f[2]) {
			seen++
			address, _ := strconv.ParseUint(f[0], 16, 64)
			size, _ := strconv.ParseUint(f[1], 16, 64)
			if want := fmt.Sprintf("%x %x", address, size); got[f[3]] != want {
				t.Errorf("%s is at %q, nm says %q", f[3], got[f[3]], want)
			}
		}
	}
	if seen < 3 {
		t.Errorf("nm gave %d symbols", seen)
	}
}

// Each stub must have the name that objdump gives it, in every layout.
func TestStubsAgainstObjdump(t *testing.T) {
	files := map[string]string{
		"lazy":         tiny(t, "-Wl,-z,lazy", "-fcf-protection=none", "-Wl,--no-as-needed"),
		"now":          tiny(t, "-Wl,-z,now"),
		"with endbr64": tiny(t, "-fcf-protection=full", "-Wl,-z,ibtplt"),
	}
	for _, path := range []string{"/bin/ls", "/usr/bin/python3", "/usr/bin/node", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6"} {
		if _, err := os.Stat(path); err == nil {
			files[path] = path
		}
	}
	named := 0
	label := regexp.MustCompile(`^([0-9a-f]+) <(.*)@plt>:`)
	for name, path := range files {
		f := open(t, path)
		got := map[uint64]string{}
		for _, s := range f.Stubs() {
			got[s.Address] = s.Name
		}
		out, err := exec.Command("objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", path).Output()
		if err != nil {
			continue // has none of these sections
		}
		for line := range strings.Lines(string(out)) {
			m := label.FindStringSubmatch(line)
			if m == nil || strings.HasPrefix(m[2], "*ABS*") {
				continue
			}
			address, _ := strconv.ParseUint(m[1], 16, 64)
			want, _, _ := strings.Cut(m[2], "@")
			named++
			if got[address] != want {
				t.Errorf("%s: stub at %#x is %q, objdump says %q", name, address, got[address], want)
			}
		}
	}
	if named < 100 {
		t.Errorf("objdump named %d stubs", named)
	}
}

func TestFrameStarts(t *testing.T) {
	f := open(t, tiny(t))
	address := f.LookupSymbols("twice")["twice"]
	for _, start := range f.FrameStarts() {
		if start == address {
			return
		}
	}
	t.Errorf("no start at %#x", address)
}

func TestDebugLink(t *testing.T) {
	file := tiny(t, "-g")
	debug := filepath.Join(t.TempDir(), "some.debug")
	run(t, "objcopy", "--only-keep-debug", file, debug)
	run(t, "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, file)
	content, err := os.ReadFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	name, crc, ok := open(t, file).DebugLink()
	if want := crc32.ChecksumIEEE(content); name != "some.debug" || crc != want || !ok {
		t.Errorf("got %q %#x %v, want %#x", name, crc, ok, want)
	}
}

func TestSectionsAreUnpacked(t *testing.T) {
	plain := tiny(t, "-g")
	read := func(file string) []byte {
		f := open(t, file)
		s, err := f.OpenSection(".debug_info")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		data := make([]byte, s.Size)
		if _, err := s.ReadAt(data, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if whole, err := f.SectionData(".debug_str", 1<<20); err != nil || len(whole) == 0 {
			t.Errorf("%d bytes of .debug_str: %v", len(whole), err)
		}
		if _, err := f.SectionData(".debug_str", 16); err == nil {
			t.Error("a section larger than the limit was read")
		}
		return data
	}
	want := read(plain)
	for _, kind := range []string{"zlib-gabi", "zlib-gnu", "zstd"} {
		t.Run(kind, func(t *testing.T) {
			packed := filepath.Join(t.TempDir(), "packed")
			if out, err := exec.Command("objcopy", "--compress-debug-sections="+kind, plain, packed).CombinedOutput(); err != nil {
				t.Skipf("%v\n%s", err, out)
			}
			if kind == "zlib-gnu" {
				// .debug_str of the older form is read by OpenSection alone.
				f := open(t, packed)
				s, err := f.OpenSection(".debug_info")
				if err != nil || s.Size != int64(len(want)) {
					t.Fatalf("%v, %v", s, err)
				}
				return
			}
			if got := read(packed); !bytes.Equal(got, want) {
				t.Errorf("%d bytes, want %d", len(got), len(want))
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ path, want string }{
		{write("empty", ""), "not an ELF file"},
		{write("text", "#!/bin/sh\n"), "not an ELF file"},
		{write("short", elf.ELFMAG), "not an ELF file"},
		{write("32 bits", elf.ELFMAG+"\x01\x01\x01"+strings.Repeat("\x00", 60)), "64-bit"},
		{write("headers cut", elf.ELFMAG+"\x02\x01\x01"+strings.Repeat("\x00", 20)), "read headers"},
		{dir, "regular file"},
		{pipe, "regular file"},
		{filepath.Join(dir, "missing"), "no such file"},
	} {
		done := make(chan error, 1)
		go func() {
			f, err := Open(tc.path)
			if err == nil {
				f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want one with %q", tc.path, err, tc.want)
			}
		case <-time.After(testwait.Longest(t)):
			t.Fatalf("%s: still opening", tc.path)
		}
	}
	if _, err := Open(filepath.Join(dir, "text")); !errors.Is(err, ErrNotELF) {
		t.Errorf("error %v", err)
	}
}

// A file that is cut while it is open gives errors or less, not a crash.
func TestTruncatedWhileOpen(t *testing.T) {
	path := tiny(t, "-g")
	f := open(t, path)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	f.Symbols()
	f.Stubs()
	f.FrameStarts()
	f.BuildID()
	if _, err := f.SectionData(".debug_info", 1<<20); err == nil {
		t.Error("read a section that is gone")
	}
}

func TestUnpackXZ(t *testing.T) {
	want := bytes.Repeat([]byte("some text that repeats, "), 10_000)
	for _, args := range [][]string{{"-6"}, {"-9e"}, {"--check=none"}, {"--check=sha256"}, {"--block-size=50000"}} {
		c := exec.Command("xz", append(args, "-c")...)
		c.Stdin = bytes.NewReader(want)
		packed, err := c.Output()
		if err != nil {
			t.Skip(err)
		}
		got, err := unpackXZ(bytes.NewReader(packed), len(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q: %d bytes, %v", args, len(got), err)
		}
		if _, err := unpackXZ(bytes.NewReader(packed), len(want)-1); err == nil {
			t.Errorf("%q: unpacked more than the limit", args)
		}
		if _, err := unpackXZ(bytes.NewReader(packed[:len(packed)/2]), len(want)); err == nil {
			t.Errorf("%q: unpacked half a file", args)
		}
	}
	c := exec.Command("xz", "--lzma2=dict=1GiB", "-c")
	c.Stdin = bytes.NewReader(want)
	if packed, err := c.Output(); err == nil {
		if _, err := unpackXZ(bytes.NewReader(packed), len(want)); err == nil {
			t.Error("took a dictionary of 1 GiB")
		}
	}
}

func TestCache(t *testing.T) {
	content := make([]byte, blockBytes*(cachedBlocks+10)+100)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	c := NewCache(bytes.NewReader(content))
	for i := range 3000 {
		off := int64(i) * 7919 * 13 % int64(len(content))
		got := make([]byte, 1+i%20_000)
		n, err := c.ReadAt(got, off)
		want := content[off:min(off+int64(len(got)), int64(len(content)))]
		if !bytes.Equal(got[:n], want) || (err == io.EOF) != (n < len(got)) {
			t.Fatalf("%d bytes at %d: got %d, %v", len(got), off, n, err)
		}
	}
	if len(c.blocks) > cachedBlocks {
		t.Errorf("%d blocks are kept", len(c.blocks))
	}
}

// Whatever stands in a file: what is read of it lies inside of it.
func FuzzFile(f *testing.F) {
	seed, err := os.ReadFile(tiny(f, "-g", "-Wl,-z,lazy"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if file.BuildID() == "" {
			t.Error("no build-id")
		}
		symbols, _ := file.Symbols()
		for _, s := range symbols {
			if s.Name == "" || s.Address >= s.SectionEnd {
				t.Errorf("symbol %+v", s)
			}
			if off, ok := file.Offset(s.Address); ok && off >= uint64(len(data)) {
				t.Errorf("%q lies at %#x, behind the end", s.Name, off)
			}
		}
		file.Stubs()
		file.FrameStarts()
		file.DebugLink()
		file.AltLink()
		file.IsGo()
		file.LookupSymbols("main", "twice")
		if mini, err := file.MiniDebug(); err == nil {
			mini.Symbols()
		}
		for _, name := range []string{".debug_info", ".debug_str"} {
			if s, err := file.OpenSection(name); err == nil {
				s.Close()
			}
		}
	})
}

func FuzzUnpackXZ(f *testing.F) {
	c := exec.Command("xz", "-c")
	c.Stdin = strings.NewReader(strings.Repeat("abc", 1000))
	if packed, err := c.Output(); err == nil {
		f.Add(packed)
	}
	f.Add([]byte(xzMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 16
		if out, err := unpackXZ(bytes.NewReader(data), limit); err == nil && len(out) > limit {
			t.Errorf("%d bytes", len(out))
		}
	})
}
