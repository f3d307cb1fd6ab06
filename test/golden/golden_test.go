package golden

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
)

var update = flag.Bool("update", false, "write what the data of a version holds, where nothing says it yet")

// eachVersion runs a test on the data of each version, of which it gets a copy.
func eachVersion(t *testing.T, archive string, test func(t *testing.T, version, dir string)) {
	t.Helper()
	versions, err := filepath.Glob("testdata/*/" + archive + ".tar.gz")
	if err != nil || len(versions) == 0 {
		t.Fatalf("no version has %s: %v", archive, err)
	}
	for _, file := range versions {
		version := filepath.Dir(file)
		t.Run(filepath.Base(version), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := Unpack(file, dir); err != nil {
				t.Fatal(err)
			}
			test(t, version, dir)
		})
	}
}

// holds compares what is read with what was written. What was written once stays, so
// that -update hides no loss.
func holds(t *testing.T, version, name, got string) {
	t.Helper()
	file := filepath.Join(version, name+".golden")
	want, err := os.ReadFile(file)
	if *update && errors.Is(err, fs.ErrNotExist) {
		want, err = []byte(got), os.WriteFile(file, []byte(got), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference(string(want), got); diff != "" {
		t.Errorf("%s of %s is read as other than was written:\n%s", name, version, diff)
	}
}

// difference lists some lines that one text has and the other has not.
func difference(want, got string) string {
	var out []string
	count := map[string]int{}
	for line := range strings.Lines(want) {
		count[line]++
	}
	for line := range strings.Lines(got) {
		count[line]--
	}
	for _, text := range []string{want, got} {
		for line := range strings.Lines(text) {
			switch n := count[line]; {
			case n > 0:
				out = append(out, "lost:  "+line)
			case n < 0:
				out = append(out, "found: "+line)
			}
			count[line] = 0
		}
	}
	const most = 20
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more\n", len(out)-most))
	}
	return strings.Join(out, "")
}

// open opens a store that was copied.
func open(t *testing.T, dir string) *disk.Store {
	t.Helper()
	s, err := disk.Open(disk.Options{Dir: dir, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	eachVersion(t, Store, func(t *testing.T, version, dir string) {
		s := open(t, filepath.Join(dir, "store"))
		holds(t, version, Store, kept(t, s))
		holds(t, version, "served", served(t, s, filepath.Join(dir, "profiles")))
		if damaged, err := damages(t, s); err != nil || damaged > 0 {
			t.Errorf("%d parts are damaged: %v", damaged, err)
		}
	})
}

// damages counts what a check of the whole store finds.
func damages(t *testing.T, s *disk.Store) (n int, err error) {
	t.Helper()
	err = s.Check(t.Context(), func(problem string) {
		t.Error(problem)
		n++
	})
	return n, err
}

// TestBackup restores one: the store in it is the one that it was made of.
func TestBackup(t *testing.T) {
	eachVersion(t, Backup, func(t *testing.T, version, dir string) {
		in, err := os.Open(filepath.Join(dir, "backup.tar"))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		restored := t.TempDir()
		contents, err := backup.Unpack(in, restored)
		if err == nil {
			err = backup.Finish(restored, contents)
		}
		if err == nil {
			_, err = backup.Read(restored)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, filepath.Join(restored, backup.Store))
		holds(t, version, Store, kept(t, s))
		holds(t, version, "served", served(t, s, filepath.Join(restored, backup.Profiles)))
	})
}

func TestProfiles(t *testing.T) {
	eachVersion(t, Profiles, func(t *testing.T, version, dir string) {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		var all strings.Builder
		for _, file := range files {
			w := readProfile(t, file)
			sum := summary{}
			sum.add(filepath.Base(file), w)
			all.WriteString(sum.String())
			again := filepath.Join(t.TempDir(), "again.pb.gz")
			if err := format.WriteFile(again, format.PProf, w, format.Options{}); err != nil {
				t.Fatal(err)
			}
			rewritten := summary{}
			rewritten.add(filepath.Base(file), readProfile(t, again))
			if diff := difference(sum.String(), rewritten.String()); diff != "" {
				t.Errorf("%s written again:\n%s", filepath.Base(file), diff)
			}
		}
		holds(t, version, Profiles, all.String())
	})
}

func readProfile(t *testing.T, file string) *profile.Window {
	t.Helper()
	w, err := format.Read(file)
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(file), err)
	}
	return w
}
