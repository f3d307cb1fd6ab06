package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"atys.dev/atys/internal/proc"
)

// TestProcessesAreLookedAtOnce has a process seen again, replaced by another of
// its number, and ended.
func TestProcessesAreLookedAtOnce(t *testing.T) {
	const pid = 1 << 22 // no process has it
	root := t.TempDir()
	dir := filepath.Join(root, fmt.Sprint(pid))
	begin := func(name string, flags, started int) {
		t.Helper()
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (%s) S 1 1 1 0 -1 %d 0 0 0 0 1 1 0 0 20 0 1 0 %d%s\n", pid, name, flags, started, " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end := func() { // under another name, so that its inode is not used again at once
		if err := os.Rename(dir, filepath.Join(t.TempDir(), "ended")); err != nil {
			t.Fatal(err)
		}
	}
	ids := newIdentities("here", nil)
	ids.fs = proc.FS{Root: root}
	service := func() string {
		labels, ok := ids.lasting(pid, 0)
		if !ok {
			return ""
		}
		return labels["service"]
	}

	if got := service(); got != "" {
		t.Errorf("before it began: %q", got)
	}
	begin("first", 0, 100)
	if got := service(); got != "first" {
		t.Errorf("the first: %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "stat")); err != nil {
		t.Fatal(err)
	}
	if got := service(); got != "first" {
		t.Errorf("the first, which need not be read again: %q", got)
	}
	end()
	if got := service(); got != "" {
		t.Errorf("after its end: %q", got)
	}
	begin("second", 0, 200)
	if got := service(); got != "second" {
		t.Errorf("the second: %q", got)
	}
	end()
	ids.begin()
	if got := ids.target(pid, "late")["service"]; got != "second" {
		t.Errorf("what was sampled, and has ended: %q", got)
	}
	const kernelThread = 0x00200000
	begin("worker", kernelThread, 300)
	for range 2 {
		if got := service(); got != "" {
			t.Errorf("a thread of the kernel lasts: %q", got)
		}
		ids.begin()
		if got := ids.target(pid, "worker")["service"]; got != "kernel" {
			t.Errorf("a thread of the kernel: %q", got)
		}
	}
}
