package unwind

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/test/testwait"
)

// tracked starts an unwinder on this machine; wanted nil is all processes.
func tracked(t *testing.T, o Options) *Unwinder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cpus, err := proc.Machine{}.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	o.CPUs = cpus
	if o.Source == nil {
		o.Source = Proc{}
	}
	u, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := u.Start(); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *Unwinder) knows(pid int, path string) bool {
	return slices.ContainsFunc(u.tracker.executables(pid), func(e *executable) bool { return filepath.Base(e.path) == path })
}

// A process that starts while we watch is known with what it maps, and
// forgotten with all it used when it has exited.
func TestFollow(t *testing.T) {
	u := tracked(t, Options{})
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	testwait.Until(t, "sleep is known by its executable", func() bool { return u.knows(pid, "sleep") })
	testwait.Until(t, "sleep's libc is known", func() bool { return u.knows(pid, "libc.so.6") })
	testwait.Until(t, "its tables are loaded without being asked for", func() bool {
		all := u.tracker.executables(pid)
		u.tables.mu.Lock()
		defer u.tables.mu.Unlock()
		return !slices.ContainsFunc(all, func(e *executable) bool { return e.table == nil && !e.failed })
	})
	cmd.Process.Kill()
	cmd.Wait()
	testwait.Until(t, "sleep is forgotten", func() bool { return u.tracker.executables(pid) == nil })
}

// Many short processes leave nothing behind.
func TestFollowLeavesNothing(t *testing.T) {
	u := tracked(t, Options{})
	run := func(n int) {
		for range n {
			exec.Command("true").Run()
		}
	}
	run(20)
	time.Sleep(2 * sweepEvery)
	before := u.Stats()
	run(300)
	testwait.Until(t, "no more mappings than before", func() bool {
		s := u.Stats()
		return s.Processes <= before.Processes+20 && s.Mappings <= before.Mappings+400
	})
	if s := u.Stats(); s.ProcessErrors != 0 || s.EventsLost != 0 {
		t.Errorf("%d process errors, %d events lost", s.ProcessErrors, s.EventsLost)
	}
}

// With less room than one file's rows take, those that are loaded stay within it,
// and the table is there all the same.
func TestLittleRoom(t *testing.T) {
	u := tracked(t, Options{Rows: 1, Wanted: func(int) bool { return false }})
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	testwait.Until(t, "sleep's libc is known", func() bool { // it may be the builder that loads it
		if err := u.Track(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		return u.knows(cmd.Process.Pid, "libc.so.6") && u.Stats().Builds > 0
	})
	if s := u.Stats(); s.TableErrors > 0 || s.Rows == 0 || s.Rows > s.RowsMax || s.RowsMax != minRows {
		t.Errorf("with room for %d rows, %d are loaded and %d tables were refused", s.RowsMax, s.Rows, s.TableErrors)
	}
}

func TestRoomFor(t *testing.T) {
	for rows, want := range map[uint32]uint32{0: DefaultRows, 1: minRows, 5000: 8192, 8192: 8192, 1 << 31: MaxRows} {
		if got := roomFor(rows); got != want {
			t.Errorf("%d rows: room for %d, want %d", rows, got, want)
		}
	}
}

// missing is a Source whose files cannot be opened.
type missing struct{ Proc }

func (missing) Open(int, lifecycle.Mapping) (*os.File, error) { return nil, errors.New("unreadable") }

// A process whose files cannot be read is known all the same: its frames are
// path and offset.
func TestUnreadableFiles(t *testing.T) {
	u := tracked(t, Options{Source: missing{}, Wanted: func(int) bool { return false }})
	if err := u.Track(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	id := u.tracker.executables(os.Getpid())[0].id
	f, ok := u.File(id)
	if !ok || f.Path == "" || f.BuildID == "" {
		t.Errorf("file %+v, %v", f, ok)
	}
	if _, err := f.Open(); err == nil {
		t.Error("a file that cannot be read was opened")
	}
}
