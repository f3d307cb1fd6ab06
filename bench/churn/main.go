// Command churn looks for wrong names: programs make functions and forget them as fast as they can, and every pair of caller and callee that is seen must be one that they make.
//
//	testdata/churning.* (programs.go) -> recorded at a high rate until enough samples are there
//	   -> each pair of neighbours on each stack, if one of them was made: legal or not (pairs.go)
//
// What is gone before anybody looks has no name, and no name is no wrong name;
// how many there were is printed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
)

var (
	samples  = flag.Int64("samples", 40_000, "samples of each program")
	hz       = flag.Float64("F", 9999, "frequency")
	batch    = flag.Duration("batch", 5*time.Second, "length of a recording; programs are recorded until there are enough samples")
	patience = flag.Duration("patience", 2*time.Minute, "give up on a program after this long")
	only     = flag.String("only", "", "programs, or families of them, separated by commas: java-21-deopt,python,node-20; all if empty")
	top      = flag.Int("top", 5, "how many illegal pairs to print of each program")
)

// floorIllegal is what the issue asks for: illegal pairs among legal ones.
const floorIllegal = 1e-5

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *samples < 1 || *batch <= 0 {
		return errors.New("-samples and -batch are more than 0")
	}
	programs, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	var failed []error // one that fails leaves what the others have shown
	for _, p := range programs {
		if err := p.record(ctx); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p.runtime.Name, err))
		}
		fmt.Fprintf(os.Stderr, "%s: %d samples, %d pairs, %d illegal\n", p.runtime.Name, p.seen.samples, p.seen.pairs, p.seen.wrong())
	}
	return errors.Join(append(failed, report(programs))...)
}

// record runs a program and records it until there are enough samples.
func (p *program) record(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pid, wait, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer wait()
	defer cancel()
	r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{PIDs: []int{pid}}, Event: "cpu-clock", Frequency: *hz, Threads: true})
	if err != nil {
		return err
	}
	if err = p.follow(ctx, r, pid); err != nil {
		return errors.Join(err, r.Close())
	}
	return r.Close()
}

func (p *program) follow(ctx context.Context, r *recorder.Recorder, pid int) error {
	if err := p.runtime.Await(r.Unwinder(), pid); err != nil {
		return err
	}
	for began := time.Now(); p.seen.samples < *samples; {
		if time.Since(began) > *patience {
			return fmt.Errorf("%d samples after %v, %d are wanted: a larger -patience or fewer -samples", p.seen.samples, *patience, *samples)
		}
		w, err := r.Record(ctx, *batch, nil)
		if err != nil {
			return err
		}
		p.seen.add(p.runtime, w)
		p.lost += w.LossOf(profile.LossDropped).N
	}
	return nil
}

func report(programs []*program) error {
	harness.Header()
	var t harness.Table
	t.Row("program", "samples", "made functions in", "cut", "without a name", "lost", "fours seen", "pairs", "illegal", "in 100,000", "holds")
	var all seen
	var lost int64
	for _, p := range programs {
		row(&t, p.runtime.Name, &p.seen, p.lost)
		all.join(&p.seen)
		lost += p.lost
	}
	row(&t, "all", &all, lost)
	if err := t.Print(); err != nil {
		return err
	}
	for _, p := range programs {
		worst := slices.SortedFunc(maps.Keys(p.seen.illegal), func(a, b string) int {
			return int(p.seen.illegal[b] - p.seen.illegal[a])
		})
		for _, pair := range worst[:min(*top, len(worst))] {
			fmt.Printf("%s: %d times %s; once in\n  %s\n", p.runtime.Name, p.seen.illegal[pair], pair, p.seen.whole[pair])
		}
	}
	return nil
}

func row(t *harness.Table, name string, s *seen, lost int64) {
	rate := float64(s.wrong()) / max(float64(s.pairs), 1)
	holds := "yes"
	if rate > floorIllegal || s.pairs == 0 {
		holds = "no"
	}
	share := func(n int64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/max(float64(s.samples), 1)) }
	t.Row(name, fmt.Sprint(s.samples), share(s.made), share(s.cut), share(s.unnamed), fmt.Sprint(lost),
		fmt.Sprint(len(s.numbers)), fmt.Sprint(s.pairs), fmt.Sprint(s.wrong()), fmt.Sprintf("%.2f", 1e5*rate), holds)
}
