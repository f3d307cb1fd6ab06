// Command throughput measures what is left of a program's throughput while it is sampled at a high rate, and whether it still does the same.
//
//	a program that does a fixed amount of work, sized to take -d alone
//	   -> alone, and with "atys record -p", in turns: wall time, output, status
//	   -> the recording: what was lost, what CPU time atys itself used
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/test/process"
)

var (
	rounds = flag.Int("rounds", 5, "interleaved rounds")
	length = flag.Duration("d", time.Minute, "how long a program takes alone, about")
	hz     = flag.Int("F", 10000, "frequency")
	only   = flag.String("only", "java-21,python-3.12", "runtimes, or families of them, separated by commas")
)

// What the issue asks for.
const (
	floorThroughput = 0.70
	floorLost       = 0.005
	floorOwn        = 0.05 // of a core
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *rounds < 1 || *length < time.Second {
		return errors.New("-rounds is 1 or more, -d 1s or more")
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	programs, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range programs {
		if err := p.measure(ctx, atys, dir); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p.runtime.Name, err))
		}
	}
	return errors.Join(append(failed, report(programs))...)
}

// testdata is where the programs are: this runs at the top of the tree.
const testdata = "bench/throughput/testdata"

func prepare(ctx context.Context, dir string) ([]*program, error) {
	chosen, err := runtimes.Chosen(*only)
	if err != nil {
		return nil, err
	}
	var programs []*program
	for _, r := range chosen {
		p := &program{runtime: r}
		switch r.Family {
		case "java":
			if _, err := harness.Run(ctx, "javac", "--release", "11", "-d", dir, filepath.Join(testdata, "Fixed.java")); err != nil {
				return nil, err
			}
			p.args = []string{"-cp", dir, "Fixed"}
		case "python":
			p.args = []string{filepath.Join(testdata, "fixed.py")}
		default:
			return nil, fmt.Errorf("-only %s: the programs are for java and python", r.Name)
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// program is one of ours on one runtime, and what was measured.
type program struct {
	runtime runtimes.Runtime
	args    []string
	work    int

	alone, sampled           []float64 // seconds
	own                      []float64 // cores
	kept, lost, cut, nothing int64
	expected                 float64  // samples: the CPU time that the kernel counted, times the rate
	differs                  []string // how runs with and without atys differed
}

// outcome is how one run ended.
type outcome struct {
	took   time.Duration
	output string
	status int
}

// start starts the program with so much work; the result ends it.
func (p *program) start(ctx context.Context, work int) (pid int, end func() (outcome, error), err error) {
	args := append(append(p.runtime.Command[1:len(p.runtime.Command):len(p.runtime.Command)], p.args...), strconv.Itoa(work))
	c := exec.CommandContext(ctx, p.runtime.Command[0], args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	began := time.Now()
	if err := c.Start(); err != nil {
		return 0, nil, err
	}
	return c.Process.Pid, func() (outcome, error) {
		err := c.Wait()
		took := time.Since(began)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return outcome{}, err
		}
		return outcome{took, out.String(), c.ProcessState.ExitCode()}, nil
	}, nil
}

// calibrate sizes the work so that it takes -d alone: by runs that get longer,
// for a runtime is slow at first.
func (p *program) calibrate(ctx context.Context) error {
	p.work = 200
	for {
		_, end, err := p.start(ctx, p.work)
		if err != nil {
			return err
		}
		one, err := end()
		if err != nil {
			return err
		}
		if one.status != 7 {
			return fmt.Errorf("it ends with status %d: %s", one.status, one.output)
		}
		wanted := float64(p.work) * length.Seconds() / one.took.Seconds()
		if one.took > *length/3 {
			p.work = int(wanted)
			return nil
		}
		p.work = int(min(wanted, 10*float64(p.work)))
	}
}

func (p *program) measure(ctx context.Context, atys, dir string) error {
	if err := p.calibrate(ctx); err != nil {
		return err
	}
	for round := range *rounds {
		var plain, with outcome
		var err error
		for i := range 2 {
			if (round+i)%2 == 0 {
				var end func() (outcome, error)
				if _, end, err = p.start(ctx, p.work); err == nil {
					plain, err = end()
				}
			} else {
				with, err = p.record(ctx, atys, filepath.Join(dir, "profile.pb.gz"))
			}
			if err != nil {
				return err
			}
		}
		p.alone, p.sampled = append(p.alone, plain.took.Seconds()), append(p.sampled, with.took.Seconds())
		if plain.output != with.output || plain.status != with.status || plain.status != 7 {
			p.differs = append(p.differs, fmt.Sprintf("status %d and %d, output %q and %q", plain.status, with.status, plain.output, with.output))
		}
		fmt.Fprintf(os.Stderr, "%s, round %d: %.1f s alone, %.1f s sampled\n", p.runtime.Name, round+1, plain.took.Seconds(), with.took.Seconds())
	}
	return nil
}

// record runs the program while atys samples it from outside, until it ends.
func (p *program) record(ctx context.Context, atys, path string) (outcome, error) {
	pid, end, err := p.start(ctx, p.work)
	if err != nil {
		return outcome{}, err
	}
	recording := exec.CommandContext(ctx, atys, "record", "-p", strconv.Itoa(pid), "-F", strconv.Itoa(*hz), "-o", path)
	var said bytes.Buffer
	recording.Stdout, recording.Stderr = &said, &said
	began := time.Now()
	if err := recording.Start(); err != nil {
		return outcome{}, err
	}
	with, err := end()
	if err != nil {
		return outcome{}, err
	}
	lasted := time.Since(began)
	_ = recording.Process.Signal(os.Interrupt) // it may have ended by itself
	if err := recording.Wait(); err != nil {
		return outcome{}, fmt.Errorf("atys record: %w: %s", err, said.Bytes())
	}
	w, err := format.Read(path)
	if err != nil {
		return outcome{}, err
	}
	state := recording.ProcessState
	p.own = append(p.own, (state.UserTime()+state.SystemTime()).Seconds()/lasted.Seconds())
	p.kept += w.N()
	p.expected += w.Exact.CPU.Seconds() * float64(*hz)
	p.lost += w.LossOf(profile.LossDropped).N
	p.cut += w.LossOf(profile.LossTruncated).N
	p.nothing += w.LossOf(profile.LossUnsymbolized).N
	return with, nil
}

func report(programs []*program) error {
	harness.Header()
	var t harness.Table
	t.Row("program", "alone", "sampled", "throughput", "samples", "of expected", "lost", "cut", "without a name", "CPU of atys", "same output and status")
	for _, p := range programs {
		share := func(n int64) string { return fmt.Sprintf("%.3f%%", 100*float64(n)/max(float64(p.kept+p.lost), 1)) }
		own := make([]float64, len(p.own))
		for i, o := range p.own {
			own[i] = 100 * o
		}
		same := "yes"
		if len(p.differs) > 0 {
			same = fmt.Sprintf("no, in %d of %d", len(p.differs), *rounds)
		}
		t.Row(p.runtime.Name, harness.Middle(p.alone, "s"), harness.Middle(p.sampled, "s"), harness.Ratio(p.alone, p.sampled), fmt.Sprint(p.kept),
			fmt.Sprintf("%.1f%%", 100*float64(p.kept)/p.expected), share(p.lost), share(p.cut), share(p.nothing), harness.Middle(own, "% of a core"), same)
	}
	t.Row("floor", "", "", fmt.Sprintf("%.2fx", floorThroughput), "", "", fmt.Sprintf("%.1f%%", 100*floorLost), "", "", fmt.Sprintf("%.0f%%", 100*floorOwn), "yes")
	if err := t.Print(); err != nil {
		return err
	}
	for _, p := range programs {
		for _, d := range p.differs {
			fmt.Printf("%s: %s\n", p.runtime.Name, d)
		}
	}
	return nil
}
