//go:build docs

package house

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCommands executes the commands of the README and of every guide as
// typed, each document in a copy of the tree of its own: what a document
// needs it must say itself.
func TestCommands(t *testing.T) {
	tree, err := Load(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	documents := 0
	for _, f := range tree.Texts {
		if !HasCommands(f.Path) {
			continue
		}
		blocks := Blocks(f.Path, f.Data)
		run := 0
		for _, b := range blocks {
			if b.Runs() {
				run++
			}
		}
		if run == 0 {
			continue
		}
		documents++
		t.Run(f.Path, func(t *testing.T) {
			dir := t.TempDir()
			copyTree(t, dir)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", Script(blocks))
			cmd.Dir = dir
			cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool {
				return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") // of the make that runs us
			})
			cmd.WaitDelay = 5 * time.Second // a command left in the background may hold the pipe
			start := time.Now()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v after %v\n%s", err, time.Since(start).Round(time.Second), out)
			}
			t.Logf("%d blocks in %v", run, time.Since(start).Round(100*time.Millisecond))
		})
	}
	if documents == 0 {
		t.Error("no document shows a command that is executed")
	}
}

// copyTree copies what belongs to the tree, so that no command finds
// anything a fresh clone would not hold.
func copyTree(t *testing.T, dir string) {
	t.Helper()
	files := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	files.Dir = repository
	tar := exec.Command("tar", "--create", "--null", "--files-from=-", "--ignore-failed-read")
	tar.Dir = repository
	untar := exec.Command("tar", "--extract")
	untar.Dir = dir
	for _, pipe := range [][2]*exec.Cmd{{files, tar}, {tar, untar}} {
		out, err := pipe[0].StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		pipe[1].Stdin = out
	}
	for _, cmd := range []*exec.Cmd{untar, tar, files} {
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range []*exec.Cmd{files, tar, untar} {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("copy the tree: %s: %v", filepath.Base(cmd.Path), err)
		}
	}
}
