// Command correct asks of real programs: are stacks complete, and is each of their frames right?
//
// It runs each workload in turn, compares the sampler's stacks with those that
// elfutils walks from registers and stack bytes taken in the same interrupt
// (package oracle), and prints one row per workload. It needs root, gcc and
// libdw-dev, and the programs of the workloads.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"text/tabwriter"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/oracle"
)

// What the issue asks for.
const (
	floorComplete = 0.990
	floorEqual    = 0.995
)

func main() {
	samples := flag.Int("samples", 1000, "compare at least so many stacks of each workload")
	only := flag.String("run", "", "run only workloads whose name matches this `regexp`")
	top := flag.Int("top", 3, "how many `reasons` to print for what is not complete or not equal")
	frequency := flag.Float64("F", 199, "samples a second and CPU")
	patience := flag.Duration("patience", time.Minute, "give up on a workload after this long")
	debug := flag.Bool("debug", false, "print the unwinder's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	level := slog.LevelWarn
	if *debug {
		level = slog.LevelDebug
	}
	o := oracle.Options{Samples: *samples, Frequency: *frequency, Patience: *patience,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	ok, err := run(ctx, o, *only, *top)
	if err != nil {
		fmt.Fprintln(os.Stderr, "correct:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(2)
	}
}

func run(ctx context.Context, o oracle.Options, only string, top int) (ok bool, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "correct-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // servers that refuse root read it as another user
		return false, err
	}
	if o.Walker, err = oracle.BuildWalker(dir); err != nil {
		return false, err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "workload\tsamples\tcomplete %\tstarting\tcompared\tequal %\toracle short\tguessed equal\tours cut\tcalls checked\twrong\tunmatched\t")
	ok = true
	for _, w := range workloads() {
		if !match.MatchString(w.name) || ctx.Err() != nil {
			continue
		}
		r, err := measure(ctx, w, o, dir)
		if err != nil {
			return false, fmt.Errorf("workload %s: %w", w.name, err)
		}
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%d\t%d\t%.2f\t%d\t%d\t%d\t%d\t%d\t%d\t\n", w.name, r.Samples, 100*r.CompleteShare(), r.Starting,
			r.Compared(), 100*r.EqualShare(), r.Short, r.Guess, r.Cut, r.Calls, r.CallsWrong, r.Unmatched)
		explain(w.name, r, top)
		ok = ok && r.CompleteShare() >= floorComplete && (r.Compared() == 0 || r.EqualShare() >= floorEqual)
	}
	return ok, table.Flush()
}

func measure(ctx context.Context, w workload, o oracle.Options, dir string) (*oracle.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	own, err := os.MkdirTemp(dir, "work-")
	if err != nil {
		cancel()
		return nil, err
	}
	running := &running{dir: own}
	defer running.stop()
	defer cancel()
	if o.PIDs, err = w.start(ctx, running); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	return oracle.Run(ctx, o)
}

// settle is how long a workload warms up.
const settle = 300 * time.Millisecond

// explain prints what went wrong, most frequent first, to standard error.
func explain(name string, r *oracle.Result, top int) {
	fmt.Fprintf(os.Stderr, "== %s: ends", name)
	for end, n := range r.Ends {
		fmt.Fprintf(os.Stderr, " %q %d", profile.End(end).String(), n)
	}
	fmt.Fprintf(os.Stderr, ", kernel lost %d records, unwinder %+v\n", r.RecordsLost, r.Unwinder)
	for _, kind := range []struct {
		what    string
		reasons map[string]*oracle.Reason
	}{{"differ", r.Differences}, {"truncated", r.Truncations}, {"wrong call", r.WrongCalls}, {"oracle short", r.Shorts}} {
		for i, one := range oracle.Top(kind.reasons) {
			if i >= top {
				break
			}
			fmt.Fprintf(os.Stderr, "-- %s, %d times: %s\n%s", kind.what, one.Count, one.Text, one.Example)
		}
	}
}
