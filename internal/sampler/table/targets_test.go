package table

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

// shell starts a command and kills it at the end of the test.
func shell(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // so that its children end with it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// newTable gives a table without a sampler: its targets are in the kernel.
func newTable(t *testing.T, o Options) *Table {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	tb, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := tb.Targets.apply(keepAll, 0, 1); err != nil {
		t.Fatal(err)
	}
	return tb
}

func newTracker(t *testing.T) *Tracker {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	tr, err := NewTracker(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// inKernel reports whether a process is a target of the table in the kernel.
func inKernel(tb *Table, pid int) bool {
	_, ok := tb.tracker.keepOf(tb, uint32(pid))
	return ok
}

// TestNumbersOfEndedTargets has other processes get the numbers of targets that have ended:
// a stranger is no target, a target's child is, and so is what Aim named meanwhile.
func TestNumbersOfEndedTargets(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	parent := shell(t, "sleep 1000 & echo $! >"+began+".new; mv "+began+".new "+began+"; wait")
	stranger, aimed := shell(t, "sleep 1000; :"), shell(t, "sleep 1000; :")
	testwait.Until(t, "there is a child", func() bool { _, err := os.Stat(began); return err == nil })
	text, err := os.ReadFile(began)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	tb := newTable(t, Options{PIDs: []int{parent, child, stranger, aimed}, Rate: 99})
	tb.Targets.Aim([]int{aimed}, nil, false)
	tb.Targets.forgetEnded([]int{child, stranger, aimed})
	tb.Targets.forgetEnded(nil)
	for pid, want := range map[int]bool{parent: true, child: true, stranger: false, aimed: true} {
		if got := inKernel(tb, pid); tb.Wanted(pid) != want || got != want {
			t.Errorf("process %d (child %d, stranger %d, aimed %d): a target %v, in the kernel %v; want %v", pid, child, stranger, aimed, tb.Wanted(pid), got, want)
		}
	}
}

// TestTablesShareATracker has two tables with targets of their own and one in common:
// each has its children, and hears of its exits.
func TestTablesShareATracker(t *testing.T) {
	dir := t.TempDir()
	script := func(name string) string {
		return "while [ ! -e " + dir + "/begin ]; do :; done; (sleep 0.1; :); echo >" + dir + "/" + name + "; sleep 1000"
	}
	first, second, both := shell(t, script("1")), shell(t, script("2")), shell(t, script("3"))
	tr := newTracker(t)
	a := newTable(t, Options{Tracker: tr, PIDs: []int{first, both}})
	b := newTable(t, Options{Tracker: tr, PIDs: []int{second, both}})
	read := func(tb *Table) map[ThreadID]profile.Thread {
		t.Helper()
		used, err := tb.readExact()
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	read(a)
	read(b)
	if err := os.WriteFile(filepath.Join(dir, "begin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1", "2", "3"} {
		testwait.Until(t, "its child has ended", func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil })
	}
	for i, c := range []struct {
		table *Table
		own   []int
		other int
	}{{a, []int{first, both}, second}, {b, []int{second, both}, first}} {
		if n := c.table.Births(); n < 4 { // a shell and a sleep of each
			t.Errorf("table %d counts %d births", i, n)
		}
		if inKernel(c.table, c.other) {
			t.Errorf("table %d has the other's target", i)
		}
		children := 0
		for id, thread := range read(c.table) {
			if id.PID == c.other {
				t.Errorf("table %d has exact times of the other's target: %+v", i, thread)
			}
			if !slices.Contains(c.own, id.PID) {
				children++
			}
		}
		if children < 4 {
			t.Errorf("table %d knows what %d children used, want 4", i, children)
		}
	}
	a.Targets.Aim(nil, []int{both}, false)
	a.Targets.forgetDropped()
	if inKernel(a, both) || !inKernel(b, both) {
		t.Errorf("after one table dropped it, a target is the one's %v, the other's %v", inKernel(a, both), inKernel(b, both))
	}
}

// TestExactTimeOffTheCPU compares exact times with those of a program that sleeps.
func TestExactTimeOffTheCPU(t *testing.T) {
	pid := shell(t, "exec sleep 1000")
	tb := newTable(t, Options{PIDs: []int{pid}, OffCPU: true})
	if _, err := tb.readExact(); err != nil {
		t.Fatal(err)
	}
	began := bpf.Clock(unix.CLOCK_BOOTTIME)
	time.Sleep(300 * time.Millisecond)
	used, err := tb.readExact()
	elapsed := time.Duration(bpf.Clock(unix.CLOCK_BOOTTIME) - began)
	if err != nil {
		t.Fatal(err)
	}
	got := used[ThreadID{pid, pid}].Exact
	if d := (got.Wall - elapsed).Abs(); d > 20*time.Millisecond && d > elapsed/10 {
		t.Errorf("it was %v off the CPU in %v", got.Wall, elapsed)
	}
	if got.CPU != 0 {
		t.Errorf("CPU time %v is counted beside time off it", got.CPU)
	}
}
