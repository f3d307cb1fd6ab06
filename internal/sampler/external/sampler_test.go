package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/test/testwait"
)

func TestPerf(t *testing.T) {
	needs(t, "gcc", "perf")
	needsRoot(t)
	pid := victim(t, ".", build(t, "gcc", "-O1", "-fno-inline", "-o", "DIR/victim", "testdata/victim.c")+"/victim")
	s := open(t, Options{Kernel: Perf, PIDs: []int{pid}, Frequency: 199})
	wants(t, gather(t, s, 100), "", pid)
	if err := s.SetFrequency(997); err != nil { // from here on by frame pointers
		t.Fatal(err)
	}
	gather(t, s, 1) // the window being filled still has the old rate
	w, err := s.Finish()
	if err != nil || w.Types[0].Period != period(997) {
		t.Errorf("period %v after the rate has changed: %v", w, err)
	}
	s.Close()
	clean(t, pid)
}

func TestPySpy(t *testing.T) {
	needs(t, "python3", "py-spy")
	needsRoot(t)
	pid := victim(t, ".", "python3", "testdata/victim.py", "child")
	s := open(t, Options{Kernel: PySpy, PIDs: []int{pid}})
	w := gather(t, s, 100)
	wants(t, w, "", pid)
	children := map[int]bool{}
	named := false
	for _, th := range w.Threads {
		children[th.PID] = true
		named = named || th.Name == "worker; one (a)"
	}
	if len(children) != 2 || !named {
		t.Errorf("want two processes, and a thread with its name: %+v", w.Threads)
	}
	s.Close()
	clean(t, pid)
}

func TestAsyncProfiler(t *testing.T) {
	needsRoot(t)
	pid := javaVictim(t)
	s := open(t, Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true})
	_, err := New(t.Context(), Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true, Frequency: 99})
	if err == nil || !strings.Contains(err.Error(), "at work in it already") {
		t.Errorf("a second recording: %v", err)
	}
	w := gather(t, s, 100)
	wants(t, w, "Victim.", pid)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	clean(t, pid)

	again := open(t, Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true})
	wants(t, gather(t, again, 50), "Victim.", pid)
	maps, err := proc.FS{}.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	copies := map[string]bool{}
	for _, m := range maps {
		if filepath.Base(m.Path) == libraryName {
			copies[m.Path] = true
		}
	}
	if len(copies) != 1 {
		t.Errorf("the JVM has loaded %v: want one library, however often it is recorded", copies)
	}
}

func TestNamespaces(t *testing.T) {
	needsRoot(t)
	t.Run("py-spy", func(t *testing.T) {
		needs(t, "python3", "py-spy")
		pid := isolated(t, "testdata", "8m", false, "python3", "victim.py")
		wants(t, gather(t, open(t, Options{Kernel: PySpy, PIDs: []int{pid}}), 100), "", pid)
	})
	t.Run("perf", func(t *testing.T) {
		needs(t, "gcc", "perf")
		dir := build(t, "gcc", "-O1", "-fno-inline", "-o", "DIR/victim", "testdata/victim.c")
		pid := isolated(t, dir, "8m", false, "./victim")
		wants(t, gather(t, open(t, Options{Kernel: Perf, PIDs: []int{pid}, Frequency: 199}), 50), "", pid)
	})
	for _, user := range []bool{false, true} {
		t.Run(map[bool]string{false: "async-profiler", true: "async-profiler, user namespace"}[user], func(t *testing.T) {
			pid := isolated(t, javaClasses(t), "8m", user, java()...)
			s := open(t, Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true})
			wants(t, gather(t, s, 50), "Victim.", pid)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			clean(t, pid)
		})
	}
}

func TestAnotherUser(t *testing.T) {
	needsRoot(t)
	needs(t, "setpriv")
	pid := victim(t, javaClasses(t), append([]string{"setpriv", "--reuid", "12345", "--regid", "12346", "--clear-groups"}, java()...)...)
	// A JVM of root that had this number may have left its socket, which this one could not remove.
	if err := os.Remove(fmt.Sprintf("/tmp/.java_pid%d", pid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	s := open(t, Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true})
	folder := s.tool.(*asyncProfiler).folder
	info, err := os.Stat(folder.path(""))
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 12345 || st.Gid != 12346 {
		t.Errorf("the folder is of %d:%d, want the target's", st.Uid, st.Gid)
	}
	wants(t, gather(t, s, 50), "Victim.", pid)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	clean(t, pid)
}

func TestRefusals(t *testing.T) {
	needs(t, "sleep")
	none := func(programs string) func(*testing.T) Options {
		return func(t *testing.T) Options {
			t.Setenv("PATH", t.TempDir())
			return Options{Kernel: Kernel(programs), PIDs: []int{os.Getpid()}, AllowAttach: true}
		}
	}
	self := []int{os.Getpid()}
	for _, c := range []struct {
		name    string
		options func(*testing.T) Options
		want    string
		is      error
	}{
		{"no consent", func(*testing.T) Options { return Options{Kernel: AsyncProfiler, PIDs: self} }, "give --allow-attach", ErrConsent},
		{"perf is missing", none("perf"), "linux-perf", ErrNotInstalled},
		{"py-spy is missing", none("py-spy"), "pip install py-spy", ErrNotInstalled},
		{"async-profiler is missing", none("async-profiler"), "bin folder into PATH", ErrNotInstalled},
		{"no such kernel", func(*testing.T) Options { return Options{Kernel: "vtune", PIDs: self} }, `no kernel "vtune": there is perf, py-spy, async-profiler`, nil},
		{"no target", func(*testing.T) Options { return Options{Kernel: Perf} }, "no process to record", nil},
		{"not Java", func(t *testing.T) Options {
			needs(t, "asprof")
			return Options{Kernel: AsyncProfiler, PIDs: self, AllowAttach: true}
		}, "is no Java", nil},
		{"not Python", func(t *testing.T) Options {
			needs(t, "py-spy", "perl")
			needsRoot(t)
			pid := victim(t, ".", "perl", "-e", `$| = 1; print "ready\n"; sleep 100`)
			return Options{Kernel: PySpy, PIDs: []int{pid}}
		}, "is no Python that py-spy knows", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.options(t)
			o.Frequency = 99
			s, err := New(t.Context(), o)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// An order to attach comes as SIGQUIT: it would end a JVM that does not handle
// it, and have one that may not be attached to print its threads.
func TestUnattachableJVMsAreLeftAlone(t *testing.T) {
	for option, want := range map[string]string{"-Xrs": "-Xrs", "-XX:+DisableAttachMechanism": "DisableAttachMechanism"} {
		t.Run(option, func(t *testing.T) {
			pid := javaVictim(t, option)
			_, err := New(t.Context(), Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true, Frequency: 99})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
			if _, err := (proc.FS{}).Check(pid); err != nil {
				t.Errorf("the JVM: %v", err)
			}
			clean(t, pid)
		})
	}
}

func waitDone(t *testing.T, s *Sampler) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(testwait.Longest(t)):
		t.Fatal("nobody noticed")
	}
}

func TestToolIsKilled(t *testing.T) {
	needs(t, "python3", "py-spy", "perf")
	needsRoot(t)
	pid := victim(t, ".", "python3", "testdata/victim.py")
	for _, k := range []Kernel{PySpy, Perf} {
		t.Run(string(k), func(t *testing.T) {
			s := open(t, Options{Kernel: k, PIDs: []int{pid}, Frequency: 99})
			var tool *command
			switch r := s.run.(type) {
			case *pySpyRun:
				tool = r.command
			case *perfRun:
				tool = r.command
			}
			if err := unix.Kill(tool.cmd.Process.Pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waitDone(t, s)
			if _, err := s.Cut(); err == nil || !strings.Contains(err.Error(), "killed by signal 9") {
				t.Errorf("cut: %v", err)
			}
			gather(t, s, 1) // the next window has a tool of its own
			s.Close()
			clean(t, pid)
		})
	}
	t.Run("by its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := New(ctx, Options{Kernel: PySpy, PIDs: []int{pid}, Frequency: 99})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		waitDone(t, s)
		if _, err := s.Cut(); err == nil {
			t.Error("a killed tool's window came without an error")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		clean(t, pid)
	})
}

// use waits until a process has used CPU time, and there is something to sample. The
// clock of another process is named by its number: see clock_getcpuclockid(3).
func use(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	spent := func() time.Duration {
		const scheduled = 2
		var at unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	until := spent() + d
	testwait.Until(t, "it has used CPU time", func() bool { return spent() >= until })
}

func TestTargetEnds(t *testing.T) {
	needs(t, "python3", "py-spy", "asprof", "java", "javac")
	needsRoot(t)
	t.Run("py-spy", func(t *testing.T) {
		pid := victim(t, ".", "python3", "testdata/victim.py")
		s := open(t, Options{Kernel: PySpy, PIDs: []int{pid}})
		use(t, pid, 500*time.Millisecond)
		unix.Kill(pid, unix.SIGKILL)
		waitDone(t, s)
		w, err := s.Finish()
		if err != nil || w.N() == 0 || w.Exact.CPU == 0 {
			t.Errorf("window %v, %v: want what was seen until the end", w, err)
		}
	})
	for sig, want := range map[unix.Signal]string{unix.SIGTERM: "", unix.SIGKILL: "wrote no samples"} {
		t.Run("async-profiler, "+sig.String(), func(t *testing.T) {
			pid := javaVictim(t)
			s := open(t, Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true})
			folder := s.tool.(*asyncProfiler).folder.path("")
			use(t, pid, 500*time.Millisecond)
			unix.Kill(pid, sig)
			waitDone(t, s)
			w, err := s.Finish()
			switch {
			case want == "" && (err != nil || under(w, "Victim.heavy") == 0):
				t.Errorf("window %v, %v: want what the JVM wrote as it ended", w, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("error %v, want %q in it", err, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(folder); !os.IsNotExist(err) {
				t.Errorf("%s: %v, want it removed although the process is gone", folder, err)
			}
		})
	}
}

// What goes wrong in a target's folder is told, and nothing stays there.
func TestFolderFaults(t *testing.T) {
	needsRoot(t)
	dir := javaClasses(t)
	t.Run("no room for the library", func(t *testing.T) {
		pid := isolated(t, dir, "64k", false, java("-XX:-UsePerfData")...)
		_, err := New(t.Context(), Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true, Frequency: 99})
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("error %v", err)
		}
		clean(t, pid)
	})
	pid := isolated(t, dir, "700k", false, java("-XX:-UsePerfData")...)
	start := func(t *testing.T) (*Sampler, string) {
		s := open(t, Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true})
		return s, filepath.Join("/proc", strconv.Itoa(pid), "root", s.tool.(*asyncProfiler).folder.path(""))
	}
	fails := func(t *testing.T, s *Sampler, want string) {
		t.Helper()
		time.Sleep(300 * time.Millisecond)
		if _, err := s.Finish(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		clean(t, pid)
	}
	t.Run("no room for the samples", func(t *testing.T) {
		s, folder := start(t)
		fill := filepath.Join(folder, "fill")
		if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); err == nil {
			t.Fatal("a full disk took a megabyte")
		}
		fails(t, s, "no space left")
	})
	t.Run("samples that cannot be read", func(t *testing.T) {
		s, folder := start(t)
		if err := os.MkdirAll(filepath.Join(folder, outName, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		fails(t, s, "Could not open output file")
	})
	t.Run("a link in their place", func(t *testing.T) {
		s, folder := start(t)
		if err := os.Symlink("/dev/null", filepath.Join(folder, outName)); err != nil {
			t.Fatal(err)
		}
		fails(t, s, "no regular file")
	})
	t.Run("a JVM that is stopped", func(t *testing.T) {
		s, _ := start(t)
		s.tool.(*asyncProfiler).patience = time.Second
		unix.Kill(pid, unix.SIGSTOP)
		fails(t, s, "did not end in time")
		unix.Kill(pid, unix.SIGCONT)
	})
}
