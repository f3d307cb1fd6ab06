package cpu

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

// rate is the samples taken in a second of CPU time.
func rate(w *profile.Window) float64 { return float64(w.N()) / w.Exact.CPU.Seconds() }

// used is enough CPU time.
func used(d time.Duration) func(*profile.Window) bool {
	return func(w *profile.Window) bool { return w.Exact.CPU >= d }
}

// use waits until a process has used CPU time: a loaded machine is slow.
func use(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	spent := func() time.Duration {
		stat, err := proc.FS{}.ThreadTime(pid, pid)
		if err != nil {
			t.Fatal(err)
		}
		return stat.Run
	}
	for until := spent() + d; spent() < until; {
		time.Sleep(20 * time.Millisecond)
	}
}

// A rate holds for whole windows: the one in which it is set keeps its own, and
// the next has it from its first sample on.
func TestRatesHoldFromAnEdge(t *testing.T) {
	pid := shell(t, spin)
	s := start(t, Options{PIDs: []int{pid}, Frequency: 1000, Spread: PlaceCPUs})
	cut(t, s, 200*time.Millisecond)
	if err := s.SetRates(map[int]float64{pid: 100}); err != nil {
		t.Fatal(err)
	}
	use(t, pid, 300*time.Millisecond)
	before := cut(t, s, 0)
	if r := rate(before); r < 700 || r > 1400 || before.Types[0].Period != 1e6 {
		t.Errorf("%.0f Hz, said to be a sample each %d ns, in the window in which 1000 Hz were changed", r, before.Types[0].Period)
	}
	after := gather(t, s, used(time.Second))
	if r := rate(after); r < 60 || r > 150 || after.Types[0].Period != 1e7 {
		t.Errorf("%.0f Hz, said to be a sample each %d ns, in the windows after, wanted 100 Hz", r, after.Types[0].Period)
	}
}

// At few samples a second too, weights add up to the time used.
func TestLowRate(t *testing.T) {
	s := start(t, Options{PIDs: []int{shell(t, spin)}, Frequency: 20, Spread: PlaceCPUs})
	w := gather(t, s, used(3*time.Second))
	if r := rate(w); r < 10 || r > 32 {
		t.Errorf("%.1f Hz, wanted 20", r)
	}
	if ratio := float64(w.Total(0)) / float64(w.Exact.CPU); ratio < 0.6 || ratio > 1.5 {
		t.Errorf("%d samples weigh %.2f of the time used", w.N(), ratio)
	}
}

// switching runs a little, and sleeps, again and again.
const switching = `exec perl -e 'while (1) { for (1..3000) { $x += $_ } select undef, undef, undef, 0.001 }'`

var switchCount = regexp.MustCompile(`ctxt_switches:\t(\d+)`)

// switches is how often a process has left a CPU.
func switches(t *testing.T, pid int) (n int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range switchCount.FindAllSubmatch(status, -1) {
		one, _ := strconv.Atoi(string(m[1]))
		n += one
	}
	return n
}

// -c N keeps one event in N at random: each stands for N, and for what all N
// saw of the second event.
func TestThinned(t *testing.T) {
	const n = 4
	base, second, err := ParseEvents("context-switches+context-switches")
	if err != nil {
		t.Fatal(err)
	}
	pid := shell(t, switching)
	s := start(t, Options{PIDs: []int{pid}, Event: base, Second: second, Count: n})
	cut(t, s, 200*time.Millisecond)
	before := switches(t, pid)
	w := gather(t, s, samples(400))
	truth := float64(switches(t, pid) - before)
	if w.Design != profile.DesignThinned || w.Total(0) != n*w.N() {
		t.Errorf("design %q, %d samples weigh %d", w.Design, w.N(), w.Total(0))
	}
	if ratio := float64(w.Total(0)) / truth; ratio < 0.75 || ratio > 1.3 {
		t.Errorf("weights add up to %.2f of %.0f context switches", ratio, truth)
	}
	// each switch has seen one since the CPU's last: itself, or the one before it;
	// and those of other processes, since the second event is counted by CPU. Not
	// scaled it would be a fourth of that, scaled twice four times.
	if ratio := float64(w.Total(1)) / float64(w.Total(0)); ratio < 0.9 || ratio > 2.5 {
		t.Errorf("the second event, which is the first, adds up to %.2f of it", ratio)
	}
}

// A stack that found no room is neither whole nor empty: it is said to be lost.
func TestLostStacks(t *testing.T) {
	s := start(t, Options{PIDs: []int{shell(t, faults)}})
	arena, err := bpf.MapSlice[uint64](mapOf(t, s, "arena_1")) // the next window's
	if err != nil {
		t.Fatal(err)
	}
	atomic.StoreUint64(&arena.Values[0], uint64(len(arena.Values)))
	if err := arena.Close(); err != nil {
		t.Fatal(err)
	}
	cut(t, s, 100*time.Millisecond)
	var w *profile.Window
	for deadline := time.Now().Add(testwait.Longest(t)); ; {
		time.Sleep(300 * time.Millisecond)
		if used := s.table.Samples(); used > 50 || time.Now().After(deadline) {
			w = cut(t, s, 0)
			break
		}
	}
	if w.N() == 0 {
		t.Fatal("no samples")
	}
	for _, r := range w.Rows.All() {
		if stack := w.Stacks[r.Stack]; stack.End != profile.EndLost {
			t.Errorf("a stack of %d frames ends %q", len(stack.Locations), stack.End)
		}
	}
	if lost := w.LossOf(profile.LossTruncated); lost.N != w.N() {
		t.Errorf("%d of %d samples are counted as truncated", lost.N, w.N())
	}
	if w = gather(t, s, samples(20)); complete(w) < 0.9 {
		t.Errorf("%.1f%% of the stacks of later windows are complete: %v", 100*complete(w), w.Losses)
	}
}

// What a process uses until the very end counts: here mostly to give its memory
// back, after its exit has been reported.
func TestExactTimeOfExit(t *testing.T) {
	cmd := exec.Command("perl", "-e", `<STDIN>; my $x = "x" x 500000000; exit`)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if stat, err := (proc.FS{}).Stat(pid); err == nil && stat.Comm == "perl" && stat.State == 'S' {
			break // it waits
		}
	}
	s := start(t, Options{PIDs: []int{pid}})
	before, err := proc.FS{}.ThreadTime(pid, pid)
	if err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	truth := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() - before.Run
	var got time.Duration
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); { // the kernel forgets it soon
		if got += cut(t, s, 50*time.Millisecond).Exact.CPU; got > truth-2*time.Millisecond {
			break
		}
	}
	if off := (got - truth).Abs(); off > 2*time.Millisecond {
		t.Errorf("%v, and the kernel says %v", got, truth)
	}
}
