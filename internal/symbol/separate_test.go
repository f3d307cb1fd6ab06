package symbol

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/profile"
)

// Wherever the debug information of a stripped program is kept, the frames are
// those of the program as it was compiled.
func TestSeparateDebugFiles(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	compile(t, whole, "g++ -O2 -g -o $OUT shapes.cc")
	id := buildID(t, whole)
	offsets := offsetsOf(t, whole)
	want := frameNames(t, resolverOf(t, Options{}, whole), id, offsets)

	strip := "objcopy --strip-all "
	for _, tc := range []struct {
		name    string
		tool    string // needed; left out if it is not here
		prepare string // run in a directory of its own, makes $PWD/whole
		options func(dir string) Options
	}{
		{name: "by build-id", prepare: `mkdir -p debug/.build-id/` + id[:2] + `
			objcopy --only-keep-debug $WHOLE debug/.build-id/` + id[:2] + "/" + id[2:] + `.debug
			` + strip + `$WHOLE whole`,
			options: func(dir string) Options { return Options{DebugDirs: []string{filepath.Join(dir, "debug")}} }},
		{name: "by debug link", prepare: `objcopy --only-keep-debug $WHOLE whole.debug
			` + strip + `--add-gnu-debuglink=whole.debug $WHOLE whole`},
		{name: "by debug link in .debug", prepare: `mkdir .debug; objcopy --only-keep-debug $WHOLE .debug/whole.debug
			` + strip + `--add-gnu-debuglink=.debug/whole.debug $WHOLE whole`},
		{name: "by debug link elsewhere", prepare: `mkdir -p debug/$PWD
			objcopy --only-keep-debug $WHOLE debug/$PWD/whole.debug
			` + strip + `--add-gnu-debuglink=debug/$PWD/whole.debug $WHOLE whole`,
			options: func(dir string) Options { return Options{DebugDirs: []string{filepath.Join(dir, "debug")}} }},
		{name: "duplicates removed", tool: "dwz", prepare: "dwz -o whole $WHOLE"},
		{name: "shared with another", tool: "dwz", prepare: `cp $WHOLE whole; cp $WHOLE other
			dwz -m shared -r whole other`},
		{name: "shared and stripped", tool: "dwz", prepare: `mkdir -p debug/.build-id/` + id[:2] + ` debug/.dwz
			cp $WHOLE one; cp $WHOLE other; dwz -m debug/.dwz/shared -M ../../.dwz/shared one other
			objcopy --only-keep-debug one debug/.build-id/` + id[:2] + "/" + id[2:] + `.debug
			` + strip + `$WHOLE whole`,
			options: func(dir string) Options { return Options{DebugDirs: []string{filepath.Join(dir, "debug")}} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := exec.LookPath(tc.tool); tc.tool != "" && err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			shell(t, dir, tc.prepare, "WHOLE="+whole)
			o := Options{DebugDirs: []string{filepath.Join(dir, "none")}}
			if tc.options != nil {
				o = tc.options(dir)
			}
			sameNames(t, frameNames(t, resolverOf(t, o, filepath.Join(dir, "whole")), id, offsets), want)
		})
	}
}

// A debug file that does not belong to the program must not be used, and the
// symbols that Fedora embeds must be.
func TestEmbeddedSymbols(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	compile(t, whole, "g++ -O2 -o $OUT shapes.cc")
	shell(t, dir, `nm -D whole --format=posix --defined-only | awk '{print $1}' | sort > dynamic
		nm whole --format=posix --defined-only | awk '$2 ~ /[tTwWi]/ {print $1}' | sort > all
		comm -13 dynamic all > keep
		objcopy -S --remove-section .comment --keep-symbols=keep whole mini
		xz -9e mini
		objcopy --strip-all --add-section .gnu_debugdata=mini.xz whole stripped`)
	id := buildID(t, whole)
	offsets := offsetsOf(t, whole)
	none := Options{DebugDirs: []string{dir}}
	want := frameNames(t, resolverOf(t, none, whole), id, offsets)
	got := frameNames(t, resolverOf(t, none, filepath.Join(dir, "stripped")), id, offsets)
	sameNames(t, got, want)
	if !slices.Contains(got, "shapes::outer .:0 from 0") {
		t.Error("shapes::outer is not among the names")
	}
}

func TestWrongDebugFileIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	compile(t, filepath.Join(dir, "whole"), "g++ -O2 -g -o $OUT shapes.cc")
	compile(t, filepath.Join(dir, "other"), "g++ -O1 -g -o $OUT shapes.cc")
	id := buildID(t, filepath.Join(dir, "whole"))
	shell(t, dir, `mkdir -p debug/.build-id/`+id[:2]+`
		objcopy --only-keep-debug other debug/.build-id/`+id[:2]+"/"+id[2:]+`.debug
		objcopy --only-keep-debug other other.debug
		objcopy --strip-all --add-gnu-debuglink=other.debug whole stripped
		echo >> other.debug`)
	r := resolverOf(t, Options{DebugDirs: []string{filepath.Join(dir, "debug")}}, filepath.Join(dir, "stripped"))
	for _, name := range frameNames(t, r, id, offsetsOf(t, filepath.Join(dir, "whole"))) {
		if strings.Contains(name, "outer") {
			t.Fatalf("named %q from a file of another program", name)
		}
	}
}

// A program that was replaced on disk while it ran gives no names.
func TestReplacedFileIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	compile(t, file, "g++ -O2 -o $OUT shapes.cc")
	id, offsets := buildID(t, file), offsetsOf(t, file)
	compile(t, file, "g++ -O1 -o $OUT shapes.cc")
	r := New(Options{})
	defer r.Close()
	r.AddFile(id, file, func() (*os.File, error) { return os.Open(file) })
	for _, off := range offsets[:100] {
		l := profile.Location{Kind: profile.KindNative, BuildID: id, Offset: off}
		if got := r.Resolve(t.Context(), l); len(got) != 1 || got[0] != profile.Unnamed(l.Kind, file, off) {
			t.Fatalf("got %v", got)
		}
	}
}

func TestDebuginfod(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	compile(t, whole, "g++ -O2 -g -o $OUT shapes.cc")
	shell(t, dir, "objcopy --only-keep-debug whole debug; objcopy --strip-all whole stripped")
	id, offsets := buildID(t, whole), offsetsOf(t, whole)
	want := frameNames(t, resolverOf(t, Options{}, whole), id, offsets)

	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked++
		if q.URL.Path != "/buildid/"+id+"/debuginfo" {
			http.NotFound(w, q)
			return
		}
		http.ServeFile(w, q, filepath.Join(dir, "debug"))
	}))
	defer server.Close()
	o := Options{DebugDirs: []string{dir}, Debuginfod: []string{server.URL}, Cache: diskCache(t, filepath.Join(dir, "cache"))}
	for range 2 { // the second time from the cache
		r := resolverOf(t, o, filepath.Join(dir, "stripped"))
		sameNames(t, frameNames(t, r, id, offsets), want)
		r.Close()
	}
	if asked != 1 {
		t.Errorf("the server was asked %d times", asked)
	}
}

// TestDownloadBrokenOff: a context that ends while a debug file is downloaded costs the
// names of that moment, not those of later look-ups or starts.
func TestDownloadBrokenOff(t *testing.T) {
	dir := t.TempDir()
	whole, stripped := filepath.Join(dir, "whole"), filepath.Join(dir, "stripped")
	compile(t, whole, "g++ -O2 -g -o $OUT shapes.cc")
	shell(t, dir, "objcopy --only-keep-debug whole debug; objcopy --strip-all whole stripped")
	id, offsets := buildID(t, whole), offsetsOf(t, whole)
	want := frameNames(t, resolverOf(t, Options{}, whole), id, offsets)
	for _, restart := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if ctx.Err() == nil {
				cancel()
				<-q.Context().Done()
				return
			}
			http.ServeFile(w, q, filepath.Join(dir, "debug"))
		}))
		o := Options{DebugDirs: []string{dir}, Debuginfod: []string{server.URL}, Cache: diskCache(t, t.TempDir())}
		r := resolverOf(t, o, stripped)
		for _, off := range offsets {
			r.Resolve(ctx, native(id, off))
		}
		if restart {
			r.Close()
			r = resolverOf(t, o, stripped)
		}
		sameNames(t, frameNames(t, r, id, offsets), want)
		server.Close()
	}
}

func shell(t testing.TB, dir, script string, env ...string) {
	t.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = dir
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func buildID(t testing.TB, file string) string {
	t.Helper()
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.BuildID()
}

// offsetsOf gives some thousand offsets of a program's code.
func offsetsOf(t testing.TB, file string) (offsets []uint64) {
	t.Helper()
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Executable() {
		for off := s.Offset; off < s.Offset+s.Size; off += max(s.Size/3000, 1) {
			offsets = append(offsets, off)
		}
	}
	return offsets
}

// frameNames gives the frames of offsets, a line each.
func frameNames(t *testing.T, r *Resolver, id string, offsets []uint64) (names []string) {
	for _, off := range offsets {
		var frames []string
		for _, f := range r.Resolve(t.Context(), profile.Location{Kind: profile.KindNative, BuildID: id, Offset: off}) {
			name := f.Function
			if offset, ok := strings.CutPrefix(name, filepath.Base(f.Mapping)+"+0x"); ok {
				name = "unnamed " + offset // whatever the copy of the file is called
			}
			frames = append(frames, fmt.Sprintf("%s %s:%d from %d", name, filepath.Base(f.File), f.Line, f.StartLine))
		}
		names = append(names, strings.Join(frames, " < "))
	}
	return names
}

func sameNames(t *testing.T, got, want []string) {
	t.Helper()
	different := 0
	for i := range want {
		if got[i] != want[i] {
			if different++; different <= 5 {
				t.Errorf("got  %s\nwant %s", got[i], want[i])
			}
		}
	}
	if different > 0 {
		t.Errorf("%d of %d names differ", different, len(want))
	}
}
