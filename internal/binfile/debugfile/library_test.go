package debugfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// numbered is a debug file under another build-id.
func numbered(t *testing.T, debug []byte, id string, number byte) []byte {
	t.Helper()
	old, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(old)
	other[0] = number
	return bytes.Replace(debug, old, other, 1)
}

// TestLibraryFull has a library that is full refuse another file, and replace one
// that it has.
func TestLibraryFull(t *testing.T) {
	program, debug := stripped(t)
	id := program.BuildID()
	l := &Library{Dir: t.TempDir(), Bytes: int64(len(debug))}
	for range 2 {
		if k, err := l.Keep(bytes.NewReader(debug)); err != nil || k.BuildID != id || k.Executable {
			t.Fatalf("%+v, %v", k, err)
		}
	}
	for name, content := range map[string][]byte{
		"another": numbered(t, debug, id, 1), "the same that has grown": append(slices.Clone(debug), 0), "one that has no end": make([]byte, 3*len(debug)),
	} {
		if k, err := l.Keep(bytes.NewReader(content)); !errors.Is(err, ErrLibraryFull) {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
	if all, err := l.List(); err != nil || len(all) != 1 || all[0].Bytes != l.Bytes {
		t.Errorf("it has %+v, %v", all, err)
	}
	if left := unplaced(t, l); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if l.underway != 0 {
		t.Errorf("%d bytes are under way, of nothing", l.underway)
	}
}

func unplaced(t *testing.T, l *Library) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(l.Dir, uploadPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// TestLibraryAtOnce has files come at the same time that there is no room for
// together: what is on the disk never exceeds it.
func TestLibraryAtOnce(t *testing.T) {
	program, debug := stripped(t)
	const uploads, room = 8, 3
	l := &Library{Dir: t.TempDir(), Bytes: room * int64(len(debug))}
	begun, finish, ended := make(chan bool), make(chan bool), make(chan error)
	for n := range uploads {
		content := numbered(t, debug, program.BuildID(), byte(n))
		half := len(content) / 2
		go func() {
			told := &telling{begun: begun, finish: finish}
			_, err := l.Keep(io.MultiReader(bytes.NewReader(content[:half]), told, bytes.NewReader(content[half:])))
			ended <- err
		}()
	}
	kept, refused, stuck := 0, 0, 0
	for stuck+refused < uploads {
		select {
		case <-begun:
			stuck++
		case err := <-ended:
			if !errors.Is(err, ErrLibraryFull) {
				t.Error(err)
			}
			refused++
		}
	}
	var bytes int64
	for _, path := range unplaced(t, l) {
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	if bytes == 0 || bytes > l.Bytes {
		t.Errorf("%d bytes lie there of uploads that have begun, and there is room for %d", bytes, l.Bytes)
	}
	close(finish)
	for ; stuck > 0; stuck-- {
		if err := <-ended; err == nil {
			kept++
		} else if !errors.Is(err, ErrLibraryFull) {
			t.Error(err)
		}
	}
	if all, err := l.List(); err != nil || len(all) != kept || kept == 0 || kept > room || l.underway != 0 {
		t.Errorf("%d are there of %d, and %d bytes under way, %v", len(all), kept, l.underway, err)
	}
}

// telling is a stretch of a file that waits, and has no bytes.
type telling struct{ begun, finish chan bool }

func (p *telling) Read([]byte) (int, error) {
	p.begun <- true
	<-p.finish
	return 0, io.EOF
}

// TestLibrarySweep removes what a killed server left, and nothing else.
func TestLibrarySweep(t *testing.T) {
	_, debug := stripped(t)
	l := &Library{Dir: filepath.Join(t.TempDir(), "files"), Bytes: 1 << 30}
	if err := l.Sweep(); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := l.Keep(bytes.NewReader(debug)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.Dir, uploadPrefix+"1"), debug, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Sweep(); err != nil {
		t.Error(err)
	}
	if left := unplaced(t, l); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if all, err := l.List(); err != nil || len(all) != 1 {
		t.Errorf("it has %+v, %v", all, err)
	}
}
