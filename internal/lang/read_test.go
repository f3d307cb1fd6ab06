package lang

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"atys.dev/atys/internal/binfile"
)

// noted is a runtime's file that counts how often it is opened.
func noted(t *testing.T, l library, notes *Notes) (m Mapped, opened *int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "librun.so")
	if err := os.WriteFile(path, l.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	opened = new(int)
	return Mapped{Path: path, Notes: notes, Open: func() (*os.File, error) {
		*opened++
		return os.Open(path)
	}}, opened
}

type addresses struct{ first uint64 }

func addressesOf(f *binfile.File) (addresses, error) {
	first, err := Exported(f, "first")
	return addresses{first}, err
}

// What a file told is not read again; without notes it is.
func TestNoted(t *testing.T) {
	for name, c := range map[string]struct {
		notes *Notes
		want  int
	}{"kept": {&Notes{}, 1}, "not kept": {nil, 4}} {
		m, opened := noted(t, exporting("", "first"), c.notes)
		var all sync.WaitGroup
		for range 3 {
			if c.notes == nil { // counting is for one at a time
				all.Wait()
			}
			all.Go(func() {
				if told, err := Noted(m, addressesOf); err != nil || told.first == 0 {
					t.Errorf("%s: %+v, %v", name, told, err)
				}
			})
		}
		all.Wait()
		if told, err := Noted(m, addressesOf); err != nil || told.first == 0 || *opened != c.want {
			t.Errorf("%s: %+v, %v, opened %d times, want %d", name, told, err, *opened, c.want)
		}
	}
}

// A file of two runtimes tells each of them its own.
func TestNotedTwice(t *testing.T) {
	type other struct{ size int64 }
	m, opened := noted(t, exporting("", "first"), &Notes{})
	for range 2 {
		if told, err := Noted(m, addressesOf); err != nil || told.first == 0 {
			t.Errorf("%+v, %v", told, err)
		}
		if told, err := Noted(m, func(f *binfile.File) (other, error) { return other{f.Size()}, nil }); err != nil || told.size == 0 {
			t.Errorf("%+v, %v", told, err)
		}
	}
	if *opened != 2 {
		t.Errorf("opened %d times", *opened)
	}
}

// What a file does not tell it never will; that it could not be read may pass.
func TestNotedNever(t *testing.T) {
	m, opened := noted(t, exporting(""), &Notes{})
	for range 3 {
		if _, err := Noted(m, addressesOf); !errors.Is(err, ErrNever) || !strings.Contains(err.Error(), "first") {
			t.Errorf("a symbol that is missing: %v", err)
		}
	}
	if *opened != 1 {
		t.Errorf("opened %d times", *opened)
	}
	m, _ = noted(t, exporting("", "first"), &Notes{})
	unreadable := &fs.PathError{Op: "read", Path: m.Path, Err: errors.New("input/output error")}
	if _, err := Noted(m, func(*binfile.File) (addresses, error) { return addresses{}, fmt.Errorf("read it: %w", unreadable) }); err == nil || errors.Is(err, ErrNever) {
		t.Errorf("a read that failed: %v", err)
	}
	if told, err := Noted(m, addressesOf); err != nil || told.first == 0 {
		t.Errorf("after that: %+v, %v", told, err)
	}
	open := m.Open
	m, _ = noted(t, exporting("", "first"), &Notes{})
	m.Open = func() (*os.File, error) { return nil, os.ErrNotExist }
	if _, err := Noted(m, addressesOf); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNever) {
		t.Errorf("a file that is not there: %v", err)
	}
	m.Open = open
	if _, err := Noted(m, addressesOf); err != nil {
		t.Errorf("now that it is: %v", err)
	}
}

type walked struct{ bias uint64 }

func (walked) Parameters() any { return nil }

// Read says which runtime in which file it could not read.
func TestRead(t *testing.T) {
	m, _ := noted(t, exporting("", "first"), &Notes{})
	m.Bias = 1 << 20
	ofProcess := func(m Mapped, a addresses) (Walked, error) { return walked{m.Bias + a.first}, nil }
	if got, err := Read(m, "Algol", addressesOf, ofProcess); err != nil || got.(walked).bias <= 1<<20 {
		t.Errorf("%+v, %v", got, err)
	}
	starting := errors.New("it is still starting")
	empty, _ := noted(t, exporting(""), &Notes{})
	for name, c := range map[string]struct {
		m         Mapped
		ofProcess func(Mapped, addresses) (Walked, error)
		never     bool
	}{
		"first":    {empty, ofProcess, true},
		"starting": {m, func(Mapped, addresses) (Walked, error) { return nil, starting }, false},
		"gone":     {m, func(Mapped, addresses) (Walked, error) { return nil, Never(errors.New("gone")) }, true},
	} {
		got, err := Read(c.m, "Algol", addressesOf, c.ofProcess)
		if got != nil || err == nil || errors.Is(err, ErrNever) != c.never {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		for _, part := range []string{name, "Algol", c.m.Path} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

func TestNever(t *testing.T) {
	if err := Never(nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if err := Never(fmt.Errorf("map it: %w", os.ErrExist)); !errors.Is(err, ErrNever) || !errors.Is(err, os.ErrExist) || err.Error() != "map it: file already exists" {
		t.Errorf("%v", err)
	}
}
