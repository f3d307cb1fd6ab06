package symbol

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
)

// perfMapAt names code by a map whose writer is not checked.
func perfMapAt(path string) *PerfMap { return &PerfMap{growing: growing{file: untrusted{path: path}}} }

func TestPerfMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf-1.map")
	m := perfMapAt(path)
	if err := m.Refresh(); !os.IsNotExist(err) {
		t.Errorf("error %v", err)
	}
	write := func(text string, flags int) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := m.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want map[uint64]string) {
		t.Helper()
		for address, name := range want {
			f, ok := m.Frame(address)
			if f.Function != name || ok != (name != "") || ok && f.Kind != profile.KindJIT {
				t.Errorf("%#x is %+v (%v), want %q", address, f, ok, name)
			}
		}
	}
	write("1000 10 LazyCompile:~main file.js:1\n0x2000 0x20 Builtin:Call\nnonsense\n3000 zz bad\n4000 0 empty\n5000 10 \n6000 10 cut o", os.O_APPEND)
	check(map[uint64]string{0xfff: "", 0x1000: "LazyCompile:~main file.js:1", 0x100f: "LazyCompile:~main file.js:1",
		0x1010: "", 0x201f: "Builtin:Call", 0x3000: "", 0x4000: "", 0x5000: "", 0x6000: ""})
	// The line that was being written goes on; memory is used again.
	write("ff\n1008 10 *optimized\n", os.O_APPEND)
	check(map[uint64]string{0x6000: "cut off", 0x1007: "LazyCompile:~main file.js:1", 0x1008: "*optimized", 0x1017: "*optimized", 0x1018: ""})
	write("1000 8 first again\n", os.O_APPEND)
	check(map[uint64]string{0x1000: "first again", 0x1008: "*optimized"})
	// A runtime that starts over.
	write("7000 10 new\n", os.O_TRUNC)
	check(map[uint64]string{0x7000: "new", 0x1000: "", 0x6000: ""})
	write(strings.Repeat("x", maxPerfMapLine*3)+"\n8000 10 behind a long line\n", os.O_APPEND)
	check(map[uint64]string{0x8000: "behind a long line", 0x7000: "new"})
}

// TestPerfMapOf refuses maps that a process cannot have written.
func TestPerfMapOf(t *testing.T) {
	path := PerfMapPath("/proc", os.Getpid())
	if err := os.WriteFile(path, []byte("1000 10 own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	m := PerfMapOf(os.Getpid())
	if err := m.Refresh(); err != nil {
		t.Fatalf("its own map: %v", err)
	}
	if f, ok := m.Frame(0x1000); !ok || f.Function != "own" {
		t.Errorf("named %+v", f)
	}
	before := time.Now().Add(-240 * time.Hour)
	if err := os.Chtimes(path, before, before); err != nil {
		t.Fatal(err)
	}
	if err := PerfMapOf(os.Getpid()).Refresh(); err == nil || !strings.Contains(err.Error(), "is older than process") {
		t.Errorf("a map of before it began: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Chtimes(path, time.Now(), time.Now()), os.Chown(path, 4321, 4321)); err != nil {
		t.Fatal(err)
	}
	if err := PerfMapOf(os.Getpid()).Refresh(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("another user's map: %v", err)
	}
}

// The last line that covers an address names it, however lines overlap and
// however they arrive.
func TestPerfMapAgainstSimulation(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 30 {
		path := filepath.Join(t.TempDir(), "map")
		m := perfMapAt(path)
		var memory [512]string
		for batch := range 6 {
			var text strings.Builder
			for i := range 1 + r.Intn(60) {
				start, size := r.Intn(480), 1+r.Intn(31)
				name := fmt.Sprintf("f%d.%d", batch, i)
				fmt.Fprintf(&text, "%x %x %s\n", start, size, name)
				for a := start; a < start+size; a++ {
					memory[a] = name
				}
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteString(text.String())
			f.Close()
			if err := m.Refresh(); err != nil {
				t.Fatal(err)
			}
			for a, want := range memory {
				if f, _ := m.Frame(uint64(a)); f.Function != want {
					t.Fatalf("%#x is %q, want %q", a, f.Function, want)
				}
			}
		}
	}
}

func TestPerfMapPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "42"), 0o755); err != nil {
		t.Fatal(err)
	}
	status := "Name:\tnode\nNSpid:\t42\t7\nThreads:\t3\n"
	if err := os.WriteFile(filepath.Join(dir, "42/status"), []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := PerfMapPath(dir, 42), dir+"/42/root/tmp/perf-7.map"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := PerfMapPath(dir, 43), dir+"/43/root/tmp/perf-43.map"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Anybody may write to /tmp: what is no file must not block us, and what is a
// link must not have us read for its maker.
func TestPerfMapOfHostileProcess(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	secret := filepath.Join(dir, "secret")
	err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink(secret, link), os.WriteFile(secret, []byte("1000 10 a\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, dir, "/dev/zero"} {
		m := perfMapAt(path)
		if err := m.Refresh(); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: error %v", path, err)
		}
		if f, ok := m.Frame(0x1000); ok {
			t.Errorf("%s: names %v", path, f)
		}
	}
}

// TestUntrustedInRoot has a process lead us to what is ours, by a link in its
// root directory.
func TestUntrustedInRoot(t *testing.T) {
	dir := t.TempDir()
	root, ours := filepath.Join(dir, "root"), filepath.Join(dir, "ours")
	err := errors.Join(os.MkdirAll(filepath.Join(root, "tmp"), 0o700), os.Mkdir(ours, 0o700),
		os.WriteFile(filepath.Join(ours, "perf-1.map"), []byte("1000 10 ours\n"), 0o600),
		os.WriteFile(filepath.Join(root, "tmp/perf-1.map"), []byte("1000 10 its\n"), 0o600),
		os.Symlink(ours, filepath.Join(root, "absolute")), os.Symlink("../ours", filepath.Join(root, "relative")),
		os.Symlink("/proc/self/root"+ours, filepath.Join(root, "magic")), os.Symlink("/tmp", filepath.Join(root, "inside")),
		os.Symlink("tmp/perf-1.map", filepath.Join(root, "last")))
	if err != nil {
		t.Fatal(err)
	}
	for path, own := range map[string]bool{"/tmp/perf-1.map": true, "/inside/perf-1.map": true, "/absolute/perf-1.map": false,
		"/relative/perf-1.map": false, "/magic/perf-1.map": false, "/../ours/perf-1.map": false, "/last": false} {
		m := &PerfMap{growing: growing{file: untrusted{root: root, path: path}}}
		if err := m.Refresh(); err == nil != own {
			t.Errorf("%s: error %v", path, err)
		}
		if f, _ := m.Frame(0x1000); f.Function != "its" && own || f.Function != "" && !own {
			t.Errorf("%s: names %+v", path, f)
		}
	}
}

// TestJITTableFull has a runtime tell more code than is taken, and go on with
// what takes the place of other code.
func TestJITTableFull(t *testing.T) {
	table := jitTable{entries: make([]jitEntry, maxCode-10)}
	for i := range uint64(100) {
		table.add(jitEntry{start: 2 * i, end: 2*i + 1, name: "f"})
	}
	table.settle()
	if n := len(table.entries) + len(table.recent); n > maxCode {
		t.Errorf("%d pieces of code are kept", n)
	}
	table = jitTable{}
	const told = maxCode + maxFresh
	for i := range uint64(told) {
		table.add(jitEntry{start: i & 7, end: i&7 + 1, name: strconv.FormatUint(i, 10)})
	}
	table.settle()
	if f, _ := table.frame(7); f.Function != strconv.Itoa(told-1) {
		t.Errorf("the last piece is %q", f.Function)
	}
}

func FuzzPerfMap(f *testing.F) {
	f.Add([]byte("1000 10 a\n1008 10 b\n"), uint64(0x1009))
	f.Add([]byte("0xffffffffffffff00 0xff a\n"), uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, address uint64) {
		m := perfMapAt("")
		if err := m.parse(strings.NewReader(string(data))); err != nil {
			t.Fatal(err)
		}
		if len(m.code.recent) > 0 {
			t.Fatal("the first lines are not settled")
		}
		for i, e := range m.code.entries {
			if e.start >= e.end || i > 0 && e.start < m.code.entries[i-1].end || e.name == "" {
				t.Fatalf("entry %d of %+v", i, m.code.entries)
			}
		}
		if f, ok := m.Frame(address); ok && f.Function == "" {
			t.Fatal("a frame without name")
		}
	})
}
