package targets

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
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

// becoming starts a shell that becomes another program, once it is told to.
func becoming(t *testing.T, name string) (pid int, become func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if err := exec.CommandContext(t.Context(), "cp", "/bin/sleep", program).Run(); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", "read _; exec "+program+" 1000")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	})
	return c.Process.Pid, func() {
		if _, err := io.WriteString(in, "now\n"); err != nil {
			t.Error(err)
		}
	}
}

// await asks what a process is until it is told so.
func (ids *identities) await(t *testing.T, pid int, name, want string) profile.Labels {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ids.begin()
		labels, _ := ids.lasting(pid, 0)
		if labels[name] == want {
			return labels
		}
		if time.Since(began) > testwait.Longest(t) {
			t.Fatalf("it is %v, want %s %q", labels, name, want)
		}
	}
}

// TestExec has a start script become the program that it starts.
func TestExec(t *testing.T) {
	const name = "atys-second"
	pid, become := becoming(t, name)
	ids := newIdentities("here", nil)
	before, ok := ids.lasting(pid, 0)
	if !ok || before["service"] == name {
		t.Fatalf("the script is %v", before)
	}
	ids.begin()
	if again := ids.target(pid, "sh"); again.String() != before.String() {
		t.Errorf("it is %v, and was %v", again, before)
	}
	become()
	after := ids.await(t, pid, "service", name)
	if after["executable"] != name {
		t.Errorf("it has become %v", after)
	}
}

// TestGrown has what was first seen as it began be looked at again: a JVM that was
// sampled in its first milliseconds has not said yet what it is.
func TestGrown(t *testing.T) {
	pid, _ := becoming(t, "atys-never")
	ids := newIdentities("here", nil)
	real, ok := ids.lasting(pid, 0)
	if !ok {
		t.Fatal("it is not there")
	}
	id := ids.known[pid]
	program := id.program
	id.labels, id.age = profile.Labels{"service": "beginning"}, 0
	ids.await(t, pid, "service", real["service"])
	if id.age < young && id.program == program { // else it was the fork of a shell when it was met
		t.Errorf("it was looked at again when it was %v old", id.age)
	}
	for _, c := range []struct {
		then, now time.Duration
		want      bool
	}{{0, young / 2, false}, {0, young, true}, {young, 2 * young, false}, {young, grown, true}, {0, grown, true}, {grown, time.Hour, false}} {
		if got := outgrown(c.then, c.now); got != c.want {
			t.Errorf("labels of %v, at %v: %v", c.then, c.now, got)
		}
	}
	if soon, late := trust(8*time.Second), trust(time.Hour); soon != time.Second || late != trustInode {
		t.Errorf("what it is is believed for %v, and of one that has run for an hour for %v", soon, late)
	}
}

// TestEndedWithin has a process end long before its window does: its samples are
// still those of its target.
func TestEndedWithin(t *testing.T) {
	const pid = 1 << 22 // no process has it
	for window, want := range map[time.Duration]string{time.Hour: "shop", 10 * time.Second: "perl"} {
		c := NewCensus("here", nil)
		c.Keep(window)
		c.known[pid] = &identity{labels: profile.Labels{"service": "shop"}, asked: time.Now().Add(-30 * time.Minute)}
		if got := serviceOf(c, profile.Thread{PID: pid, Process: "perl"}); got != want {
			t.Errorf("in a window of %v it is of %s, want %s", window, got, want)
		}
	}
}

func serviceOf(c *Census, t profile.Thread) string {
	all, _ := c.Of([]profile.Thread{t}, Commands{})
	return all[0]["service"]
}

// TestOnlyReadersWait has /proc take long: what is known already is known at once.
func TestOnlyReadersWait(t *testing.T) {
	c := NewCensus("here", nil)
	if err := c.Look(); err != nil {
		t.Fatal(err)
	}
	c.reading.Lock() // as whoever reads of a process that does not answer
	defer c.reading.Unlock()
	known := make(chan int)
	go func() {
		c.Keep(time.Hour)
		all, _ := c.List()
		meant, _ := c.Choose(func(profile.Labels) bool { return true })
		known <- len(all) - len(meant)
	}()
	select {
	case differ := <-known:
		if differ != 0 {
			t.Errorf("%d targets are listed, but not chosen", differ)
		}
	case <-time.After(testwait.Longest(t)):
		t.Fatal("it waits for /proc")
	}
}
