package diskcache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t testing.TB, dir string, o Options) *Cache {
	t.Helper()
	c, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// get is a copy of an entry's content; nil: it misses.
func get(c *Cache, kind Kind, key Key) []byte {
	e, ok := c.Get(kind, key)
	if !ok {
		return nil
	}
	defer e.Close()
	return bytes.Clone(e.Content)
}

func put(t testing.TB, c *Cache, key Key, content string) {
	t.Helper()
	if err := c.Put(Rows(), key, []byte(content[:len(content)/2]), []byte(content[len(content)/2:])); err != nil {
		t.Fatal(err)
	}
}

// entry is the file of the only entry there is.
func entry(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.rows"))
	if err != nil || len(files) != 1 {
		t.Fatalf("entries: %q, %v", files, err)
	}
	return files[0]
}

func TestEntriesComeBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "cache")
	c := open(t, dir, Options{})
	if got := get(c, Rows(), KeyOf("a")); got != nil {
		t.Errorf("an empty cache has %q", got)
	}
	put(t, c, KeyOf("a"), "first")
	put(t, c, KeyOf("b"), "second")
	put(t, c, KeyOf("a"), "third")
	for _, c := range []*Cache{c, open(t, dir, Options{})} {
		if a, b := get(c, Rows(), KeyOf("a")), get(c, Rows(), KeyOf("b")); string(a) != "third" || string(b) != "second" {
			t.Errorf("got %q and %q", a, b)
		}
		if got := get(c, Names(), KeyOf("a")); got != nil {
			t.Errorf("as another kind it is %q", got)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made as %v, %v", info.Mode(), err)
	}
	if KeyOf("a", "bc") == KeyOf("ab", "c") {
		t.Error("two keys are one")
	}
}

func TestNilCacheKeepsNothing(t *testing.T) {
	var c *Cache
	if err := errors.Join(c.Put(Rows(), KeyOf("a"), nil), c.Close()); err != nil {
		t.Error(err)
	}
	if _, ok := c.Get(Rows(), KeyOf("a")); ok || c.Path() != "" || c.Stats() != (Stats{}) {
		t.Error("there is something")
	}
}

// What is damaged misses, is counted, and is replaced by the next write.
func TestDamagedEntries(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, Options{})
	key := KeyOf("a")
	put(t, c, key, strings.Repeat("content ", 100))
	path := entry(t, dir)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		data := bytes.Clone(whole)
		data[at] ^= 0x10
		return data
	}
	damage := map[string][]byte{"cut": whole[:len(whole)/2], "empty": nil, "header alone": whole[:headerSize], "half a header": whole[:headerSize/2],
		"longer": append(bytes.Clone(whole), 0), "another version": flipped(8), "another kind": flipped(12)}
	for at := range whole {
		if at < 20 || at >= 24 { // of which nothing is told yet
			damage[fmt.Sprintf("flipped at %d", at)] = flipped(at)
		}
	}
	for name, data := range damage {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		before := c.Stats()
		if got := get(c, Rows(), key); got != nil {
			t.Errorf("%s: got %q", name, got)
		}
		if after := c.Stats(); after.Damaged != before.Damaged+1 || after.Misses != before.Misses+1 {
			t.Errorf("%s: counted as %+v, was %+v", name, after, before)
		}
		put(t, c, key, "replaced")
		if got := get(c, Rows(), key); string(got) != "replaced" {
			t.Errorf("%s: then %q", name, got)
		}
	}
}

// An entry that was renamed is not another one.
func TestEntryOfAnotherKey(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, Options{})
	put(t, c, KeyOf("a"), "of a")
	if err := os.Rename(entry(t, dir), filepath.Join(dir, KeyOf("b").name(Rows()))); err != nil {
		t.Fatal(err)
	}
	if got := get(c, Rows(), KeyOf("b")); got != nil {
		t.Errorf("got %q", got)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("files of other users take root")
	}
}

const nobody = 65534

// A directory in which others can decide what we read is refused, and told of.
func TestRefusedDirectories(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T, path string) error
		says string
		root bool
	}{
		{name: "a link", make: func(t *testing.T, path string) error { return os.Symlink(t.TempDir(), path) }, says: "a link or a file"},
		{name: "a file", make: func(_ *testing.T, path string) error { return os.WriteFile(path, nil, 0o600) }, says: "a link or a file"},
		{name: "of another user", root: true, says: "belongs to user 65534", make: func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, nobody, nobody))
		}},
		{name: "of a group", says: "others may write", make: func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o770))
		}},
		{name: "of all", says: "others may write", make: func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777|fs.ModeSticky))
		}},
		{name: "missing, below another user's", root: true, says: "is of user 65534", make: func(_ *testing.T, path string) error {
			return os.Chown(filepath.Dir(path), nobody, nobody)
		}},
		{name: "missing, below one of all", says: "others may write", make: func(_ *testing.T, path string) error {
			return os.Chmod(filepath.Dir(path), 0o777)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.root {
				needRoot(t)
			}
			path := filepath.Join(t.TempDir(), "cache")
			if err := tc.make(t, path); err != nil {
				t.Fatal(err)
			}
			c, err := Open(path, Options{})
			if err == nil {
				c.Close()
				t.Fatal("it is used")
			}
			for _, want := range []string{strconv.Quote(path), tc.says, "XDG_CACHE_HOME"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %s", err, want)
				}
			}
			if c := OpenIfPossible(path, Options{}); c != nil {
				t.Error("it is used if possible")
			}
		})
	}
}

// Files that are not ours alone are not read, and replaced.
func TestForeignFiles(t *testing.T) {
	for name, change := range map[string]func(path, dir string) error{
		"of another user":  func(path, _ string) error { return os.Chown(path, nobody, nobody) },
		"others may write": func(path, _ string) error { return os.Chmod(path, 0o666) },
		"a link to a good": func(path, dir string) error {
			return errors.Join(os.Rename(path, dir+"/x"), os.Symlink(dir+"/x", path))
		},
		"a pipe":             func(path, _ string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"a directory within": func(path, _ string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "of another user" {
				needRoot(t)
			}
			dir := t.TempDir()
			c := open(t, dir, Options{})
			put(t, c, KeyOf("a"), "content")
			if err := change(entry(t, dir), dir); err != nil {
				t.Fatal(err)
			}
			if got := get(c, Rows(), KeyOf("a")); got != nil || c.Stats().Damaged != 1 {
				t.Errorf("got %q, %+v", got, c.Stats())
			}
			if name == "a directory within" {
				return // a rename does not replace it: that entry misses until somebody removes it
			}
			put(t, c, KeyOf("a"), "again")
			if got := get(c, Rows(), KeyOf("a")); string(got) != "again" {
				t.Errorf("then %q", got)
			}
		})
	}
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func usage(t *testing.T, dir string) (total int64, names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += blocks(info.Size())
		names = append(names, e.Name())
	}
	return total, names
}

// The limit holds, what was used last stays, and what is not ours stays whatever
// its age and size.
func TestEviction(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "thesis.tex")
	if err := errors.Join(os.WriteFile(foreign, make([]byte, 1<<20), 0o600), os.Chtimes(foreign, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	leftover, fresh := filepath.Join(dir, ".new-1"), filepath.Join(dir, ".new-2")
	if err := errors.Join(os.WriteFile(leftover, nil, 0o600), os.Chtimes(leftover, time.Unix(1, 0), time.Unix(1, 0)), os.WriteFile(fresh, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	const limit = 100_000
	now := &clock{at: time.Now().Add(-100 * time.Hour)} // each file is written as the newest
	c := open(t, dir, Options{Limit: limit, Now: now.now})
	for i := range 50 {
		put(t, c, KeyOf(strconv.Itoa(i)), strings.Repeat("x", 5000))
		file := filepath.Join(dir, KeyOf(strconv.Itoa(i)).name(Rows()))
		if err := os.Chtimes(file, now.now(), now.now()); err != nil {
			t.Fatal(err)
		}
		now.pass(time.Hour)
		if get(c, Rows(), KeyOf("0")) == nil {
			t.Fatalf("the entry in use is gone after %d", i)
		}
		if total, _ := usage(t, dir); total > limit+1<<20 {
			t.Fatalf("%d bytes after %d", total, i)
		}
	}
	if get(c, Rows(), KeyOf("1")) != nil || get(c, Rows(), KeyOf("49")) == nil {
		t.Error("not the oldest were evicted")
	}
	if s := c.Stats(); s.Evicted == 0 || s.Bytes > limit {
		t.Errorf("%+v", s)
	}
	for file, want := range map[string]bool{foreign: true, leftover: false, fresh: true} {
		if _, err := os.Lstat(file); (err == nil) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := c.Put(Rows(), KeyOf("large"), make([]byte, limit)); err != nil || get(c, Rows(), KeyOf("large")) != nil {
		t.Errorf("an entry as large as all: %v", err)
	}
}

// A directory that is linked to, full of somebody's files, loses none of them.
func TestLinkedFolderIsLeftAlone(t *testing.T) {
	foreign := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(foreign, fmt.Sprint("photo", i)), make([]byte, 10_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "symbols")
	if err := os.Symlink(foreign, link); err != nil {
		t.Fatal(err)
	}
	c := OpenIfPossible(link, Options{Limit: 1000})
	if err := c.Put(Rows(), KeyOf("a"), make([]byte, 400)); err != nil {
		t.Error(err)
	}
	// The folder itself, as of somebody who names it.
	own := open(t, foreign, Options{Limit: 1000})
	put(t, own, KeyOf("a"), "content")
	own.evict()
	if _, names := usage(t, foreign); len(names) < 20 {
		t.Errorf("left: %q", names)
	}
}

// A disk that is full costs entries and one line of the log, nothing else.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var log bytes.Buffer
	now := &clock{at: time.Now()}
	c := open(t, dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Now: now.now})
	put(t, c, KeyOf("small"), "content")
	for i := range 10 {
		if err := c.Put(Rows(), KeyOf("large", strconv.Itoa(i)), make([]byte, 100_000)); err == nil {
			t.Fatal("it has room")
		}
		if i%2 == 0 {
			now.pass(retryAfter)
		}
	}
	if _, names := usage(t, dir); len(names) != 1 {
		t.Errorf("left: %q", names)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), dir) {
		t.Errorf("%d warnings: %s", n, &log)
	}
	if got := get(c, Rows(), KeyOf("small")); string(got) != "content" {
		t.Errorf("what was there is %q", got)
	}
	now.pass(retryAfter)
	put(t, c, KeyOf("next"), "fits") // there is room for it
}

// TestSharer is the other process of TestSharedByProcesses.
func TestSharer(t *testing.T) {
	dir := os.Getenv("ATYS_CACHE")
	if dir == "" {
		t.Skip("it is another test's")
	}
	share(t, open(t, dir, Options{Limit: sharedLimit}))
}

const sharedLimit = 200_000

// share reads and writes entries that others read and write as well, in far less
// room than all of them take.
func share(t *testing.T, c *Cache) {
	for i := range 2000 {
		n := i * 7 % 100
		want := strings.Repeat(strconv.Itoa(n)+" ", 2000)
		if got := get(c, Rows(), KeyOf(strconv.Itoa(n))); got != nil && string(got) != want {
			t.Fatalf("entry %d is %.20q", n, got)
		}
		put(t, c, KeyOf(strconv.Itoa(n)), want)
	}
	if s := c.Stats(); s.Damaged != 0 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSharedByProcesses(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(self, "-test.run=^TestSharer$", "-test.v")
	other.Env = append(os.Environ(), "ATYS_CACHE="+dir)
	var out bytes.Buffer
	other.Stdout, other.Stderr = &out, &out
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, Options{Limit: sharedLimit})
	share(t, c)
	if err := other.Wait(); err != nil || strings.Contains(out.String(), "SKIP") {
		t.Errorf("the other one: %v\n%s", err, &out)
	}
	c.evict()
	if total, _ := usage(t, dir); total > sharedLimit {
		t.Errorf("%d bytes", total)
	}
}

// aged is a file whose last change was long enough ago to be told from the next.
func aged(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	age(t, path)
	return path
}

func age(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := Stamp(f); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// contentOf asks for a file's content, and tells whether it had to be read.
func contentOf(t *testing.T, c *Cache, path string) (content Content, read bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err = c.Content(f, "all", func() ([sha256.Size]byte, error) {
		read = true
		data, err := os.ReadFile(path)
		return sha256.Sum256(data), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return content, read
}

// A file is read once, also by the next process, until it changes, whatever its
// times and size say then.
func TestContentIsRemembered(t *testing.T) {
	dir := t.TempDir()
	path := aged(t, "content")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, Options{})
	first, read := contentOf(t, c, path)
	if !read || first == "" {
		t.Fatalf("%q, read %v", first, read)
	}
	for _, c := range []*Cache{c, open(t, dir, Options{})} {
		if again, read := contentOf(t, c, path); read || again != first {
			t.Errorf("%q, read %v", again, read)
		}
	}
	if err := errors.Join(os.WriteFile(path, []byte("another"), 0o644), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if changed, read := contentOf(t, c, path); !read || changed == first {
		t.Errorf("after a change %q, read %v", changed, read)
	}
	if copied, _ := contentOf(t, c, aged(t, "content")); copied != first {
		t.Error("a copy is another file")
	}
}

// What was made of one user's file is not for another user's, nor for any file
// but itself where others can write to it: they could have changed it meanwhile.
func TestContentIsOfItsOwner(t *testing.T) {
	needRoot(t)
	c := open(t, t.TempDir(), Options{})
	mine, _ := contentOf(t, c, aged(t, "content"))
	seen := map[Content]string{mine: "ours"}
	for name, change := range map[string]func(path string) error{
		"another user's":             func(path string) error { return os.Chown(path, nobody, nobody) },
		"one that all write":         func(path string) error { return os.Chmod(path, 0o666) },
		"a second that all write":    func(path string) error { return os.Chmod(path, 0o666) },
		"one that a group can write": func(path string) error { return os.Chmod(path, 0o664) },
	} {
		path := aged(t, "content")
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		age(t, path)
		got, _ := contentOf(t, c, path)
		if before, ok := seen[got]; ok {
			t.Errorf("%s is taken for %s", name, before)
		}
		seen[got] = name
	}
}

// A file that changes while it is hashed has no content.
func TestChangedWhileRead(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	path := aged(t, "content")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = c.Content(f, "all", func() (sum [sha256.Size]byte, err error) {
		return sum, os.WriteFile(path, []byte("changed"), 0o644)
	})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	age(t, path)
	content, _ := contentOf(t, c, path)
	if !c.Unchanged(f, "all", content) {
		t.Error("it is changed")
	}
	if err := os.WriteFile(path, []byte("changed again"), 0o644); err != nil {
		t.Fatal(err)
	}
	if c.Unchanged(f, "all", content) {
		t.Error("it is unchanged")
	}
}

// A file that was changed a moment ago may be changed again at the same time, as
// file systems count: it is read each time.
func TestFreshFileIsNotRemembered(t *testing.T) {
	path := aged(t, "content")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	now := &clock{at: info.ModTime().Add(tick / 2)}
	c := open(t, t.TempDir(), Options{Now: now.now})
	for range 2 {
		if _, read := contentOf(t, c, path); !read {
			t.Error("it is remembered")
		}
	}
	now.pass(time.Hour)
	contentOf(t, c, path)
	if _, read := contentOf(t, c, path); read {
		t.Error("it is never remembered")
	}
}
