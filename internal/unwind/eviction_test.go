package unwind

import (
	"context"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
	"atys.dev/atys/test/victims"
)

// startVictim starts a victim, which is killed at the test's end.
func startVictim(t *testing.T, name string, arguments ...string) *victims.Victim {
	t.Helper()
	path, err := victims.Build(t.TempDir(), name, victims.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	v, err := victims.Start(ctx, path, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// idleProcess starts a process that maps files and does nothing.
func idleProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// littleRoom is for 63 chunks: less than libc has.
const littleRoom = 1 << 14

// crowd has all chunks of the tables of a process be demanded, until they have filled
// the room more than once.
func (u *Unwinder) crowd(t *testing.T, pid int) {
	t.Helper()
	if err := u.Track(pid); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "sleep's libc is mapped", func() bool { // an exec maps it a little after it is known to succeed
		return u.Track(pid) == nil && u.knows(pid, "libc.so.6")
	})
	before := u.tables.rows.Stats()
	for u.tables.rows.Stats().Evictions < before.Evictions+uint64(2*before.SlotsMax) {
		all := u.tracker.executables(pid)
		u.tables.mu.Lock()
		for _, e := range all {
			for offset := uint32(0); e.table != nil && offset < 1<<24; offset += 4096 {
				u.tables.rows.Demand(e.table, offset)
			}
		}
		u.tables.mu.Unlock()
		time.Sleep(Grace)
	}
}

// A process that starts when the rows of what is mapped have filled the room is
// walked to the end all the same.
func TestLateProcess(t *testing.T) {
	var wanted atomic.Int64
	u := tracked(t, Options{Rows: littleRoom, Wanted: func(pid int) bool { return pid == int(wanted.Load()) }})
	u.crowd(t, idleProcess(t)) // whose files stay mapped
	v := startVictim(t, "threads50", "600")
	wanted.Store(int64(v.PID))
	if err := u.Track(v.PID); err != nil {
		t.Fatal(err)
	}
	walks := switchWalks(t, u)
	testwait.Until(t, "walks are complete", func() bool {
		ends := walks(40)
		return sum(ends) >= 40 && float64(ends[kernelWalkEndEND_COMPLETE]) >= 0.9*float64(sum(ends))
	})
	if s := u.Stats(); s.Rows > s.RowsMax || s.Evicted == 0 {
		t.Errorf("%d rows of %d, %d evicted", s.Rows, s.RowsMax, s.Evicted)
	}
}

// Rows of a file that stays mapped leave while nothing of it is sampled, which its
// next walks say, and come back.
func TestIdleFileLeavesAndReturns(t *testing.T) {
	v := startVictim(t, "threads50", "600")
	u := tracked(t, Options{Rows: littleRoom, Wanted: func(pid int) bool { return pid == v.PID }})
	if err := u.Track(v.PID); err != nil {
		t.Fatal(err)
	}
	walks := switchWalks(t, u)
	complete := func() bool {
		ends := walks(40)
		return sum(ends) >= 40 && float64(ends[kernelWalkEndEND_COMPLETE]) >= 0.9*float64(sum(ends))
	}
	testwait.Until(t, "walks are complete", complete)
	if err := syscall.Kill(v.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	u.crowd(t, idleProcess(t))
	all := u.tracker.executables(v.PID)
	u.tables.mu.Lock()
	for _, e := range all {
		if e.uses == 0 || e.table == nil && !e.failed {
			t.Errorf("%s: %d uses; its table is gone, in place of its rows alone", e.path, e.uses)
		}
	}
	u.tables.mu.Unlock()
	if err := syscall.Kill(v.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if ends := walks(40); ends[kernelWalkEndEND_EVICTED] == 0 {
		t.Errorf("no walk says that its rows were evicted: %d", ends)
	}
	testwait.Until(t, "walks are complete again", complete)
}
