package symbol

import (
	"os"
	"path/filepath"
	"testing"

	"atys.dev/atys/internal/diskcache"
)

// impostors compiles two programs with one build-id: each has a function at the
// same place, called differently; and a third with the first one's code, and with
// other symbols.
func impostors(t *testing.T) (dir, id string) {
	t.Helper()
	dir = t.TempDir()
	shell(t, dir, `echo '__attribute__((noinline)) int pay(int x) { return x * 31 + 1; } int main(int c, char **v) { return pay(c); }' > p.c
gcc -g -O1 -Wl,--build-id=0x1122334455 -o real p.c
sed 's/pay/evil/; s/pay/evil/' p.c > q.c && gcc -g -O1 -Wl,--build-id=0x1122334455 -o other q.c
objcopy --redefine-sym pay=evil real renamed && cp real copied && cp real strangers`)
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "strangers"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"real", "other", "renamed", "copied", "strangers"} {
		age(t, filepath.Join(dir, name))
	}
	return dir, buildID(t, filepath.Join(dir, "real"))
}

// leaf is how a file's function at the place of another file's is called.
func leaf(t *testing.T, r *Resolver, id string, off uint64) string {
	frames := r.Resolve(t.Context(), native(id, off))
	return frames[len(frames)-1].Function
}

// Whoever runs a program with the build-id of another first decides on nothing:
// the other one is named by what it says itself.
func TestNamesOfCopiedBuildID(t *testing.T) {
	dir, id := impostors(t)
	off := offsetOf(t, filepath.Join(dir, "real"), "pay")
	if other := offsetOf(t, filepath.Join(dir, "other"), "evil"); other != off {
		t.Fatalf("the functions are at %#x and %#x", off, other)
	}
	for _, impostor := range []string{"other", "renamed"} {
		cache := filepath.Join(t.TempDir(), "cache")
		for range 2 { // the second time all of it is on disk
			for _, tc := range []struct{ file, want string }{{impostor, "evil"}, {"real", "pay"}} {
				r := resolverOf(t, Options{Cache: diskCache(t, cache), DebugDirs: []string{dir}}, filepath.Join(dir, tc.file))
				if got := leaf(t, r, id, off); got != tc.want {
					t.Errorf("after %s: %s is called %q, want %q", impostor, tc.file, got, tc.want)
				}
				r.Close()
			}
		}
	}
}

// A copy of the same owner is named by what is kept of the first, a copy that
// somebody else can change is not.
func TestNamesOfCopies(t *testing.T) {
	dir, id := impostors(t)
	off := offsetOf(t, filepath.Join(dir, "real"), "pay")
	cache := filepath.Join(t.TempDir(), "cache")
	for _, tc := range []struct {
		file   string
		mapped bool
	}{{"real", false}, {"copied", true}, {"strangers", os.Geteuid() != 0}} {
		r := resolverOf(t, Options{Cache: diskCache(t, cache), DebugDirs: []string{dir}}, filepath.Join(dir, tc.file))
		if got := leaf(t, r, id, off); got != "pay" {
			t.Errorf("%s: %q", tc.file, got)
		}
		if m := r.modules[id]; (m.tables.mapped != nil) != tc.mapped {
			t.Errorf("%s: what is kept is used: %v", tc.file, m.tables.mapped != nil)
		}
		r.Close()
	}
}

// Within a resolver, a file with other content is not taken for the first one.
func TestReplacedFileIsNotRead(t *testing.T) {
	dir, id := impostors(t)
	off := offsetOf(t, filepath.Join(dir, "real"), "pay")
	path := filepath.Join(dir, "program")
	shell(t, dir, "cp -p real program")
	age(t, path)
	r := resolverOf(t, Options{Cache: diskCache(t, filepath.Join(t.TempDir(), "cache")), DebugDirs: []string{dir}}, path)
	if got := leaf(t, r, id, off); got != "pay" {
		t.Fatalf("got %q", got)
	}
	r.Shed()
	shell(t, dir, "rm program && cp -p other program && rm "+r.loader.cache.disk.Path()+"/*.names")
	r.AddFile(id, path, func() (*os.File, error) { return os.Open(path) })
	r.modules[id].ready = nil
	if got := leaf(t, r, id, off); got == "evil" {
		t.Error("the names are those of another file")
	}
}

// Names are made again when a debug file that they were made from is another one,
// and stay when it is gone.
func TestDebugFileIsReplaced(t *testing.T) {
	dir, id := impostors(t)
	off := offsetOf(t, filepath.Join(dir, "real"), "pay")
	debug := filepath.Join(dir, "debug", ".build-id", id[:2], id[2:]+".debug")
	shell(t, dir, `objcopy --strip-all real stripped && mkdir -p $(dirname "`+debug+`") && objcopy --only-keep-debug real "`+debug+`"`)
	age(t, debug, filepath.Join(dir, "stripped"))
	cache := filepath.Join(t.TempDir(), "cache")
	name := func() (string, bool) {
		r := resolverOf(t, Options{Cache: diskCache(t, cache), DebugDirs: []string{filepath.Join(dir, "debug")}}, filepath.Join(dir, "stripped"))
		defer r.Close()
		got := leaf(t, r, id, off)
		return got, r.modules[id].tables.mapped != nil
	}
	for _, tc := range []struct {
		script, want string
		kept         bool
	}{
		{"true", "pay", false},
		{"true", "pay", true},
		{`objcopy --only-keep-debug renamed "` + debug + `"`, "evil", false},
		{"true", "evil", true},
		{`rm "` + debug + `"`, "evil", true},
	} {
		shell(t, dir, tc.script)
		if _, err := os.Stat(debug); err == nil {
			age(t, debug)
		}
		if got, kept := name(); got != tc.want || kept != tc.kept {
			t.Errorf("after %s: %q, kept %v; want %q, %v", tc.script, got, kept, tc.want, tc.kept)
		}
	}
}

// A cache that keeps nothing changes no name.
func TestWithoutCache(t *testing.T) {
	dir, id := impostors(t)
	link := filepath.Join(t.TempDir(), "cache")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	refused := diskcache.OpenIfPossible(link, diskcache.Options{})
	r := resolverOf(t, Options{Cache: refused, DebugDirs: []string{dir}}, filepath.Join(dir, "real"))
	if got := leaf(t, r, id, offsetOf(t, filepath.Join(dir, "real"), "pay")); got != "pay" {
		t.Errorf("got %q", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
