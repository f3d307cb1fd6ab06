package symbol

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/profile"
)

func native(id string, off uint64) profile.Location {
	return profile.Location{Kind: profile.KindNative, BuildID: id, Offset: off}
}

// offsetOf gives the offset of a function of a file.
func offsetOf(t testing.TB, file, name string) uint64 {
	t.Helper()
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	off, ok := f.Offset(f.LookupSymbols(name)[name])
	if !ok {
		t.Fatalf("no %q in %q", name, file)
	}
	return off
}

func TestResolveWithoutFile(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	for _, tc := range []struct {
		l    profile.Location
		want profile.Frame
	}{
		{native("abcd", 0x10), profile.Unnamed(profile.KindNative, "abcd", 0x10)},
		{profile.Location{Kind: profile.KindJIT, Offset: 0x10}, profile.Unnamed(profile.KindJIT, "", 0x10)},
		{profile.Location{Kind: profile.KindPython, Name: "f", File: "a.py", Line: 3},
			profile.Frame{Function: "f", File: "a.py", Line: 3, Kind: profile.KindPython}},
		{profile.Location{}, profile.Unnamed(0, "", 0)},
		{native("abcd", 1<<63), profile.Unnamed(profile.KindNative, "abcd", 1<<63)},
	} {
		if got := r.Resolve(t.Context(), tc.l); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%+v is %+v, want %+v", tc.l, got, tc.want)
		}
	}
}

func TestName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shapes")
	compile(t, file, "g++ -O2 -o $OUT shapes.cc")
	id := buildID(t, file)
	r := resolverOf(t, Options{}, file)
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}})
	main := b.Location(native(id, offsetOf(t, file, "main")))
	nowhere := b.Location(native(id, 1<<40))
	python := b.Location(profile.Location{Kind: profile.KindPython, Name: "f"})
	given := b.Location(native(id, offsetOf(t, file, "original")), profile.Frame{Function: "given"})
	for i, leaf := range []profile.LocationID{main, nowhere, python, given} {
		stack := b.Stack([]profile.LocationID{leaf, main, nowhere}, profile.EndComplete)
		b.Add(profile.Row{Stack: stack, N: int64(i + 1), Values: []int64{int64(i+1) * 10}})
	}
	w := b.Window()
	for range 2 { // naming again changes nothing
		r.Name(t.Context(), w)
		var got []string
		for _, names := range w.Names {
			got = append(got, names[0].Function)
		}
		if want := []string{"main", "shapes+0x10000000000", "f", "given"}; !reflect.DeepEqual(got, want) {
			t.Errorf("names %q, want %q", got, want)
		}
		loss := w.LossOf(profile.LossUnsymbolized)
		if loss.N != 2 || loss.Value != 20 || len(w.Losses) != 1 || !strings.Contains(w.Losses[0].Detail, "shapes") {
			t.Errorf("losses %+v", w.Losses)
		}
	}
}

// A file is opened once, at once, though no name is wanted; its process may be
// gone later.
func TestFileOfGoneProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shapes")
	compile(t, file, "g++ -O2 -g -o $OUT shapes.cc")
	id, off := buildID(t, file), offsetOf(t, file, "main")
	r := resolverOf(t, Options{}, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := r.Resolve(t.Context(), native(id, off)); got[len(got)-1].Function != "main" || got[0].Line == 0 {
		t.Errorf("got %+v", got)
	}
}

func TestLaterFileIsTried(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shapes")
	compile(t, file, "g++ -O2 -o $OUT shapes.cc")
	id, off := buildID(t, file), offsetOf(t, file, "main")
	r := New(Options{})
	defer r.Close()
	opened := 0
	r.AddFile(id, file, func() (*os.File, error) { opened++; return nil, errors.New("gone") })
	for range 3 {
		if got := r.Resolve(t.Context(), native(id, off)); got[0].Function == "main" {
			t.Errorf("got %+v", got)
		}
	}
	if opened != 2 { // by AddFile, and for the first name
		t.Errorf("opened %d times", opened)
	}
	r.AddFile(id, file, func() (*os.File, error) { return os.Open(file) })
	if got := r.Resolve(t.Context(), native(id, off)); got[0].Function != "main" {
		t.Errorf("got %+v", got)
	}
}

// With the cache, nothing but the file's identity has to be read.
func TestDiskCache(t *testing.T) {
	dir := t.TempDir()
	file, cache := filepath.Join(dir, "shapes"), filepath.Join(dir, "cache")
	compile(t, file, "g++ -O2 -g -o $OUT shapes.cc")
	age(t, file)
	id, offsets := buildID(t, file), offsetsOf(t, file)
	o := Options{Cache: diskCache(t, cache), DebugDirs: []string{dir}}
	r := resolverOf(t, o, file)
	want := frameNames(t, r, id, offsets)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	warm := resolverOf(t, o, file)
	sameNames(t, frameNames(t, warm, id, offsets), want)
	if m := warm.modules[id]; m.tables.mapped == nil || m.dirty {
		t.Error("the tables were made again")
	}
	gone := New(o)
	gone.AddFile(id, file, func() (*os.File, error) { return nil, errors.New("gone") })
	if got := gone.Resolve(t.Context(), native(id, offsetOf(t, file, "main"))); got[0].Function == "main" {
		t.Errorf("got %+v by a build-id alone", got)
	}

	path := namesFile(t, cache)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []struct {
		name string
		data []byte
	}{
		{"cut", whole[:len(whole)/2]}, {"empty", nil}, {"flipped", flip(whole, len(whole)/2)}, {"of another version", flip(whole, 8)},
	} {
		t.Run(damage.name, func(t *testing.T) {
			if err := os.WriteFile(path, damage.data, 0o600); err != nil {
				t.Fatal(err)
			}
			r := resolverOf(t, o, file)
			sameNames(t, frameNames(t, r, id, offsets), want)
			r.Close()
			if got, _ := os.ReadFile(path); string(got) != string(whole) {
				t.Errorf("the file was not replaced: %d bytes, want %d", len(got), len(whole))
			}
		})
	}
	t.Run("debug file comes later", func(t *testing.T) {
		shell(t, dir, "rm -rf cache; objcopy --strip-all shapes stripped; mkdir -p debug/.build-id/"+id[:2])
		o := Options{Cache: diskCache(t, cache), DebugDirs: []string{filepath.Join(dir, "debug")}}
		r := resolverOf(t, o, filepath.Join(dir, "stripped"))
		frameNames(t, r, id, offsets)
		r.Close()
		shell(t, dir, "objcopy --only-keep-debug shapes debug/.build-id/"+id[:2]+"/"+id[2:]+".debug")
		sameNames(t, frameNames(t, resolverOf(t, o, filepath.Join(dir, "stripped")), id, offsets), want)
	})
	for _, strip := range []string{"--strip-all", "--strip-debug"} {
		t.Run("after a copy that went through "+strip, func(t *testing.T) {
			shell(t, dir, "rm -rf cache debug; objcopy "+strip+" shapes stripped")
			r := resolverOf(t, o, filepath.Join(dir, "stripped"))
			frameNames(t, r, id, offsets)
			r.Close()
			sameNames(t, frameNames(t, resolverOf(t, o, file), id, offsets), want)
		})
	}
}

// TestSavedTablesAreMapped has tables that were made be those of the file that
// they were saved to, which a cache that is emptied does not take away.
func TestSavedTablesAreMapped(t *testing.T) {
	dir := t.TempDir()
	file, cache := filepath.Join(dir, "shapes"), filepath.Join(dir, "cache")
	compile(t, file, "g++ -O2 -g -o $OUT shapes.cc")
	age(t, file)
	id, offsets := buildID(t, file), offsetsOf(t, file)
	r := resolverOf(t, Options{Cache: diskCache(t, cache), DebugDirs: []string{dir}}, file)
	want := frameNames(t, r, id, offsets)
	m := r.modules[id]
	if m.tables.mapped != nil {
		t.Fatal("mapped before anything was saved")
	}
	r.loader.tend()
	if m.tables.mapped == nil {
		t.Fatal("what was saved is not mapped")
	}
	if err := os.RemoveAll(cache); err != nil {
		t.Fatal(err)
	}
	m.ready, m.names = nil, nil
	sameNames(t, frameNames(t, r, id, offsets), want)
	r.Shed()
	sameNames(t, frameNames(t, r, id, offsets), want)
}

// TestIdleModulesAreClosed has what was opened to name a module be closed once
// nobody has asked for a while, and names be the same when somebody does.
func TestIdleModulesAreClosed(t *testing.T) {
	goes, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	has := filepath.Join(dir, "shapes")
	compile(t, has, "g++ -O2 -g -gz -o $OUT shapes.cc")
	for _, file := range []string{has, goes} {
		now := time.Now()
		r := resolverOf(t, Options{DebugDirs: []string{dir}, Now: func() time.Time { return now }}, file)
		id, offsets := buildID(t, file), offsetsOf(t, file)
		r.loader.tend()
		want := frameNames(t, r, id, offsets)
		m := r.modules[id]
		open := func() bool { return m.dwarf != nil || m.goTab != nil }
		now = now.Add(idleAfter - time.Second)
		if r.loader.tend(); !open() {
			t.Errorf("%s: closed too early, or never opened", file)
		}
		now = now.Add(tendEvery)
		if r.loader.tend(); open() {
			t.Errorf("%s: open though nobody reads it", file)
		}
		m.ready, m.names, m.tables.units = nil, nil, nil
		sameNames(t, frameNames(t, r, id, offsets), want)
	}
}

// diskCache opens a cache in a directory.
func diskCache(t testing.TB, dir string) *diskcache.Cache {
	t.Helper()
	c, err := diskcache.Open(dir, diskcache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// age waits until a change of a file would be seen by its time.
func age(t testing.TB, files ...string) {
	t.Helper()
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := diskcache.Stamp(f); err == nil {
				break
			} else if !errors.Is(err, diskcache.ErrChanged) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		f.Close()
	}
}

// namesFile is the one entry of a cache that has names.
func namesFile(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.names"))
	if err != nil || len(files) != 1 {
		t.Fatalf("entries with names: %q, %v", files, err)
	}
	return files[0]
}

func flip(data []byte, i int) []byte {
	out := append([]byte(nil), data...)
	out[i] ^= 0x40
	return out
}

// However many files there are, few are open, and tables fit their bound; names
// that were given up are read again.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	o := Options{MaxFiles: 3, MemoryBytes: 20_000, DebugDirs: []string{dir}}
	r := New(o)
	before := openFiles(t)
	type program struct {
		id  string
		off uint64
	}
	var programs []program
	for i := range 8 {
		file := filepath.Join(dir, fmt.Sprint("p", i))
		shell(t, dir, fmt.Sprintf("echo 'int f%d(int x) { return x; } int main() { return f%d(%d); }' | gcc -g -x c -o %s -", i, i, i, file))
		programs = append(programs, program{buildID(t, file), offsetOf(t, file, fmt.Sprint("f", i))})
		r.AddFile(programs[i].id, file, func() (*os.File, error) { return os.Open(file) })
	}
	if n := openFiles(t) - before; n > 3 {
		t.Errorf("%d files are open", n)
	}
	for round := range 3 {
		for i, p := range programs {
			got := r.Resolve(t.Context(), native(p.id, p.off))
			if got[0].Function != fmt.Sprint("f", i) || got[0].Line == 0 {
				t.Errorf("round %d, %d: %+v", round, i, got)
			}
			if n := openFiles(t) - before; n > 6 { // 3 held, 3 read
				t.Errorf("%d files are open", n)
			}
			total := int64(0)
			for _, m := range r.modules {
				total += m.bytes()
			}
			if total > 40_000 { // the last one stays whatever it takes
				t.Errorf("%d bytes of tables", total)
			}
		}
	}
	r.Shed()
	for i, p := range programs {
		if m := r.modules[p.id]; m.bytes() != 0 {
			t.Errorf("%d: %d bytes of tables that were shed", i, m.bytes())
		}
	}
	if got := r.Resolve(t.Context(), native(programs[0].id, programs[0].off)); got[0].Function != "f0" {
		t.Errorf("after all was shed: %+v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := openFiles(t) - before; n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

func TestConcurrentUse(t *testing.T) {
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	id, offsets := buildID(t, file), offsetsOf(t, file)
	r := New(Options{Cache: diskCache(t, t.TempDir())})
	done := make(chan bool)
	for n := range 4 {
		go func() {
			rng := rand.New(rand.NewSource(int64(n)))
			for range 200 {
				if rng.Intn(10) == 0 {
					r.AddFile(id, file, func() (*os.File, error) { return os.Open(file) })
				}
				r.Resolve(t.Context(), native(id, offsets[rng.Intn(len(offsets))]))
				r.kernel.Location(rng.Uint64())
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// This test's own functions, by Go's table.
func TestGoNames(t *testing.T) {
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := resolverOf(t, Options{}, file)
	pc, source, line, _ := runtime.Caller(0)
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	off, ok := f.Offset(uint64(pc) - 1)
	if !ok {
		t.Skip("this test is position-independent")
	}
	got := r.Resolve(t.Context(), native(f.BuildID(), off))
	want := profile.Frame{Function: "atys.dev/atys/internal/symbol.TestGoNames", File: source, Line: line,
		StartLine: line - 6, Mapping: file, Kind: profile.KindNative}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// C code in a Go program is named by symbols and DWARF, Go's own by its table.
func TestGoProgramWithC(t *testing.T) {
	dir := t.TempDir()
	program := `package main

/*
static int inner(int x) { return x * 31 + (x >> 3); }
__attribute__((noinline)) int outer(int x) { int s = 0; for (int i = 0; i < x; i++) s += inner(i ^ x); return s; }
*/
import "C"
import "os"

func main() { println(C.outer(C.int(len(os.Args)))) }
`
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "CGO_ENABLED=1 CGO_CFLAGS='-O2 -g' go build -o program main.go")
	file := filepath.Join(dir, "program")
	r, id := resolverOf(t, Options{}, file), buildID(t, file)
	if got := r.Resolve(t.Context(), native(id, offsetOf(t, file, "main.main"))); got[len(got)-1].Function != "main.main" || got[0].StartLine != 10 {
		t.Errorf("got %+v", got)
	}
	start := offsetOf(t, file, "outer")
	deepest := 0
	for off := start; off < start+32; off++ {
		got := r.Resolve(t.Context(), native(id, off))
		if f := got[len(got)-1]; f.Function != "outer" || f.File == "" {
			t.Errorf("%#x is %+v", off, got)
		}
		deepest = max(deepest, len(got))
	}
	if deepest != 2 {
		t.Errorf("no inlined call in C")
	}
}

// Tables are foreign bytes: look-ups end and give names or none.
func FuzzTables(f *testing.F) {
	seed := encodeTables(tables{functions: encodeFunctions([]span{{1, 2, "a"}}), index: indexTable("123456789012"),
		units: map[uint32]unitTable{1: unitTable("123")}, sources: []debugSource{{"/a", "b"}}})
	f.Add(seed, uint32(1))
	f.Fuzz(func(t *testing.T, data []byte, off uint32) {
		functionsTable(data).lookup(off)
		indexTable(data).lookup(off)
		if frames, named := unitTable(data).frames(off); named && len(frames) == 0 || len(frames) > maxInlined {
			t.Fatalf("%d frames, named %v", len(frames), named)
		}
		if tables, ok := decodeTables(data); ok {
			once := encodeTables(tables)
			again, ok := decodeTables(once)
			if !ok || !bytes.Equal(encodeTables(again), once) {
				t.Fatalf("%+v became %+v", tables, again)
			}
		}
	})
}
