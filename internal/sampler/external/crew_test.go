package external

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/test/testwait"
)

// idlers starts processes that do nothing.
func idlers(t *testing.T, n int) (pids []int) {
	t.Helper()
	for range n {
		pids = append(pids, victim(t, ".", "sh", "-c", "echo ready; exec sleep 1000"))
	}
	slices.Sort(pids)
	return pids
}

func newTestCrew(t *testing.T, o CrewOptions) *Crew {
	t.Helper()
	if o.Frequency == 0 {
		o.Frequency = 199
	}
	o.Window = 10 * time.Second
	c, err := NewCrew(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// TestPlan decides for processes that suit one kernel, another or none, of which
// there are too many, and that fail.
func TestPlan(t *testing.T) {
	pids := idlers(t, 5)
	now := time.Now()
	p := newPlanner(CrewOptions{Why: "because"})
	p.now = func() time.Time { return now }
	p.most = map[Kernel]int{Perf: 2, PySpy: 1, AsyncProfiler: 1}
	asked := 0
	p.fit = func(pid int) (Kernel, string) {
		asked++
		switch pid {
		case pids[0]:
			return "", "it is none"
		case pids[1]:
			return PySpy, ""
		}
		return Perf, ""
	}
	p.spent = func(int) (spent, bool) { return spent{}, true } // idle to the nanosecond, which no process is
	got := p.plan(pids, map[int]bool{})
	if fmt.Sprint(got.posts) != fmt.Sprint(map[post][]int{{Perf, 0}: pids[2:4], {PySpy, pids[1]}: {pids[1]}}) || got.unfit[pids[0]] != "it is none" || len(got.over) != 1 {
		t.Errorf("%+v", got)
	}
	if trouble := got.trouble(3, nil); trouble.Failed || trouble.Message != "because; 3 of 5 processes are recorded; it is none; perf records at most 2 processes at once, and there are 3 for it" {
		t.Errorf("%+v", trouble)
	}
	if got.trouble(0, nil).Failed != true || (&plan{}).trouble(0, nil) != (sampler.Trouble{}) {
		t.Error("nothing of something is a failure, and nothing of nothing is none")
	}
	p.plan(pids, map[int]bool{})
	if asked != len(pids) {
		t.Errorf("%d processes were looked at for %d", asked, len(pids))
	}
	p.note(failure{pids[2:3], errors.New("no rights")})
	if got := p.plan(pids, nil); !slices.Equal(got.posts[post{Perf, 0}], pids[3:5]) || fmt.Sprint(p.failures(pids)) != fmt.Sprintf("[process %d: no rights]", pids[2]) {
		t.Errorf("%+v, %v", got, p.failures(pids))
	}
	if now = now.Add(2 * leaveAlone); len(p.plan(pids, nil).over) != 1 || len(p.failures(pids)) != 0 {
		t.Error("what failed is not tried again")
	}
	for i := range 5 {
		p.note(failure{pids[i : i+1], fmt.Errorf("reason %d", i)})
	}
	if words := p.failures(pids); len(words) != mostTold+1 || words[mostTold] != "and 2 other failures" {
		t.Errorf("%q", words)
	}
}

// TestBusiest has those be recorded that use most, and rather those that are.
func TestBusiest(t *testing.T) {
	busy := victim(t, ".", "sh", "-c", "echo ready; while :; do :; done")
	pids := append(idlers(t, 2), busy)
	slices.Sort(pids)
	p := newPlanner(CrewOptions{})
	testwait.Until(t, "the busy one is the first", func() bool {
		time.Sleep(100 * time.Millisecond) // in which it uses some
		return p.busiest(pids, nil)[0] == busy
	})
}

// TestCrewRefusals are told before anything is started.
func TestCrewRefusals(t *testing.T) {
	if _, err := NewCrew(CrewOptions{Kernel: AsyncProfiler}); !errors.Is(err, ErrConsent) || !strings.Contains(err.Error(), "allowAttach") {
		t.Errorf("without consent: %v", err)
	}
	if _, err := NewCrew(CrewOptions{Kernel: "vtune"}); err == nil {
		t.Error("there is no such kernel")
	}
	t.Setenv("PATH", t.TempDir())
	for _, k := range append(Kernels(), "") {
		if _, err := NewCrew(CrewOptions{Kernel: k, AllowAttach: true}); err == nil || !strings.Contains(err.Error(), "installed") {
			t.Errorf("%q: %v", k, err)
		}
	}
}

// TestCrewFrequency changes the rate while a cut is under way, which takes seconds:
// who asks for it has others to cut meanwhile.
func TestCrewFrequency(t *testing.T) {
	needs(t, "perf")
	c := newTestCrew(t, CrewOptions{Kernel: Perf})
	c.Aim(idlers(t, 1), nil)
	cutEach(t, c, false)
	c.cutting.Lock()
	changed := make(chan error)
	go func() { changed <- c.SetFrequency(97) }()
	select {
	case err := <-changed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testwait.Longest(t)):
		t.Error("it waits for the cut")
		defer func() { <-changed }()
	}
	c.cutting.Unlock()
	cutEach(t, c, false) // its edge brings the rate in
	for _, w := range cutEach(t, c, true) {
		if said := fmt.Sprint(w.Comments); !strings.Contains(said, "at 97 Hz") {
			t.Errorf("the window after says %s", said)
		}
	}
	if err := c.SetFrequency(0.1); err == nil {
		t.Error("0.1 Hz was accepted")
	}
}

// TestCrewRates gives processes rates of their own; a tool of several has the highest.
func TestCrewRates(t *testing.T) {
	c := &Crew{frequency: 999, rates: map[int]float64{}}
	if err := c.SetRates(map[int]float64{1: 19, 2: 99, 3: 19}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pids  []int
		hz    float64
		mixed bool
	}{
		"one": {[]int{1}, 19, false}, "of the same": {[]int{1, 3}, 19, false}, "of several": {[]int{1, 2, 3}, 99, true},
		"one without": {[]int{4}, 999, false}, "with one without": {[]int{1, 4}, 999, true}, "none": {nil, 0, false},
	} {
		if hz, mixed := c.rateOf(test.pids); hz != test.hz || mixed != test.mixed {
			t.Errorf("%s: %g Hz, of several: %v; want %g, %v", name, hz, mixed, test.hz, test.mixed)
		}
	}
	said := c.share(plan{posts: map[post][]int{{PySpy, 1}: {1}, {Perf, 0}: {2, 3}}})
	if len(said) != 1 || said[0] != "perf samples all of its processes at one rate, the highest of theirs: 99 Hz" {
		t.Errorf("%q", said)
	}
	if err := c.SetRates(map[int]float64{1: 0.5}); err == nil || !strings.Contains(err.Error(), "process 1") {
		t.Errorf("0.5 Hz: %v", err)
	}
	if err := c.SetFrequency(50); err != nil {
		t.Fatal(err)
	}
	if hz, _ := c.rateOf([]int{1, 2}); hz != 50 {
		t.Errorf("%g Hz, where all were to have 50", hz)
	}
}

// cutUntil cuts a crew until a process was sampled often enough.
func cutUntil(t *testing.T, c *Crew, pid int, n int64) (all []*profile.Window) {
	t.Helper()
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(500 * time.Millisecond) {
		all = append(all, cutEach(t, c, false)...)
		if samplesOf(all, pid) >= n {
			return all
		}
	}
	t.Fatalf("%d samples of %d; %+v", samplesOf(all, pid), pid, c.Trouble())
	return nil
}

func samplesOf(windows []*profile.Window, pid int) (n int64) {
	for _, w := range windows {
		for _, row := range w.Rows.All() {
			if w.Thread(row.Thread).PID == pid {
				n += row.N
			}
		}
	}
	return n
}

// exactOf sums what the threads of a process used, of which each is named once.
func exactOf(t *testing.T, windows []*profile.Window, pid int) (sum time.Duration) {
	t.Helper()
	for _, w := range windows {
		whole := time.Duration(0)
		for _, thread := range w.Threads {
			if whole += thread.Exact.CPU; thread.PID == pid {
				sum += thread.Exact.CPU
			}
		}
		if whole != w.Exact.CPU {
			t.Errorf("threads used %v of %v", whole, w.Exact.CPU)
		}
	}
	return sum
}

// TestCrewOfPerf records two processes at once, leaves one, and follows no child.
func TestCrewOfPerf(t *testing.T) {
	needs(t, "perf")
	needsRoot(t)
	const busy = "echo ready; while :; do :; done"
	one, parent := victim(t, ".", "sh", "-c", busy), victim(t, ".", "sh", "-c", "while :; do sleep 0.1; done & "+busy)
	c := newTestCrew(t, CrewOptions{Kernel: Perf})
	c.Aim([]int{one, parent, os.Getpid()}, nil)
	c.Aim(nil, []int{os.Getpid()})
	cutEach(t, c, false)
	windows := append(cutUntil(t, c, one, 50), cutUntil(t, c, parent, 50)...)
	for _, w := range windows {
		for _, thread := range w.Threads {
			if thread.PID != one && thread.PID != parent {
				t.Errorf("a stranger was recorded: %+v", thread)
			}
		}
	}
	if exactOf(t, windows, one) == 0 || exactOf(t, windows, parent) == 0 {
		t.Error("what was used is not known")
	}
	if c.Trouble() != (sampler.Trouble{}) || c.Lead() == 0 {
		t.Errorf("%+v, lead %v", c.Trouble(), c.Lead())
	}
	c.Aim(nil, []int{one})
	cutEach(t, c, false)
	time.Sleep(300 * time.Millisecond)
	if left := cutEach(t, c, false); samplesOf(left, one) != 0 {
		t.Error("what it is not aimed at is still recorded")
	}
	unix.Kill(parent, unix.SIGKILL)
	testwait.Until(t, "its recording has ended", func() bool {
		time.Sleep(200 * time.Millisecond)
		cutEach(t, c, false)
		return len(c.members) == 0
	})
	if len(c.members) != 0 || c.Trouble() != (sampler.Trouble{}) {
		t.Errorf("all have ended: %v, %+v", c.members, c.Trouble())
	}
	c.Close()
	clean(t, one)
}

// TestCrewOfPySpy records Python alone, one py-spy each, and says what is none.
func TestCrewOfPySpy(t *testing.T) {
	needs(t, "python3", "py-spy")
	needsRoot(t)
	python, other := victim(t, ".", "python3", "testdata/victim.py", "child"), idlers(t, 1)[0]
	c := newTestCrew(t, CrewOptions{Kernel: PySpy})
	c.Aim([]int{other}, nil)
	cutEach(t, c, false)
	if trouble := c.Trouble(); !trouble.Failed || trouble.Message != "0 of 1 processes are recorded; py-spy records Python alone" {
		t.Errorf("%+v", trouble)
	}
	c.Aim([]int{python}, nil)
	cutEach(t, c, false)
	windows := cutUntil(t, c, python, 100)
	if trouble := c.Trouble(); trouble.Failed || !strings.HasPrefix(trouble.Message, "1 of 2 processes are recorded") {
		t.Errorf("%+v", trouble)
	}
	whole, err := profile.Merge(windows...)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, whole, "", python)
	for _, thread := range whole.Threads {
		if thread.PID != python || thread.Process == "" {
			t.Errorf("a thread of its child, or of nobody: %+v", thread)
		}
	}
	if exactOf(t, windows, python) == 0 {
		t.Error("what was used is not known")
	}
	c.Close()
	clean(t, python)
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "atys-py-spy-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestCrewOfAsyncProfiler records two JVMs, and leaves nothing of its own in them.
func TestCrewOfAsyncProfiler(t *testing.T) {
	needsRoot(t)
	pids := []int{javaVictim(t), javaVictim(t)}
	c := newTestCrew(t, CrewOptions{Kernel: AsyncProfiler, AllowAttach: true})
	c.Aim(pids, nil)
	cutEach(t, c, false)
	for _, pid := range pids {
		windows := cutUntil(t, c, pid, 50)
		if exactOf(t, windows, pid) == 0 {
			t.Error("what was used is not known")
		}
	}
	windows := cutEach(t, c, true)
	if len(windows) != 2 || len(c.members) != 0 {
		t.Errorf("the last cut gives %d windows, and %v go on", len(windows), c.members)
	}
	for _, pid := range pids {
		clean(t, pid)
		if _, err := (proc.FS{}).Check(pid); err != nil {
			t.Error(err)
		}
	}
}

// TestCrewIsKilled closes a crew while it is at a cut.
func TestCrewIsKilled(t *testing.T) {
	needs(t, "python3", "py-spy")
	needsRoot(t)
	python := victim(t, ".", "python3", "testdata/victim.py")
	c := newTestCrew(t, CrewOptions{AllowAttach: true})
	c.Aim([]int{python}, nil)
	at := make(chan struct{})
	go func() {
		cutEach(t, c, false)
		cutEach(t, c, false)
		close(at)
	}()
	time.Sleep(100 * time.Millisecond)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-at
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	clean(t, python)
}

// cutEach has a crew cut.
func cutEach(t *testing.T, c *Crew, last bool) []*profile.Window {
	t.Helper()
	windows, err := c.Cut(sampler.Edge{Last: last})
	if err != nil {
		t.Fatal(err)
	}
	return windows
}
