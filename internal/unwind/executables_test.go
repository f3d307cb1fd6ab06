package unwind

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"atys.dev/atys/internal/lang"
)

// noteworthy is an executable that can be read, in a file of its own.
func noteworthy(t *testing.T, buildID string) *executable {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(path, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	handle, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	return &executable{handle: handle, path: path, buildID: buildID}
}

// Notes last until their file is written to.
func TestNotesOfFile(t *testing.T) {
	e := noteworthy(t, "4711")
	first := e.currentNotes()
	if first == nil || e.currentNotes() != first {
		t.Fatal("nothing is kept")
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(e.path, later, later); err != nil {
		t.Fatal(err)
	}
	second := e.currentNotes()
	if second == nil || second == first {
		t.Error("what the file told before it was written to is kept")
	}
	if err := os.Truncate(e.path, 2); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(e.path, later, later); err != nil {
		t.Fatal(err)
	}
	if e.currentNotes() == second {
		t.Error("what the file told before it was cut is kept")
	}
}

// Copies share what they tell, if a build-id says that they are copies.
func TestCopiesShareNotes(t *testing.T) {
	for buildID, want := range map[string]bool{"4711": true, "go-4711": true, "txt-4711": false} {
		a, b := noteworthy(t, buildID), noteworthy(t, buildID)
		notes := a.currentNotes()
		b.written = lastWrittenOf(t, b)
		b.notes = &lang.Notes{}
		b.shareNotes(a)
		if got := b.currentNotes() == notes; got != want {
			t.Errorf("%s: shared %v, want %v", buildID, got, want)
		}
	}
}

func lastWrittenOf(t *testing.T, e *executable) written {
	t.Helper()
	info, err := e.handle.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return lastWritten(info)
}
