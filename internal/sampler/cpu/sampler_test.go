package cpu

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/test/testwait"
)

// needBPF skips where BPF may not be used, and only there: as root on a kernel
// that has it, failing to load is a failure.
func needBPF(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

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

// faults allocates, touches and frees memory all the time.
const faults = `exec perl -e 'while (1) { my $x = "x" x (50000000 + rand 10); undef $x }'`

// spin is a shell loop that never leaves the CPU by itself.
const spin = "while :; do :; done"

// start begins to sample with everything wired as a recorder does.
func start(t *testing.T, o Options) *Sampler {
	t.Helper()
	return startHearing(t, o, func(s *Sampler, e lifecycle.Event) { s.OnTask(e) })
}

// startHearing is start, but what the sampler hears of forks goes another way.
func startHearing(t *testing.T, o Options, hear func(*Sampler, lifecycle.Event)) *Sampler {
	t.Helper()
	needBPF(t)
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
	o.Unwinder, o.CPUs, o.Threads = u, cpus, true
	if o.Event.Name == "" {
		o.Event, _ = ParseEvent("cpu-clock")
	}
	if o.Frequency == 0 {
		o.Frequency = 499
	}
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	u.OnTask(func(e lifecycle.Event) { hear(s, e) })
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

func cut(t *testing.T, s *Sampler, after time.Duration) *profile.Window {
	t.Helper()
	time.Sleep(after)
	w, err := s.Cut()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// gather cuts windows until they hold enough together: a loaded machine is slow.
func gather(t *testing.T, s *Sampler, enough func(*profile.Window) bool) *profile.Window {
	t.Helper()
	whole := cut(t, s, 300*time.Millisecond)
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); {
		if enough(whole) {
			return whole
		}
		w, err := profile.Merge(whole, cut(t, s, 300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		whole = w
	}
	t.Fatalf("not enough after %v: %d samples, %v used", whole.Duration, whole.N(), whole.Exact.CPU)
	return nil
}

// samples is enough of them.
func samples(n int64) func(*profile.Window) bool {
	return func(w *profile.Window) bool { return w.N() >= n }
}

// complete gives the part of samples whose stack is whole.
func complete(w *profile.Window) float64 {
	var whole, all float64
	for _, r := range w.Rows.All() {
		end := w.Stacks[r.Stack].End
		if end == profile.EndStarting {
			continue
		}
		all += float64(r.N)
		if !end.Truncated() {
			whole += float64(r.N)
		}
	}
	if all == 0 {
		return 0
	}
	return whole / all
}

// A window's weights estimate the exact time, and its stacks are whole.
func TestWindow(t *testing.T) {
	for name, placement := range map[string]Placement{"cpus": PlaceCPUs, "threads": PlaceThreads} {
		t.Run(name, func(t *testing.T) {
			pid := shell(t, spin)
			s := start(t, Options{PIDs: []int{pid}, Spread: placement})
			for range 2 {
				w := gather(t, s, samples(100))
				exact := w.Exact.CPU.Seconds()
				if ratio := float64(w.Total(0)) / 1e9 / exact; ratio < 0.8 || ratio > 1.25 {
					t.Errorf("weights add up to %.2f of the exact time", ratio)
				}
				if c := complete(w); c < 0.99 {
					t.Errorf("%.1f%% of the stacks are complete: %v", 100*c, w.Losses)
				}
				if w.Design != profile.DesignRandomised {
					t.Errorf("design %q", w.Design)
				}
				for _, r := range w.Rows.All() {
					if w.Thread(r.Thread).PID != pid {
						t.Errorf("sampled process %d, not %d", w.Thread(r.Thread).PID, pid)
					}
				}
			}
		})
	}
}

// Children are targets from their first instruction, also after exec.
func TestChildren(t *testing.T) {
	for name, placement := range map[string]Placement{"cpus": PlaceCPUs, "threads": PlaceThreads} {
		t.Run(name, func(t *testing.T) { testChildren(t, placement) })
	}
}

func testChildren(t *testing.T, placement Placement) {
	pid := shell(t, "sleep 2; sh -c '"+spin+"' & wait")
	s := start(t, Options{PIDs: []int{pid}, Spread: placement, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	w := gather(t, s, func(w *profile.Window) bool {
		var n int64
		for _, r := range w.Rows.All() {
			if w.Thread(r.Thread).PID != pid {
				n += r.N
			}
		}
		return n >= 50
	})
	if c := complete(w); c < 0.97 {
		t.Errorf("%.1f%% of the stacks are complete: %v", 100*c, w.Losses)
	}
}

// A rate set live holds from a window's edge on, and weights stay right.
func TestLiveRates(t *testing.T) {
	fast, slow := shell(t, spin), shell(t, spin)
	s := start(t, Options{PIDs: []int{fast, slow}, Frequency: 1000, Spread: PlaceCPUs})
	cut(t, s, 200*time.Millisecond)
	if err := s.SetRates(map[int]float64{slow: 100}); err != nil {
		t.Fatal(err)
	}
	cut(t, s, 200*time.Millisecond) // its edge brings the rate in
	w := gather(t, s, samples(600))
	var n, value [2]float64
	var exact [2]float64
	for _, r := range w.Rows.All() {
		i := 0
		if w.Thread(r.Thread).PID == slow {
			i = 1
		}
		n[i] += float64(r.N)
		value[i] += float64(r.Values[0]) / 1e9
	}
	for _, th := range w.Threads {
		if th.PID == slow {
			exact[1] += th.Exact.CPU.Seconds()
		} else {
			exact[0] += th.Exact.CPU.Seconds()
		}
	}
	fastRate, slowRate := n[0]/exact[0], n[1]/exact[1]
	if r := fastRate / slowRate; r < 6 || r > 16 {
		t.Errorf("rates %.0f and %.0f Hz, wanted 1000 and 100", fastRate, slowRate)
	}
	if r := value[1] / exact[1]; r < 0.6 || r > 1.5 {
		t.Errorf("the thinned target's weights are %.2f of its exact time", r)
	}
	if err := s.SetRates(map[int]float64{slow: 0.1}); err == nil {
		t.Error("0.1 Hz was accepted")
	}
}

// TestAim has processes become targets, and be targets no longer, while others
// stay: weights are what was used from the edge on, and nothing after the last.
func TestAim(t *testing.T) {
	for name, placement := range map[string]Placement{"cpus": PlaceCPUs, "threads": PlaceThreads} {
		t.Run(name, func(t *testing.T) { testAim(t, placement) })
	}
}

func testAim(t *testing.T, placement Placement) {
	stays, comes := shell(t, spin), shell(t, spin)
	s := start(t, Options{Frequency: 999, Spread: placement})
	if w := cut(t, s, 100*time.Millisecond); w.N() != 0 || w.Exact.CPU != 0 {
		t.Errorf("without a target: %d samples, %v used", w.N(), w.Exact.CPU)
	}
	used := func(w *profile.Window) (sampled, exact map[int]float64) {
		sampled, exact = map[int]float64{}, map[int]float64{}
		for _, r := range w.Rows.All() {
			sampled[w.Thread(r.Thread).PID] += float64(r.Values[0]) / 1e9
		}
		for _, th := range w.Threads {
			exact[th.PID] += th.Exact.CPU.Seconds()
		}
		return sampled, exact
	}
	for _, step := range []struct {
		add, drop []int
		want      []int
	}{
		{[]int{stays}, nil, []int{stays}},
		{[]int{stays, comes}, nil, []int{stays, comes}},
		{nil, []int{comes, os.Getpid()}, []int{stays}},
		{[]int{comes}, nil, []int{stays, comes}},
	} {
		s.Aim(step.add, step.drop)
		cut(t, s, 100*time.Millisecond) // its edge brings the targets in
		sampled, exact := used(gather(t, s, samples(500)))
		if len(sampled) != len(step.want) || len(exact) != len(step.want) {
			t.Errorf("sampled %v, used %v; want %v", sampled, exact, step.want)
		}
		for _, pid := range step.want {
			if r := sampled[pid] / exact[pid]; r < 0.7 || r > 1.4 {
				t.Errorf("of %d %.2f of its exact time was sampled", pid, r)
			}
		}
	}
}

// TestAimWithin has a process start within a window, and become a target within it:
// its exact time begins where its samples do.
func TestAimWithin(t *testing.T) {
	s := start(t, Options{Frequency: 999})
	comes := shell(t, spin)
	time.Sleep(200 * time.Millisecond)
	if !s.Aim([]int{comes}, nil) || s.Aim([]int{comes}, nil) {
		t.Error("it is not told whether a target was none before")
	}
	if w := cut(t, s, 100*time.Millisecond); w.N() != 0 || w.Exact.CPU != 0 {
		t.Errorf("before it is sampled: %d samples, %v used", w.N(), w.Exact.CPU)
	}
	w := gather(t, s, samples(500))
	if r := float64(w.Total(0)) / float64(w.Exact.CPU); r < 0.7 || r > 1.4 {
		t.Errorf("%.2f of its exact time was sampled", r)
	}
}

// TestAimLater has a process, and a child that it has meanwhile, be targets that are
// sampled only from the edge after their release on.
func TestAimLater(t *testing.T) {
	begin := filepath.Join(t.TempDir(), "begin")
	parent := shell(t, "while [ ! -e "+begin+" ]; do :; done; sh -c '"+spin+"' & "+spin)
	s := start(t, Options{Frequency: 999})
	s.AimLater([]int{parent}, nil)
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the child is a target", func() bool { return known(s) == 2 })
	for range 3 {
		if w := cut(t, s, 200*time.Millisecond); w.N() != 0 || w.Exact.CPU != 0 {
			t.Errorf("before they are released: %d samples, %v used", w.N(), w.Exact.CPU)
		}
	}
	if !s.Release(parent) || s.Release(parent) {
		t.Error("it is not told whether they were held")
	}
	if w := cut(t, s, 100*time.Millisecond); w.N() != 0 || w.Exact.CPU != 0 {
		t.Errorf("before the edge: %d samples, %v used", w.N(), w.Exact.CPU)
	}
	w := gather(t, s, samples(500))
	if r := float64(w.Total(0)) / float64(w.Exact.CPU); r < 0.7 || r > 1.4 {
		t.Errorf("%.2f of their exact time was sampled", r)
	}
	if pids := slices.Compact(slices.Sorted(slices.Values(pidsOf(w)))); len(pids) != 2 {
		t.Errorf("sampled %v, not %d and its child", pids, parent)
	}
}

func pidsOf(w *profile.Window) (pids []int) {
	for _, r := range w.Rows.All() {
		pids = append(pids, w.Thread(r.Thread).PID)
	}
	return pids
}

// Everything on the machine: busy and idle time make up the time watched.
func TestWholeMachine(t *testing.T) {
	shell(t, spin)
	s := start(t, Options{All: true, Frequency: 199})
	w := cut(t, s, time.Second)
	seen := float64(w.Total(0)) + float64(w.Idle)
	if r := seen / float64(w.Watched); r < 0.85 || r > 1.15 {
		t.Errorf("busy and idle samples make up %.2f of the time watched", r)
	}
	if w.Exact.CPU < 100*time.Millisecond {
		t.Errorf("exact time %v", w.Exact.CPU)
	}
}

func TestTimed(t *testing.T) {
	pid := shell(t, spin)
	s := start(t, Options{PIDs: []int{pid}, Timed: true})
	w := cut(t, s, 500*time.Millisecond)
	if n := w.N(); n == 0 || int64(len(w.Samples)) != n {
		t.Fatalf("%d timed samples of %d", len(w.Samples), n)
	}
	var weight int64
	for i, sample := range w.Samples {
		if sample.Time < 0 || sample.Time > w.Duration+time.Millisecond {
			t.Errorf("sample at %v in a window of %v", sample.Time, w.Duration)
		}
		if i > 0 && sample.Time < w.Samples[i-1].Time {
			t.Error("samples are not in the order of their times")
		}
		weight += sample.Weight
	}
	if weight != w.Total(0) {
		t.Errorf("timed weights add up to %d, rows to %d", weight, w.Total(0))
	}
}

func TestSlots(t *testing.T) {
	pid := shell(t, spin)
	s := start(t, Options{PIDs: []int{pid}, Slot: 50 * time.Millisecond})
	w := gather(t, s, samples(100))
	slots := map[uint32]int64{}
	for _, r := range w.Rows.All() {
		slots[r.Slot] += r.N
	}
	if len(slots) < 5 || slots[0] != 0 || w.Slot != 50*time.Millisecond {
		t.Errorf("samples by slot of %v: %v", w.Slot, slots)
	}
	for slot := range slots {
		if at := w.SlotStart(slot).Sub(w.Start); at < -w.Slot/2 || at > w.Duration+w.Slot/2 { // slots lie at edges of the clock
			t.Errorf("slot %d begins %v after the window, which lasts %v", slot, at, w.Duration)
		}
	}
}

// Each event, sampled on a program that causes it.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"task-clock":                spin,
		"page-faults":               faults,
		"minor-faults":              faults,
		"context-switches":          "exec perl -e 'while (1) { select undef, undef, undef, 0.001 }'",
		"cpu-migrations":            "while :; do taskset -p -c 0 $$ >/dev/null; taskset -p -c 1 $$ >/dev/null; done",
		"syscalls:sys_enter_openat": "while :; do read x < " + file + "; done",
	} {
		t.Run(name, func(t *testing.T) {
			pid := shell(t, script)
			e, err := ParseEvent(name)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{PIDs: []int{pid}, Event: e, Frequency: 199}
			if !e.Clock {
				o.Count = 1
			}
			s := start(t, o)
			w := gather(t, s, samples(20))
			if !e.Clock && w.Total(0) != w.N() {
				t.Errorf("%d samples of weight 1 add up to %d", w.N(), w.Total(0))
			}
			if c := complete(w); c < 0.95 {
				t.Errorf("%.1f%% of the stacks are complete: %v", 100*c, w.Losses)
			}
		})
	}
}

// -e A+B: each sample of A tells how much of B its CPU saw.
func TestSecondEvent(t *testing.T) {
	pid := shell(t, "while :; do /bin/true; done")
	base, second, err := ParseEvents("cpu-clock+page-faults")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{PIDs: []int{pid}, Event: base, Second: second})
	w := gather(t, s, func(w *profile.Window) bool { return w.Total(1) > 0 })
	if len(w.Types) != 2 || w.Types[1].Kind != "page-faults" || w.Total(1) == 0 {
		t.Errorf("types %v, page faults %d", w.Types, w.Total(1))
	}
}

func TestCgroup(t *testing.T) {
	needBPF(t)
	root := ""
	for _, r := range cgroup2Roots {
		if _, err := os.Stat(filepath.Join(r, "cgroup.controllers")); err == nil {
			root = r
			break
		}
	}
	if root == "" {
		t.Fatal("this kernel has cgroup2, but it is mounted nowhere: mount -t cgroup2 none /sys/fs/cgroup/unified")
	}
	dir := filepath.Join(root, "atys-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	pid, other := shell(t, spin), shell(t, spin)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{Cgroup: dir})
	w := gather(t, s, samples(20))
	for _, r := range w.Rows.All() {
		if got := w.Thread(r.Thread).PID; got != pid {
			t.Errorf("sampled process %d, not %d (%d is outside the cgroup)", got, pid, other)
		}
	}
	scheduled, err := ParseEvent("sched:sched_stat_runtime")
	if err != nil {
		t.Fatal(err)
	}
	traced := gather(t, start(t, Options{Cgroup: dir, Event: scheduled, Count: 1}), samples(5))
	for _, r := range traced.Rows.All() {
		if got := traced.Thread(r.Thread).PID; got != pid {
			t.Errorf("traced process %d, not %d", got, pid)
		}
	}
	if got := ownCgroup([]int{pid}); got != dir {
		t.Errorf("the process's own cgroup is %q, not %q", got, dir)
	}
	unix.Kill(pid, unix.SIGKILL) // so that the cgroup can be removed
	time.Sleep(50 * time.Millisecond)
}

// Nothing of a closed sampler stays in the kernel or in our tables.
func TestCloseLeavesNothing(t *testing.T) {
	needBPF(t)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	t.Run("warm up", func(t *testing.T) { start(t, Options{PIDs: []int{shell(t, spin)}}) })
	before := open()
	t.Run("again", func(t *testing.T) {
		s := start(t, Options{PIDs: []int{shell(t, spin)}, Timed: true})
		cut(t, s, 50*time.Millisecond)
	})
	if after := open(); after > before {
		t.Errorf("%d file descriptors before, %d after", before, after)
	}
}

func TestRefusals(t *testing.T) {
	needBPF(t)
	_, err := New(Options{Frequency: 100000})
	if err == nil {
		t.Error("100,000 Hz was accepted")
	}
	cycles, _ := ParseEvent("cycles")
	cpus, _ := proc.Machine{}.OnlineCPUs()
	u, err := unwind.New(unwind.Options{Source: unwind.Proc{}, CPUs: cpus})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	s, err := New(Options{Unwinder: u, CPUs: cpus, All: true, Event: cycles, Frequency: 99})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start(); err != nil && !strings.Contains(err.Error(), "hardware performance counter") {
		t.Errorf("where there is no PMU, the error is %q", err)
	}
}

// TestSpent compares what samples are said to cost with what they can: of a timer
// each CPU's interrupts, whoever runs there, and some microseconds of BPF each.
func TestSpent(t *testing.T) {
	s := start(t, Options{PIDs: []int{shell(t, spin)}, Frequency: 99, MeasureCost: true})
	if err := s.SetFrequency(499); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cut(t, s, 0) // from here on at 499 Hz
	before, err := s.Spent()
	if err != nil {
		t.Fatal(err)
	}
	w := gather(t, s, samples(300))
	after, err := s.Spent()
	if err != nil {
		t.Fatal(err)
	}
	fired := (after.Interrupt - before.Interrupt).Seconds() / interruptCost().Seconds()
	atMost := 499 * float64(len(s.options.CPUs)) * time.Since(began).Seconds()
	if fired < float64(w.N()) || fired > atMost || fired < atMost/2 {
		t.Errorf("%.0f interrupts for %d samples of one process, at most %.0f", fired, w.N(), atMost)
	}
	each := time.Duration(int64(after.BPF-before.BPF) / w.N())
	if each < 200*time.Nanosecond || each > 200*time.Microsecond {
		t.Errorf("%v of BPF for each of %d samples", each, w.N())
	}
}
