// Command live asks of servers in each language: are their stacks whole while they work?
//
// Each workload (workloads.go) is a program of testdata that answers requests
// with what real ones spend their time in: texts, regular expressions, sorting
// with callbacks, compression, exceptions, threads, code compiled while it
// runs. It is loaded (load.go), recorded, and its stacks are judged (judge.go):
// one is whole if it reached a known end and shows a function by its name
// wherever the language's runtime was entered.
//
// It needs root and the programs that run the languages: make deps and
// .ci/runtimes fetch them; what is not there is left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
)

// Shares of whole stacks that are asked for.
const (
	floor = 0.985
	goal  = 0.997
)

var (
	frequency = flag.Float64("F", 997, "samples a second and CPU")
	length    = flag.Duration("d", 10*time.Second, "length of each recording")
	warm      = flag.Duration("warm", 4*time.Second, "load a program for so long before it is recorded")
	only      = flag.String("run", "", "run only workloads whose name matches this `regexp`")
	verbose   = flag.Bool("v", false, "print what ends the stacks that are not whole")
	patterns  = flag.Int("top", 3, "with -v, how many patterns of frames to print")
	debug     = flag.Bool("debug", false, "print the recorder's log")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	all, err := workloads(ctx, dir)
	if err != nil {
		return err
	}
	var t harness.Table
	t.Row("workload", "samples", "whole", "complete", "entered", "without functions", "without name", "gaps", "cut")
	below := 0
	for _, w := range all {
		if !match.MatchString(w.name) {
			continue
		}
		v, err := measure(ctx, w)
		if err != nil {
			return fmt.Errorf("workload %s: %w", w.name, err)
		}
		t.Row(w.name, strconv.FormatInt(v.samples, 10), grade(v.share(v.whole), w.language), harness.Percent(v.share(v.complete)),
			harness.Percent(v.share(v.entered)), harness.Percent(v.share(v.without)), harness.Percent(v.share(v.nameless)), harness.Percent(v.share(v.gaps)), v.reasons())
		if v.share(v.whole) < floor && w.language != erlang {
			below++
		}
		if *verbose {
			v.explain(os.Stderr, w.name, *patterns)
		}
	}
	harness.Header()
	if err := t.Print(); err != nil {
		return err
	}
	if below > 0 {
		return fmt.Errorf("%d workloads are below the floor of %s", below, harness.Percent(floor))
	}
	return nil
}

// grade marks a share that misses the goal, or the floor. Erlang's is only told.
func grade(share float64, l *language) string {
	switch {
	case l == erlang || share >= goal:
		return harness.Percent(share)
	case share >= floor:
		return harness.Percent(share) + " (below the goal)"
	}
	return harness.Percent(share) + " (below the floor)"
}

// measure records a workload while it is loaded.
func measure(ctx context.Context, w workload) (v *verdict, err error) {
	ctx, cancel := context.WithCancel(ctx)
	running := &running{}
	defer running.stop()
	defer cancel()
	pids, err := w.start(ctx, running)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(*warm):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	window, err := record(ctx, pids)
	if err != nil {
		return nil, err
	}
	if err := running.failed(); err != nil {
		return nil, err
	}
	v = newVerdict(w.language)
	for _, row := range window.Rows.All() {
		v.add(window.AppendStack(nil, row.Stack), window.Stacks[row.Stack].End, row.N)
	}
	return v, nil
}

func record(ctx context.Context, pids []int) (w *profile.Window, err error) {
	level := slog.LevelWarn
	if *debug {
		level = slog.LevelDebug
	}
	r, err := recorder.Start(recorder.Setup{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}, recorder.Options{Targets: recorder.Targets{PIDs: pids}, Event: "task-clock", Frequency: *frequency, Fixed: true, MayAsk: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	time.Sleep(2 * time.Second) // what a recording begins with is measured elsewhere
	if _, err := r.CutNamed(ctx); err != nil {
		return nil, err
	}
	if w, err = r.Record(ctx, *length, nil); err != nil {
		return nil, err
	}
	return w, ctx.Err()
}
