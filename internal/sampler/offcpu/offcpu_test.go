package offcpu

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/test/testwait"
)

// need skips where the kernel lacks the tracepoint, and only there.
func need(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if !Supported() {
		t.Skip("this kernel has no tracepoint sched_exit_tp")
	}
}

// victim compiles a program of waits and starts it.
func victim(t *testing.T, how string) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waits")
	if out, err := exec.Command("gcc", "-O1", "-g", "-pthread", "-o", path, "testdata/waits.c").CombinedOutput(); err != nil {
		t.Fatalf("compile the victim: %v: %s", err, out)
	}
	cmd := exec.Command(path, how)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// start begins to sample with everything wired as a recorder does.
func start(t *testing.T, o Options) *Sampler {
	t.Helper()
	need(t)
	cpus, err := proc.Machine{}.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	var s *Sampler
	u, err := unwind.New(unwind.Options{Source: unwind.Proc{}, CPUs: cpus, Eager: !o.All, Wanted: func(pid int) bool { return s.Wanted(pid) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	o.Unwinder, o.Threads = u, true
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	u.OnTask(func(e lifecycle.Event) { s.OnTask(e) })
	if err := u.Start(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range o.PIDs {
		if err := u.Track(pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// sums are what a window has of a process, by reason.
type sums struct {
	off, waits, variance, samples map[string]float64
}

func sumUp(w *profile.Window, pid int) sums {
	s := sums{map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}}
	for _, r := range w.Rows.All() {
		if w.Thread(r.Thread).PID != pid {
			continue
		}
		for _, reason := range []string{w.Contexts[r.Context-1].Reason, ""} {
			s.off[reason] += float64(r.Values[0])
			s.waits[reason] += float64(r.Values[1])
			s.variance[reason] += r.Squares[0]
			s.samples[reason] += float64(r.N)
		}
	}
	return s
}

// exact is what a window knows exactly of a process.
func exact(w *profile.Window, pid int) (e profile.Exact) {
	for _, t := range w.Threads {
		if t.PID == pid {
			e.Add(t.Exact)
		}
	}
	return e
}

// schedstat gives the CPU and run queue time of a process's first thread.
func schedstat(t *testing.T, pid int) (cpu, queue float64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text))
	c, _ := strconv.ParseUint(f[0], 10, 64)
	q, _ := strconv.ParseUint(f[1], 10, 64)
	return float64(c), float64(q)
}

// agree fails unless two times are within 3% and 20 ms, or as far as four standard errors.
func agree(t *testing.T, what string, got, want, variance float64) {
	t.Helper()
	if d := math.Abs(got - want); d > 0.03*want+20e6 && d > 4*math.Sqrt(variance) {
		t.Errorf("%s: %v sampled, %v exact, standard error %v", what, time.Duration(got), time.Duration(want), time.Duration(math.Sqrt(variance)))
	}
}

func merge(t *testing.T, windows ...*profile.Window) *profile.Window {
	t.Helper()
	w, err := profile.Merge(windows...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func cut(t *testing.T, s *Sampler, after time.Duration) *profile.Window {
	t.Helper()
	time.Sleep(after)
	w, err := s.Cut()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestSleeps has a program sleep for 50 ms again and again: that is where its time goes, in
// each window, with whole stacks.
func TestSleeps(t *testing.T) {
	need(t)
	pid := victim(t, "sleep")
	s := start(t, Options{PIDs: []int{pid}})
	cut(t, s, 0)
	cpu, queue := schedstat(t, pid)
	began := time.Now()
	a, b := cut(t, s, 1200*time.Millisecond), cut(t, s, 1300*time.Millisecond)
	elapsed := float64(time.Since(began))
	cpuNow, queueNow := schedstat(t, pid)
	w := merge(t, a, b)
	got, known := sumUp(w, pid), exact(w, pid)
	agree(t, "off the CPU, by the clock", got.off[""], elapsed-(cpuNow-cpu), got.variance[""])
	agree(t, "off the CPU, by the window", got.off[""], float64(known.Wall), got.variance[""])
	agree(t, "in the run queue", got.off["run queue"], queueNow-queue, got.variance["run queue"])
	agree(t, "in the run queue, by the window", float64(known.RunQueue), queueNow-queue, 0)
	for i, w := range []*profile.Window{a, b} {
		part := sumUp(w, pid)
		agree(t, fmt.Sprintf("off the CPU, in window %d", i), part.off[""], float64(exact(w, pid).Wall), part.variance[""])
	}
	if n := got.waits["blocked"]; n < 20 || n > 60 {
		t.Errorf("%v waits in %v", n, time.Duration(elapsed))
	}
	if got.off["blocked"] < 0.5*got.off[""] {
		t.Errorf("a program that sleeps is blocked for %v of %v", time.Duration(got.off["blocked"]), time.Duration(got.off[""]))
	}
	whole := 0.0
	for _, r := range w.Rows.All() {
		if w.Thread(r.Thread).PID == pid && w.Stacks[r.Stack].End == profile.EndComplete {
			whole += float64(r.Values[0])
		}
	}
	if whole < 0.8*got.off[""] { // but for the parts at edges
		t.Errorf("%v of %v have whole stacks: %v", time.Duration(whole), time.Duration(got.off[""]), w.Losses)
	}
	if kind, base := w.Kind(), w.Types[0].Base; kind != Kind || base != profile.BaseWall || w.Types[1].Kind != "waits" {
		t.Errorf("the window has types %+v", w.Types)
	}
}

// TestStarved has two threads share one CPU with others that never leave it: their time is in
// the run queue.
func TestStarved(t *testing.T) {
	need(t)
	pid := victim(t, "starve")
	s := start(t, Options{PIDs: []int{pid}})
	cut(t, s, 0)
	w := cut(t, s, 2*time.Second)
	got, known := sumUp(w, pid), exact(w, pid)
	agree(t, "off the CPU", got.off[""], float64(known.Wall), got.variance[""])
	agree(t, "in the run queue", got.off["run queue"], float64(known.RunQueue), got.variance["run queue"])
	if got.off["run queue"] < float64(time.Second) || got.off["run queue"] < 0.9*got.off[""] {
		t.Errorf("%v of %v are in the run queue", time.Duration(got.off["run queue"]), time.Duration(got.off[""]))
	}
}

// TestThinned has a program wait far more often than the budget has walks: estimates of its
// time, its waits and their variance hold.
func TestThinned(t *testing.T) {
	need(t)
	pid := victim(t, "pingpong")
	s := start(t, Options{PIDs: []int{pid}, Walks: 100})
	cut(t, s, 3*time.Second) // adapts
	stat := switches(t, pid)
	w := cut(t, s, 3*time.Second)
	stat = switches(t, pid) - stat
	got, known := sumUp(w, pid), exact(w, pid)
	agree(t, "off the CPU", got.off[""], float64(known.Wall), got.variance[""])
	if n := got.samples[""]; n > 3*100*2*4 || n < 50 {
		t.Errorf("%v samples in 3 seconds, with a budget of 100 walks a second", n)
	}
	if error := math.Sqrt(got.variance[""]) / got.off[""]; error > 0.3 || error <= 0 {
		t.Errorf("the standard error is %.2f of the time", error)
	}
	if got.waits["blocked"] < 0.4*stat || got.waits["blocked"] > 2.5*stat {
		t.Errorf("%v waits, and %v voluntary switches", got.waits["blocked"], stat)
	}
}

// switches counts the voluntary switches of all threads of a process.
func switches(t *testing.T, pid int) (n float64) {
	t.Helper()
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		v, _ := strconv.ParseFloat(strings.TrimSpace(line), 64)
		n += v
	}
	return n
}

// TestLongWait has a thread wait over several windows: each has its part.
func TestLongWait(t *testing.T) {
	need(t)
	pid := victim(t, "wait")
	s := start(t, Options{PIDs: []int{pid}})
	for i := range 3 {
		w := cut(t, s, 400*time.Millisecond)
		got, known := sumUp(w, pid), exact(w, pid)
		agree(t, fmt.Sprintf("off the CPU, in window %d", i), got.off[""], float64(known.Wall), got.variance[""])
		if got.off[""] < float64(300*time.Millisecond) {
			t.Errorf("window %d has %v of a wait", i, time.Duration(got.off[""]))
		}
	}
}

// TestWholeMachine samples everything, and aims: a new process has its first wait.
func TestWholeMachine(t *testing.T) {
	need(t)
	s := start(t, Options{All: true, Walks: 20000}) // on a busy machine, few waits of one program would be kept
	cut(t, s, 0)
	pid := victim(t, "sleep")
	testwait.Until(t, "the program is in a window", func() bool {
		w := cut(t, s, time.Second)
		got, known := sumUp(w, pid), exact(w, pid)
		agree(t, "off the CPU", got.off[""], float64(known.Wall), got.variance[""])
		return got.off["blocked"] > float64(500*time.Millisecond)
	})
}

// TestAim makes a process a target, and then no longer.
func TestAim(t *testing.T) {
	need(t)
	first, second := victim(t, "sleep"), victim(t, "sleep")
	s := start(t, Options{PIDs: []int{first}})
	if !s.Aim([]int{second}, []int{first}) {
		t.Error("a new target is none")
	}
	cut(t, s, 500*time.Millisecond)
	w := cut(t, s, time.Second)
	if got, known := sumUp(w, second), exact(w, second); got.off[""] < float64(500*time.Millisecond) {
		t.Errorf("of the new target %v are sampled, of %v", time.Duration(got.off[""]), known.Wall)
	} else {
		agree(t, "off the CPU", got.off[""], float64(known.Wall), got.variance[""])
	}
	if got := sumUp(w, first); got.off[""] != 0 {
		t.Errorf("of the former target %v are sampled", time.Duration(got.off[""]))
	}
}

func TestAdapt(t *testing.T) {
	for _, c := range []struct {
		threshold     time.Duration
		walks, budget float64
		want          time.Duration
	}{
		{10 * time.Millisecond, 150, 150, 10 * time.Millisecond},
		{10 * time.Millisecond, 300, 150, 20 * time.Millisecond},
		{10 * time.Millisecond, 1e6, 150, 640 * time.Millisecond},
		{10 * time.Millisecond, 0, 150, 8 * time.Millisecond},
		{100 * time.Microsecond, 0, 150, leastThreshold},
		{time.Second, 1e6, 150, mostThreshold},
	} {
		if got := adapt(c.threshold, c.walks, c.budget); got != c.want {
			t.Errorf("%v with %v walks of %v: %v, want %v", c.threshold, c.walks, c.budget, got, c.want)
		}
	}
}
