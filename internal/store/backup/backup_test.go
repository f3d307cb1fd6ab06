package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// source makes a store of some files, and profiles of two tenants.
func source(t *testing.T) Source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"store/MANIFEST-000001": "manifest", "store/000004.sst": strings.Repeat("table", 1000), "store/000005.log": "", "store/LOCK": "",
		"profiles/default/shells.json": "{}", "profiles/other/all.json": "{ }", "profiles/other/.new-1": "half",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Source{Store: filepath.Join(dir, Store), Profiles: filepath.Join(dir, Profiles), Made: time.Unix(1e9, 0)}
}

var kept = map[string]int64{"store/MANIFEST-000001": 8, "store/000004.sst": 5000, "store/000005.log": 0, "profiles/default/shells.json": 2, "profiles/other/all.json": 3}

// written is a backup as it is sent.
func written(t testing.TB, s Source) []byte {
	t.Helper()
	var sent bytes.Buffer
	if err := Write(t.Context(), &sent, s); err != nil {
		t.Fatal(err)
	}
	return sent.Bytes()
}

func TestSent(t *testing.T) {
	dir := t.TempDir()
	c, err := Unpack(bytes.NewReader(written(t, source(t))), dir)
	if err != nil || !maps.Equal(c.Files, kept) {
		t.Fatalf("unpacked are %v, %v", c, err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("it passes as a backup before it is finished: %v", err)
	}
	if err := Finish(dir, c); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(dir); err != nil || !maps.Equal(again.Files, kept) || !again.Made.Equal(time.Unix(1e9, 0)) {
		t.Errorf("it is %v, %v", again, err)
	}
	copied := t.TempDir()
	if c, err := Copy(t.Context(), copied, Source{Store: filepath.Join(dir, Store), Profiles: filepath.Join(dir, Profiles)}, false); err != nil || !maps.Equal(c.Files, kept) {
		t.Errorf("copied are %v, %v", c, err)
	}
	if err := os.Remove(filepath.Join(dir, "store/000005.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that lacks a file passes: %v", err)
	}
}

// TestInterrupted cuts a backup off at every place: it is never taken for whole.
func TestInterrupted(t *testing.T) {
	sent := written(t, source(t))
	whole := bytes.LastIndex(sent, []byte("}")) + 1 // what follows is padding
	for cut := 0; cut < whole; cut += 97 {
		dir := t.TempDir()
		if _, err := Unpack(bytes.NewReader(sent[:cut]), dir); err == nil {
			t.Fatalf("%d bytes of %d are taken for a backup", cut, len(sent))
		}
		if _, err := Read(dir); err == nil {
			t.Fatalf("%d bytes of %d are left as a backup", cut, len(sent))
		}
	}
	failed := errors.New("cut off")
	if _, err := Unpack(io.MultiReader(bytes.NewReader(sent), failing{failed}), t.TempDir()); !errors.Is(err, failed) {
		t.Errorf("the sender failed at the very end: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// entry is one of a tar that a stranger has made.
type entry struct {
	name, text, link string
	kind             byte
}

// archived is a tar of entries, the last of which says what there is.
func archived(t *testing.T, entries []entry, files map[string]int64) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(e entry) {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Size: int64(len(e.text)), Mode: 0o777}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := errors.Join(w.WriteHeader(h), ignore(w.Write([]byte(e.text)))); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		add(e)
	}
	data, err := json.Marshal(Contents{Format: format, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	add(entry{name: contentsFile, text: string(data)})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func ignore(_ int, err error) error { return err }

// TestStrangers unpacks what no server sends: nothing is written elsewhere.
func TestStrangers(t *testing.T) {
	for name, entries := range map[string][]entry{
		"elsewhere":           {{name: "../escaped", text: "x"}},
		"from the root":       {{name: "/tmp/escaped", text: "x"}},
		"up from the store":   {{name: "store/../../escaped", text: "x"}},
		"deep":                {{name: "store/a/b", text: "x"}},
		"a backslash":         {{name: `store/..\escaped`, text: "x"}},
		"hidden":              {{name: "store/.escaped", text: "x"}},
		"another directory":   {{name: "operator.token", text: "x"}},
		"a link":              {{name: "store/link", link: "/etc/passwd", kind: tar.TypeSymlink}},
		"a hard link":         {{name: "store/link", link: "/etc/passwd", kind: tar.TypeLink}},
		"through a link":      {{name: "store", link: "/tmp", kind: tar.TypeSymlink}, {name: "store/escaped", text: "x"}},
		"a device":            {{name: "store/null", kind: tar.TypeChar}},
		"a directory":         {{name: "store/dir", kind: tar.TypeDir}},
		"twice":               {{name: "store/a", text: "x"}, {name: "store/a", text: "y"}},
		"one that is no file": {{name: "store/a", text: "x"}, {name: "profiles/t/a", text: "x"}, {name: "profiles/t", text: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "in", "it")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			files := map[string]int64{}
			for _, e := range entries {
				files[e.name] = int64(len(e.text))
			}
			if c, err := Unpack(bytes.NewReader(archived(t, entries, files)), dir); err == nil {
				t.Errorf("it is taken: %v", c)
			}
			for _, elsewhere := range []string{filepath.Join(dir, "../escaped"), filepath.Join(dir, "../../escaped"), "/tmp/escaped"} {
				if _, err := os.Lstat(elsewhere); err == nil {
					t.Errorf("it wrote %s", elsewhere)
				}
			}
		})
	}
	for name, files := range map[string]map[string]int64{
		"it lacks a file": {"store/a": 1, "store/b": 1}, "it has another": {}, "of another length": {"store/a": 2}, "it names others'": {"store/a": 1, "../a": 1},
	} {
		if _, err := Unpack(bytes.NewReader(archived(t, []entry{{name: "store/a", text: "x"}}, files)), t.TempDir()); err == nil {
			t.Errorf("%s, and it is taken", name)
		}
	}
}

// FuzzUnpack holds that what is taken has the files that it names, and that
// nothing is written beside.
func FuzzUnpack(f *testing.F) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range [][2]string{{"store/a", "x"}, {contentsFile, `{"format":1,"files":{"store/a":1}}`}} {
		if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e[0], Size: int64(len(e[1]))}), ignore(w.Write([]byte(e[1])))); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, sent []byte) {
		beside := t.TempDir()
		dir := filepath.Join(beside, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c, err := Unpack(bytes.NewReader(sent), dir)
		if entries, readErr := os.ReadDir(beside); readErr != nil || len(entries) != 1 {
			t.Fatalf("beside it are %v, %v", entries, readErr)
		}
		if err != nil {
			return
		}
		if err := Finish(dir, c); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); err != nil {
			t.Errorf("it is taken, and then no backup: %v", err)
		}
	})
}

// TestRelative finishes a backup in a directory that is named from where this runs.
func TestRelative(t *testing.T) {
	from := source(t)
	t.Chdir(t.TempDir())
	for _, dir := range []string{"a", "./b", "c/../d", "e/", "."} {
		if err := errors.Join(os.MkdirAll("c", 0o700), os.MkdirAll(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		c, err := Copy(t.Context(), dir, from, false)
		if err == nil {
			err = Finish(dir, c)
		}
		if err != nil {
			t.Fatalf("%q: %v", dir, err)
		}
		if got, err := Read(dir); err != nil || !maps.Equal(got.Files, kept) {
			t.Errorf("%q: it is %v, %v", dir, got, err)
		}
	}
}

// TestCopyInterrupted copies when nobody waits for it any more.
func TestCopyInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Copy(ctx, t.TempDir(), source(t), false); !errors.Is(err, context.Canceled) {
		t.Errorf("it gives %v", err)
	}
	if _, err := io.Copy(io.Discard, interruptible{ctx, strings.NewReader("large")}); !errors.Is(err, context.Canceled) {
		t.Errorf("in the middle of a file: %v", err)
	}
}
