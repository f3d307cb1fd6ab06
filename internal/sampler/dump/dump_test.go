package dump

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

// needBPF skips where the test may not load programs; root always may.
func needBPF(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

// standing builds and starts testdata/standing.c.
func standing(t *testing.T) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "standing")
	build := exec.Command("cc", "-O1", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "-o", binary, "testdata/standing.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	c := exec.Command(binary)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("not ready: %q, %v", line, err)
	}
	return c
}

func take(t *testing.T, pid int) *Snapshot {
	t.Helper()
	s, err := Take(t.Context(), Options{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func thread(t *testing.T, s *Snapshot, name string) Thread {
	t.Helper()
	for _, one := range s.Threads {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no thread %q among %d", name, len(s.Threads))
	return Thread{}
}

// userNames are the functions of a thread's user stack, innermost first.
func userNames(one Thread) (names []string) {
	for _, f := range one.Frames {
		if f.Kind != profile.KindKernel {
			names = append(names, f.Function)
		}
	}
	return names
}

func TestTake(t *testing.T) {
	needBPF(t)
	c := standing(t)
	before := standStill(t, c.Process.Pid)
	s := take(t, c.Process.Pid)
	if s.PID != c.Process.Pid || s.Name != "standing" || len(s.Threads) != 7 {
		t.Errorf("process %d %q with %d threads", s.PID, s.Name, len(s.Threads))
	}
	if !slices.IsSortedFunc(s.Threads, func(a, b Thread) int { return a.TID - b.TID }) {
		t.Error("threads are not in order")
	}
	deep := slices.Repeat([]string{"descend"}, 61)
	for _, want := range []struct {
		thread  string
		states  []State
		syscall string
		calls   []string // one after the other, somewhere on the stack
	}{
		{"standing", []State{Sleeping}, "pause", []string{"pause", "main"}},
		{"locked", []State{Sleeping}, "futex", []string{"pthread_mutex_lock", "wait_for_lock", "locked_thread", "start_thread"}},
		{"reading", []State{Sleeping}, "read", []string{"read", "wait_for_byte", "reading_thread", "start_thread"}},
		{"deep", []State{Sleeping}, "pause", append(deep, "deep_thread", "start_thread")},
		{"signalled", []State{Sleeping}, "pause", []string{"pause", "on_signal"}},
		{"signalled", []State{Sleeping}, "pause", []string{"get_signal", "signalled_thread", "start_thread"}},
		{"spinning", []State{Running, Runnable}, "", []string{"spin", "spinning_thread", "start_thread"}},
		{"blocked", []State{Blocked}, "vfork", []string{"vfork", "wait_for_child", "blocked_thread", "start_thread"}},
	} {
		one := thread(t, s, want.thread)
		names := userNames(one)
		if !slices.Contains(want.states, one.State) || one.Syscall != want.syscall && want.syscall != "" {
			t.Errorf("%s is %s in %q, want %v in %q", want.thread, one.State, one.Syscall, want.states, want.syscall)
		}
		if one.End != profile.EndComplete || !follow(names, want.calls) {
			t.Errorf("%s ends %s: %q; want %q in it", want.thread, one.End, names, want.calls)
		}
		waits := one.State == Sleeping || one.State == Blocked
		if waits != (one.Wait != "") || waits && one.Frames[0].Kind != profile.KindKernel {
			t.Errorf("%s is %s and waits in %q, with %+v", want.thread, one.State, one.Wait, one.Frames)
		}
	}
	if f := thread(t, s, "locked").Frames; !slices.ContainsFunc(f, func(f profile.Frame) bool {
		return f.Function == "wait_for_lock" && filepath.Base(f.File) == "standing.c" && f.Line > 0
	}) {
		t.Errorf("no line of wait_for_lock in %+v", f)
	}
	// The first law: threads that slept were not woken to be looked at.
	after := switches(t, c.Process.Pid)
	for name, n := range before {
		if after[name] != n {
			t.Errorf("%s ran while it was looked at: %q before, %q after", name, n, after[name])
		}
	}
}

// follow tells whether calls stand one after the other in names.
func follow(names, calls []string) bool {
	for i := 0; i+len(calls) <= len(names); i++ {
		if slices.Equal(names[i:i+len(calls)], calls) {
			return true
		}
	}
	return false
}

// standStill waits until all threads but the one that spins stand still.
func standStill(t *testing.T, pid int) map[string]string {
	t.Helper()
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); {
		before := switches(t, pid)
		time.Sleep(100 * time.Millisecond)
		after := switches(t, pid)
		delete(before, "spinning")
		delete(after, "spinning")
		if maps.Equal(before, after) {
			return before
		}
	}
	t.Fatal("the threads do not come to rest")
	return nil
}

// switches counts each thread's context switches.
func switches(t *testing.T, pid int) map[string]string {
	t.Helper()
	found := map[string]string{}
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	for _, file := range dirs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, counts := "", ""
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Name:\t"); ok {
				name = strings.TrimSpace(value)
			} else if strings.Contains(line, "ctxt_switches") {
				counts += strings.TrimSpace(line) + " "
			}
		}
		found[name] = counts
	}
	return found
}

// TestTakeStopped looks at a process that a signal has stopped.
func TestTakeStopped(t *testing.T) {
	needBPF(t)
	c := standing(t)
	if err := c.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(testwait.Longest(t))
	for time.Now().Before(deadline) {
		if one := thread(t, take(t, c.Process.Pid), "spinning"); one.State == Stopped {
			if names := userNames(one); one.End != profile.EndComplete || !follow(names, []string{"spin", "spinning_thread"}) {
				t.Errorf("stopped at %q, ends %s", names, one.End)
			}
			return
		}
	}
	t.Error("the spinning thread is not seen stopped")
}

func TestTakeRefuses(t *testing.T) {
	needBPF(t)
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), Options{PID: c.Process.Pid}); !errors.Is(err, proc.ErrNotFound) {
		t.Errorf("a process that has ended: %v", err)
	}
	if _, err := Take(t.Context(), Options{PID: 2}); !errors.Is(err, proc.ErrKernelThread) {
		t.Errorf("a kernel thread: %v", err)
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	testwait.Until(t, "it is a zombie", func() bool {
		s, err := proc.FS{}.Stat(zombie.Process.Pid)
		return err == nil && s.Zombie()
	})
	if _, err := Take(t.Context(), Options{PID: zombie.Process.Pid}); !errors.Is(err, proc.ErrZombie) {
		t.Errorf("a zombie: %v", err)
	}
}

func TestStateOf(t *testing.T) {
	for _, c := range []struct {
		state, flags uint32
		want         State
	}{
		{0, 0, Runnable}, {0, standingOnCPU, Running}, {1, standingCaught, Running}, {1, 0, Sleeping}, {2, 0, Blocked},
		{0x102, 0, Blocked}, {0x402, 0, Blocked}, {4, 0, Stopped}, {0x104, 0, Stopped}, {8, 0, Traced}, {0x20, 0, Zombie},
		{0x80, 0, Zombie}, {0x40, 0, Parked}, {0x4000, 0, Otherwise},
	} {
		if got := stateOf(&kernelStanding{State: c.state, Flags: c.flags}); got != c.want {
			t.Errorf("state %#x, flags %d: %s, want %s", c.state, c.flags, got, c.want)
		}
	}
}

func TestWaitChannel(t *testing.T) {
	frames := func(names ...string) (f []profile.Frame) {
		for _, n := range names {
			f = append(f, profile.Frame{Function: n, Kind: profile.KindKernel})
		}
		return f
	}
	for _, c := range []struct {
		frames []profile.Frame
		want   string
	}{
		{frames("__schedule", "schedule", "schedule_hrtimeout_range", "do_epoll_wait", "do_syscall_64"), "do_epoll_wait"},
		{frames("io_schedule", "folio_wait_bit_common"), "folio_wait_bit_common"},
		{frames("futex_do_wait"), "futex_do_wait"},
		{frames("[kernel]+0x1234"), ""},
		{nil, ""},
		{[]profile.Frame{{Function: "main", Kind: profile.KindNative}}, ""},
	} {
		if got := waitChannel(c.frames); got != c.want {
			t.Errorf("%v waits in %q, want %q", c.frames, got, c.want)
		}
	}
}

func TestDecodeBounds(t *testing.T) {
	raw := make([]byte, standingSize)
	for i := range raw {
		raw[i] = 0xff
	}
	if s := decode(raw); int(s.User) > len(s.UserFrames) || int(s.Kernel) > len(s.KernelFrames) {
		t.Errorf("%d and %d frames", s.User, s.Kernel)
	}
}
