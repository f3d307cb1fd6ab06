// Command languages measures what profiling an interpreted or compiled-at-run-time program costs: ours against the best profiler of its language.
//
// One program works without end and says how much it has done. Profilers are
// attached to it in turns. Cost is what the program does less while one is at
// work, and the profiler's own CPU time: both as shares of one core. What a
// profiler spends once does not count: its CPU time is that of a long
// recording less that of a short one.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"atys.dev/atys/bench/harness"
)

var (
	rounds = flag.Int("rounds", 5, "interleaved rounds")
	long   = flag.Duration("long", 6*time.Second, "length of a recording")
	short  = flag.Duration("short", 2*time.Second, "length of the recording by which it is corrected")
	only   = flag.String("only", "", "python or java; both if empty")
)

func main() { harness.Main(run) }

// settle is how long a profiler is given to begin, and a program to be itself again.
const settle = 1200 * time.Millisecond

// contest is a program and who profiles it.
type contest struct {
	language string
	target   []string
	rates    []int
	rivals   []profiler // the first is compared with the others
}

// profiler attaches to a process.
type profiler struct {
	name string
	args func(pid, hz int, seconds int, out string) []string
}

func run(ctx context.Context) error {
	flag.Parse()
	dir, err := os.MkdirTemp("", "atys-languages")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	contests, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	var t harness.Table
	t.Row("target", "rate", "profiler", "slow-down", "own CPU", "cost", "atys against it")
	for _, c := range contests {
		for _, hz := range c.rates {
			if err := c.measure(ctx, hz, dir, &t); err != nil {
				return fmt.Errorf("%s at %d Hz: %w", c.language, hz, err)
			}
		}
	}
	harness.Header(os.Stdout, fmt.Sprintf("go run ./bench/languages -rounds %d -long %v -short %v", *rounds, *long, *short))
	return t.Print(os.Stdout)
}

// prepare builds what is run. The rivals are those that .ci/peers installs.
func prepare(ctx context.Context, dir string) ([]contest, error) {
	atys, err := harness.Build(dir)
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
		{"python", []string{"python3", "bench/languages/testdata/spin.py"}, []int{100, 1000},
			[]profiler{ours, spy("py-spy"), spy("py-spy --nonblocking", "--nonblocking")}},
		{"java", []string{"java", "-cp", dir, "Spin"}, []int{1000, 5000, 10000}, []profiler{ours, async}},
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

// measure runs all rounds at one rate and adds their rows.
func (c *contest) measure(ctx context.Context, hz int, dir string, t *harness.Table) error {
	target, err := start(ctx, c.target)
	if err != nil {
		return err
	}
	defer target.stop()
	time.Sleep(3 * settle) // until what is compiled at run time is
	slower, own, cost := make([][]float64, len(c.rivals)), make([][]float64, len(c.rivals)), make([][]float64, len(c.rivals))
	for round := range *rounds {
		for i := range c.rivals {
			i = (i + round) % len(c.rivals)
			slow, spent, err := c.once(ctx, target, c.rivals[i], hz, filepath.Join(dir, "profile"))
			if err != nil {
				return err
			}
			slower[i], own[i], cost[i] = append(slower[i], 100*slow), append(own[i], 100*spent), append(cost[i], 100*(slow+spent))
			fmt.Fprintf(os.Stderr, "%s %d Hz, round %d: %s: slow-down %.2f%%, own %.2f%%\n", c.language, hz, round+1, c.rivals[i].name, 100*slow, 100*spent)
		}
	}
	for i, p := range c.rivals {
		ratio := ""
		if i > 0 {
			ratio = harness.Ratio(cost[0], cost[i])
		}
		t.Row(c.language, fmt.Sprintf("%d Hz", hz), p.name, harness.Middle(slower[i], "%"), harness.Middle(own[i], "%"), harness.Middle(cost[i], "%"), ratio)
	}
	return nil
}

// once records for a short and for a long time, and tells by how much the target
// was slower in the long one and what share of a core the profiler used.
func (c *contest) once(ctx context.Context, target *target, p profiler, hz int, out string) (slower, own float64, err error) {
	record := func(d time.Duration) (harness.Spent, error) {
		args := p.args(target.cmd.Process.Pid, hz, int(d.Seconds()), out)
		return harness.Run(ctx, args[0], args[1:]...)
	}
	brief, err := record(*short)
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(settle)
	before, err := target.speed(*long / 2)
	if err != nil {
		return 0, 0, err
	}
	var during float64
	var speedErr error
	var done sync.WaitGroup
	done.Go(func() {
		time.Sleep(settle)
		during, speedErr = target.speed(*long - 2*settle)
	})
	full, err := record(*long)
	done.Wait()
	if err != nil || speedErr != nil {
		return 0, 0, fmt.Errorf("%w %w", err, speedErr)
	}
	time.Sleep(settle)
	after, err := target.speed(*long / 2)
	if err != nil {
		return 0, 0, err
	}
	return 1 - 2*during/(before+after), (full.CPU - brief.CPU).Seconds() / (*long - *short).Seconds(), nil
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

// speed is how much the target does in a second, over the time given.
func (t *target) speed(over time.Duration) (float64, error) {
	at := func() (float64, float64) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.when, t.done
	}
	when, done := at()
	time.Sleep(over)
	later, more := at()
	if later <= when {
		return 0, fmt.Errorf("%s says nothing", t.cmd.Path)
	}
	return (more - done) / (later - when), nil
}
