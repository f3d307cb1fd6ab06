// Command truth asks of each language whether shares of functions, and of lines, hold: what a program says it burned there, against what was sampled.
//
//	testdata/burning.* on each runtime (programs.go) -> one recording that keeps the time of each sample
//	   -> cut into short windows (truth.CutBy), each sample in the program's innermost function (leaf.go)
//	   -> each function's share with its interval against the log, then each line's (score.go)
//
// Programs read the CPU time of their thread around each burn: ThreadMXBean,
// time.thread_time_ns, process.cpuUsage and their like. Erlang is left out: it
// tells no CPU time finer than a millisecond.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/test/truth"
	"atys.dev/atys/test/victims"
)

var (
	windows = flag.Int("windows", 500, "windows of each runtime")
	length  = flag.Duration("d", 500*time.Millisecond, "length of a window; whole steps of 10 ms")
	hz      = flag.Float64("F", 999, "frequency")
	only    = flag.String("only", "", "runtimes, or families of them, separated by commas: java-21,java-21-int,python,php-jit; all if empty")
	atOnce  = flag.Int("at-once", 2, "programs that run at the same time; more make fewer samples each where CPUs are short")
	verbose = flag.Bool("v", false, "print each function and line too")
)

// lead is what programs run longer than their windows take: a recording begins
// after them and ends before.
const lead = 10 * time.Second

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *windows < 2 || *atOnce < 1 || *length < 10*time.Millisecond || *length%(10*time.Millisecond) != 0 {
		return errors.New("-windows is 2 or more, -at-once 1 or more, -d a multiple of 10ms")
	}
	runs, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	var failed []error // one that fails leaves what the others took an hour for
	for some := range slices.Chunk(runs, *atOnce) {
		failed = append(failed, together(ctx, some))
	}
	return errors.Join(append(failed, report(runs))...)
}

// program is one of ours on one runtime, and how its intervals held.
type program struct {
	runtime runtimes.Runtime
	args    []string
	places  map[int]string // what burns in each line of the source; nil: lines are not told

	running          *victims.Victim
	functions, lines truth.Score
	unnamed, sampled int // samples that show none of its functions
}

// together records some programs at once.
func together(ctx context.Context, runs []*program) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	span := time.Duration(*windows+1) * *length // one is lost to alignment
	var pids []int
	for _, p := range runs {
		command := append(append(p.runtime.Command[:len(p.runtime.Command):len(p.runtime.Command)], p.args...), fmt.Sprint((span + lead).Seconds()))
		var err error
		if p.running, err = victims.Start(ctx, command[0], command[1:]...); err != nil {
			return fmt.Errorf("%s: %w", p.runtime.Name, err)
		}
		pids = append(pids, p.running.PID)
	}
	whole, epoch, err := record(ctx, runs, pids, span)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range runs {
		failed = append(failed, p.judge(whole, epoch))
		fmt.Fprintf(os.Stderr, "%s: %d windows, %.2f%% covered\n", p.runtime.Name, p.functions.Windows, 100*p.functions.Coverage().Value)
	}
	return errors.Join(failed...)
}

func record(ctx context.Context, runs []*program, pids []int, span time.Duration) (*profile.Window, time.Time, error) {
	r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{PIDs: pids}, Event: "cpu-clock",
		Frequency: *hz, Threads: true, Timed: true, MayAsk: true})
	if err != nil {
		return nil, time.Time{}, err
	}
	defer r.Close()
	for i, p := range runs {
		if err := p.runtime.Await(r.Unwinder(), pids[i]); err != nil {
			return nil, time.Time{}, err
		}
	}
	if _, err := r.Cut(); err != nil { // what was seen before does not count
		return nil, time.Time{}, err
	}
	epoch, err := truth.Epoch()
	if err != nil {
		return nil, time.Time{}, err
	}
	whole, err := r.Record(ctx, span, nil)
	return whole, epoch, err
}

// judge waits for the program's log and scores its windows.
func (p *program) judge(whole *profile.Window, epoch time.Time) error {
	text, err := p.running.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", p.runtime.Name, err)
	}
	log, err := truth.Read(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", p.runtime.Name, err)
	}
	leaf := p.newLeaf(log, log.Only(whole))
	p.sampled, p.unnamed = leaf.count()
	functions := log.Renamed(functionOf)
	for _, o := range truth.CutBy(leaf.window, epoch, *length, leaf.function) {
		p.functions.Add(functions, o)
	}
	if p.places == nil {
		return nil
	}
	for _, o := range truth.CutBy(leaf.window, epoch, *length, leaf.line) {
		p.lines.Add(log, o)
	}
	return nil
}
