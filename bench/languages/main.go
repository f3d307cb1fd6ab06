// Command languages measures what profiling an interpreted or compiled-at-run-time program costs: ours against the best profiler of its language.
//
// One program works without end and says how much it has done. Profilers are
// attached to it in turns, and between them it is watched alone. Cost is what
// the program does less while a profiler is at work, and the profiler's own CPU
// time, both as shares of one core and both of the middle of a recording: what
// a profiler spends once, at its start and end, stands apart.
//
// What a program does in a second of CPU time differs by a tenth from one second
// to the next on a shared machine. So of slow rates that part of the loss is not
// measured, but worked out: what a sample takes at a high rate, times the rate.
// For rivals that stop the program instead it counts as nothing; how long the
// program is kept from running is exact, and counts for all.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
)

var (
	rounds = flag.Int("rounds", 5, "interleaved rounds")
	length = flag.Duration("d", 15*time.Second, "length of a recording, the first 6.5 s of which do not count")
	only   = flag.String("only", "", "python or java; both if empty")
)

func main() { harness.Main(run) }

// A profiler is given so long to begin and to end, and a program to be itself
// again. Ours names what it has seen every 5 s, and reads the kernel's names
// when it first does.
const (
	begins = 6500 * time.Millisecond
	ends   = 500 * time.Millisecond
	settle = 1200 * time.Millisecond
)

// contest is a program and who profiles it.
type contest struct {
	language string
	target   []string
	rates    []int
	steep    int        // the rate by which a sample of ours is priced; 0: losses are measured at each rate
	rivals   []profiler // the first is ours, and compared with the others
}

// profiler attaches to a process.
type profiler struct {
	name string
	args func(pid, hz int, seconds int, out string) []string
}

func run(ctx context.Context, dir string) error {
	contests, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	var t harness.Table
	t.Row("target", "rate", "profiler", "kept waiting", "slower", "own CPU", "cost", "atys against it", "once")
	for _, c := range contests {
		for _, hz := range c.rates {
			if err := c.measure(ctx, hz, dir, &t); err != nil {
				return fmt.Errorf("%s at %d Hz: %w", c.language, hz, err)
			}
		}
	}
	harness.Header()
	return t.Print()
}

// prepare builds what is run. The rivals are those that .ci/peers installs.
func prepare(ctx context.Context, dir string) ([]contest, error) {
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	peers := filepath.Join(cache, "atys", "peers", "bin")
	for _, name := range []string{"py-spy", "asprof"} {
		if _, err := os.Stat(filepath.Join(peers, name)); err != nil {
			return nil, fmt.Errorf("%s is not installed: run .ci/peers", name)
		}
	}
	if _, err := harness.Run(ctx, "javac", "-d", dir, "bench/languages/testdata/Spin.java"); err != nil {
		return nil, err
	}
	ours := profiler{"atys", func(pid, hz, seconds int, out string) []string {
		return []string{atys, "record", "-p", strconv.Itoa(pid), "-F", strconv.Itoa(hz), "-d", fmt.Sprintf("%ds", seconds), "-o", out + ".pb.gz"}
	}}
	spy := func(name string, more ...string) profiler {
		return profiler{name, func(pid, hz, seconds int, out string) []string {
			return append([]string{filepath.Join(peers, "py-spy"), "record", "-p", strconv.Itoa(pid), "-r", strconv.Itoa(hz),
				"-d", strconv.Itoa(seconds), "-f", "raw", "-o", out + ".raw"}, more...)
		}}
	}
	async := profiler{"async-profiler", func(pid, hz, seconds int, out string) []string {
		return []string{filepath.Join(peers, "asprof"), "-e", "cpu", "-i", fmt.Sprintf("%dus", 1_000_000/hz),
			"-d", strconv.Itoa(seconds), "-o", "collapsed", "-f", out + ".collapsed", strconv.Itoa(pid)}
	}}
	contests := []contest{
		{"python", []string{"python3", "bench/languages/testdata/spin.py"}, []int{100, 1000}, 10000,
			[]profiler{ours, spy("py-spy"), spy("py-spy --nonblocking", "--nonblocking")}},
		{"java", []string{"java", "-cp", dir, "Spin"}, []int{1000, 5000, 10000}, 0, []profiler{ours, async}},
	}
	if *only != "" {
		for _, c := range contests {
			if c.language == *only {
				return []contest{c}, nil
			}
		}
		return nil, fmt.Errorf("-only %s: python or java", *only)
	}
	return contests, nil
}

// loss is what one recording took, as shares of a core, and what it took once.
type loss struct{ waiting, slower, own, once float64 }

// measure runs all rounds at one rate and adds their rows.
func (c *contest) measure(ctx context.Context, hz int, dir string, t *harness.Table) error {
	target, err := start(ctx, c.target)
	if err != nil {
		return err
	}
	defer target.stop()
	time.Sleep(3 * settle) // until what is compiled at run time is
	w := &watcher{contest: c, target: target, out: filepath.Join(dir, "profile")}
	losses := make([][]loss, len(c.rivals))
	for round := range *rounds {
		for i := range c.rivals {
			i = (i + round) % len(c.rivals)
			l, err := w.lose(ctx, i, hz)
			if err != nil {
				return err
			}
			losses[i] = append(losses[i], l)
			fmt.Fprintf(os.Stderr, "%s %d Hz, round %d: %s: kept waiting %.2f%%, slower %.2f%%, own %.2f%%, once %.2f s\n",
				c.language, hz, round+1, c.rivals[i].name, 100*l.waiting, 100*l.slower, 100*l.own, l.once)
		}
	}
	percent := func(i int, part func(loss) float64) (values []float64) {
		for _, l := range losses[i] {
			values = append(values, 100*part(l))
		}
		return values
	}
	whole := func(l loss) float64 { return l.waiting + l.slower + l.own }
	for i, p := range c.rivals {
		ratio := ""
		if i > 0 {
			ratio = harness.Ratio(percent(0, whole), percent(i, whole))
		}
		cell := func(part func(loss) float64) string { return harness.Middle(percent(i, part), "%") }
		once := make([]float64, 0, len(losses[i]))
		for _, l := range losses[i] {
			once = append(once, l.once)
		}
		t.Row(c.language, fmt.Sprintf("%d Hz", hz), p.name, cell(func(l loss) float64 { return l.waiting }),
			cell(func(l loss) float64 { return l.slower }), cell(func(l loss) float64 { return l.own }), cell(whole), ratio,
			harness.Middle(once, "s"))
	}
	return nil
}

// watcher attaches profilers to one target in turns.
type watcher struct {
	*contest
	target *target
	out    string
	alone  *pace // of the target, before what comes next
}

// lose tells what a profiler costs at a rate.
func (w *watcher) lose(ctx context.Context, rival, hz int) (loss, error) {
	l, err := w.attach(ctx, w.rivals[rival], hz)
	if err != nil || w.steep == 0 {
		return l, err
	}
	l.slower = 0
	if rival == 0 {
		steep, err := w.attach(ctx, w.rivals[rival], w.steep)
		if err != nil {
			return l, err
		}
		l.slower = steep.slower * float64(hz) / float64(w.steep)
	}
	return l, nil
}

// attach has a profiler record, and compares the target with itself alone
// before and after.
func (w *watcher) attach(ctx context.Context, p profiler, hz int) (l loss, err error) {
	if w.alone == nil {
		before, err := w.target.watch(*length / 2)
		if err != nil {
			return l, err
		}
		w.alone = &before
	}
	args := p.args(w.target.cmd.Process.Pid, hz, int(length.Seconds()), w.out)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return l, err
	}
	time.Sleep(begins)
	spent := cpuTime(cmd.Process.Pid)
	during, watchErr := w.target.watch(*length - begins - ends)
	spent = cpuTime(cmd.Process.Pid) - spent
	if err := errors.Join(cmd.Wait(), watchErr); err != nil {
		return l, fmt.Errorf("%s: %w: %s", p.name, err, said.String())
	}
	time.Sleep(settle)
	after, err := w.target.watch(*length / 2)
	if err != nil {
		return l, err
	}
	before := *w.alone
	w.alone = &after
	l.waiting = 1 - 2*during.running/(before.running+after.running)
	l.slower = 1 - 2*during.speed/(before.speed+after.speed)
	l.own = spent.Seconds() / during.length.Seconds()
	l.once = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds() - l.own*length.Seconds()
	return l, nil
}

// cpuTime is what a process has used, 0 if it has ended.
func cpuTime(pid int) time.Duration {
	const scheduled = 2 // which of a process's clocks; part of the kernel's interface
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// target is a program that says how much it has done.
type target struct {
	cmd *exec.Cmd

	mu   sync.Mutex // guards all below
	when float64    // by the target's clock, seconds
	done float64
}

func start(ctx context.Context, args []string) (*target, error) {
	t := &target{cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			var when, done float64
			if _, err := fmt.Sscan(s.Text(), &when, &done); err == nil {
				t.mu.Lock()
				t.when, t.done = when, done
				t.mu.Unlock()
			}
		}
	}()
	return t, nil
}

func (t *target) stop() {
	_ = t.cmd.Process.Kill() // it ends no other way
	_ = t.cmd.Wait()
}

// pace is how a target did for a while.
type pace struct {
	running float64 // cores
	speed   float64 // work a second of CPU time
	length  time.Duration
}

// watch watches the target, from one of its reports to another.
func (t *target) watch(length time.Duration) (pace, error) {
	pid := t.cmd.Process.Pid
	began, used := time.Now(), cpuTime(pid)
	when, done := t.said()
	time.Sleep(length)
	later, more := t.said()
	took := time.Since(began)
	running := (cpuTime(pid) - used).Seconds() / took.Seconds()
	if later <= when || running == 0 {
		return pace{}, fmt.Errorf("%s says nothing", t.cmd.Path)
	}
	return pace{running, (more - done) / (later - when) / running, took}, nil
}

func (t *target) said() (when, done float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.when, t.done
}
