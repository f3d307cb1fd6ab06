package unwind

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/proc/lifecycle"
)

// onDisk gives files by the inodes that mappings say.
type onDisk struct {
	noProcesses
	paths map[uint64]string
}

func (o onDisk) Open(_ int, m lifecycle.Mapping) (*os.File, error) { return os.Open(o.paths[m.Inode]) }

// impostors compiles a program, a copy of it, one with other code, one with other
// debug information and a stripped one: all have one build-id.
func impostors(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := exec.Command("sh", "-ec", `echo 'int f(int x) { return x + 1; } int main(void) { return f(1); }' > p.c
gcc -g -O1 -Wl,--build-id=0x11223344 -o real p.c && cp real copied && cp real foreign
echo 'int g(int *p) { return p[1] * 3; } int main(void) { int a[200]; a[1] = 2; return g(a); }' > q.c
gcc -g -O0 -Wl,--build-id=0x11223344 -o other q.c
objcopy --dump-section .debug_str=str real && tr 'a-m' 'n-z' < str > str2 && objcopy --update-section .debug_str=str2 real lying`)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "foreign"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"real", "copied", "foreign", "other", "lying"} {
		age(t, filepath.Join(dir, name))
	}
	return dir
}

// age waits until a change of a file would be seen by its time.
func age(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := diskcache.Stamp(f); err == nil {
			return
		} else if !errors.Is(err, diskcache.ErrChanged) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func tablesIn(t *testing.T, dir string) *diskcache.Cache {
	t.Helper()
	c, err := diskcache.Open(dir, diskcache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A build-id is a hint: whoever copies one gets neither the rows of the file that
// had it first, nor places that are named like that one's. A true copy of the same
// owner has both. So it is with and without tables on disk, and whoever is first.
func TestCopiedBuildID(t *testing.T) {
	dir := impostors(t)
	for _, first := range []string{"real", "other"} {
		for _, keeps := range []bool{false, true} {
			source := onDisk{paths: map[uint64]string{}}
			o := Options{Source: source}
			if keeps {
				o.Tables = tablesIn(t, filepath.Join(t.TempDir(), "cache"))
			}
			u := offline(t, o)
			u.tables.mu.Lock()
			of := map[string]*executable{}
			for i, name := range slices.Compact([]string{first, "real", "other", "copied", "lying", "foreign"}) {
				if of[name] != nil {
					continue
				}
				inode := uint64(100 + i)
				source.paths[inode] = filepath.Join(dir, name)
				of[name] = u.tables.find(1, fileMapping(0x1000, inode, "/"+name))
				if name != first && (of[name].buildID == of[first].buildID) {
					t.Errorf("%s is taken for %s before it was read", name, first)
				}
				u.tables.fill(of[name])
				if !u.published(of[name]) {
					t.Fatalf("%s is not loaded", name)
				}
			}
			real, other := of["real"], of["other"]
			if of[first].buildID != "11223344" {
				t.Errorf("the first is %q", of[first].buildID)
			}
			if real.table == other.table || real.buildID == other.buildID {
				t.Errorf("code of others: tables %p and %p, build-ids %q and %q", real.table, other.table, real.buildID, other.buildID)
			}
			if of["copied"].table != real.table || of["copied"].buildID != real.buildID {
				t.Errorf("a copy: tables %p and %p, build-ids %q and %q", of["copied"].table, real.table, of["copied"].buildID, real.buildID)
			}
			if of["lying"].buildID == real.buildID {
				t.Error("debug information of others is taken for that of the first")
			}
			if os.Geteuid() == 0 && (of["foreign"].table == real.table || of["foreign"].buildID == real.buildID) {
				t.Error("what another user can change meanwhile is taken for ours")
			}
			for name, e := range of {
				if binfile.Unqualified(e.buildID) != "11223344" {
					t.Errorf("%s: %q does not begin with its build-id", name, e.buildID)
				}
			}
			u.tables.mu.Unlock()
		}
	}
}

// Who had a build-id first on this machine has it after a restart as well, whoever
// is found first then.
func TestClaimsOutliveRestarts(t *testing.T) {
	dir, where := impostors(t), filepath.Join(t.TempDir(), "cache")
	for _, order := range [][]string{{"real", "other"}, {"other", "real"}, {"other", "copied", "real"}} {
		source := onDisk{paths: map[uint64]string{}}
		u := offline(t, Options{Source: source, Tables: tablesIn(t, where)})
		u.tables.mu.Lock()
		var all []*executable
		for i, name := range order {
			source.paths[uint64(100+i)] = filepath.Join(dir, name)
			e := u.tables.find(1, fileMapping(0x1000, uint64(100+i), "/"+name))
			u.tables.identify(e)
			all = append(all, e)
		}
		for _, e := range slices.Backward(all) {
			u.tables.fill(e)
		}
		for i, e := range all {
			if plain := e.buildID == "11223344"; plain != (order[i] != "other") {
				t.Errorf("%q: %s is %s", order, order[i], e.buildID)
			}
		}
		u.tables.mu.Unlock()
	}
}

// A table that is kept is the one that was built, also for a copy of the file, and
// another program of ours does not use it.
func TestTablesAreKept(t *testing.T) {
	dir := impostors(t)
	where := filepath.Join(t.TempDir(), "cache")
	k, err := newKeptTables(tablesIn(t, where))
	if err != nil {
		t.Fatal(err)
	}
	build := func(k *keptTables, name string) *builtTable {
		t.Helper()
		handle, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer handle.Close()
		table, err := k.buildTable(handle, k.image(handle))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(table.close)
		return table
	}
	built := build(&k, "real")
	if built.entry != nil {
		t.Fatal("an empty cache has a table")
	}
	next, err := newKeptTables(tablesIn(t, where))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"real", "copied"} {
		kept := build(&next, name)
		if kept.entry == nil || kept.runs != built.runs || !slices.Equal(kept.Rows, built.Rows) || !slices.Equal(kept.Index, built.Index) || kept.Source != built.Source {
			t.Errorf("%s: %d rows of %q, want %d of %q; kept: %v", name, len(kept.Rows), kept.Source, len(built.Rows), built.Source, kept.entry != nil)
		}
	}
	if build(&next, "other").entry != nil {
		t.Error("a file with the same build-id has the table of another")
	}
	next.maker = "another version"
	if build(&next, "real").entry != nil {
		t.Error("the table of another version is used")
	}
}

// A table that is damaged on disk is built again.
func TestDamagedTableIsBuiltAgain(t *testing.T) {
	dir := impostors(t)
	where := filepath.Join(t.TempDir(), "cache")
	k, err := newKeptTables(tablesIn(t, where))
	if err != nil {
		t.Fatal(err)
	}
	handle, err := os.Open(filepath.Join(dir, "real"))
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	image := k.image(handle)
	want, err := k.buildTable(handle, image)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(where, "*.rows"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []bool{false, true} {
		got, err := k.buildTable(handle, image)
		if err != nil {
			t.Fatal(err)
		}
		if (got.entry != nil) != kept || !slices.Equal(got.Rows, want.Rows) {
			t.Errorf("kept %v, want %v; %d rows, want %d", got.entry != nil, kept, len(got.Rows), len(want.Rows))
		}
		got.close()
	}
	// Whole, but no table.
	if err := k.disk.Put(diskcache.Rows(), k.key(image), []byte(strings.Repeat("no table", 10))); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.open(image); ok {
		t.Error("anything is a table")
	}
}
