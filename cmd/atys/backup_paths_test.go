package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
)

// atysIn runs atys in a directory until it ends, and gives its status and what it said.
func atysIn(t *testing.T, dir string, args ...string) (status int, said string) {
	t.Helper()
	self, err := os.Executable() // which is atys, by that name: see TestMain
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // that of a command that hangs
	defer cancel()
	c := exec.CommandContext(ctx, self, args...)
	c.Args[0], c.Dir = "atys", dir
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String()
}

// TestBackUpRelative backs up to names as people type them, and restores from them to such.
func TestBackUpRelative(t *testing.T) {
	data := kept(t)
	for _, name := range []string{"bk", "./bk", "sub/../bk", "sub//bk/", "../there/bk", "sub/./bk"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "there")
			if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
			if status, said := atysIn(t, dir, "store", "backup", name, "--data", data); status != 0 {
				t.Fatalf("backup: %d, %s", status, said)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*", ".*unfinished*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*unfinished*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if _, err := backup.Read(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
			if status, said := atysIn(t, dir, "store", "restore", name, "--data", "restored/../restored/here/"); status != 0 {
				t.Fatalf("restore: %d, %s", status, said)
			}
			if err := readStore(filepath.Join(dir, "restored", "here"), func(*disk.Store) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBackUpRefused names what is wrong with a directory, and leaves nothing beside it.
func TestBackUpRefused(t *testing.T) {
	data := kept(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{".": "exists already", "..": "exists already", "./": "exists already", "file": "exists already", "file/": "exists already",
		"": "has no name", "nowhere/bk": "there is no directory nowhere: create it first", "file/bk": "there is no directory file"} {
		if status, said := atysIn(t, dir, "store", "backup", name, "--data", data); status == 0 || !strings.Contains(said, want) {
			t.Errorf("%q: %d, %s", name, status, said)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// TestBackUpSignalled interrupts a backup while its server sends: the first signal ends it,
// and it leaves nothing behind. SIGHUP comes when a terminal is closed.
func TestBackUpSignalled(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sent.String(), func(t *testing.T) { backUpSignalled(t, sent) })
	}
}

func backUpSignalled(t *testing.T, sent syscall.Signal) {
	asked, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != server.BackupPath {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the reader waits for the rest
		close(asked)
		<-release
	}))
	defer s.Close()
	defer close(release)
	dir := t.TempDir()
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, sent) // a child of a test under nohup would ignore SIGHUP, as it should
	defer signal.Stop(caught)
	p := runs(t, "store", "backup", dir+"/new", "--server", s.URL)
	<-asked
	if status := p.ends(t, sent); status.ExitStatus() != 128+int(sent) {
		t.Errorf("it ends with %v", status)
	}
	if said := p.log(); !strings.Contains(said, "there is no backup: ") || !strings.HasSuffix(said, "interrupted\n") {
		t.Errorf("it says %q", said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// TestRestoreInterrupted restores while a signal has come: nothing is there.
func TestRestoreInterrupted(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "backup"), t.TempDir()
	backedUp(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := restoreStore(ctx, dir, data, false); !errors.Is(err, context.Canceled) {
		t.Errorf("it gives %v", err)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}
