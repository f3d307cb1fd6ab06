package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/internal/spec"
)

type recordFlags struct {
	targetFlags
	kernelFlags
	fleetFlags
	duration  time.Duration
	output    string
	format    string
	threads   bool
	processes bool
	budget    float64
	timed     bool
	pruning   string
	percent   float64 // of pruning
}

// targetFlags choose what is sampled and how; record and top share them.
type targetFlags struct {
	all       bool
	pids      []int
	name      string
	cgroup    string
	event     string
	frequency float64
	count     uint64
	tables    unwindMemory
	rows      uint32 // of tables
	cache     cacheFlags
	verbose   bool
}

func (t *targetFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&t.all, "all", "a", false, "everything that runs on this machine")
	f.IntSliceVarP(&t.pids, "pid", "p", nil, "these processes, and the children they start")
	f.StringVar(&t.name, "name", "", "the processes whose name or command line matches this regular expression")
	f.StringVarP(&t.cgroup, "cgroup", "G", "", "a version 2 cgroup, and those below it")
	f.StringVarP(&t.event, "event", "e", "cpu-clock", "what to sample: "+strings.Join(cpu.EventNames(), ", ")+", or subsystem:tracepoint; A+B also reads B at each sample of A")
	f.Float64VarP(&t.frequency, "freq", "F", 99, "samples a second and CPU, 1 to 20000")
	f.Uint64VarP(&t.count, "count", "c", 0, "instead of -F, for events that are no clocks: sample every n-th")
	t.tables.add(f, "16")
	t.cache.add(c)
	f.BoolVarP(&t.verbose, "verbose", "v", false, "verbose output")
	_ = c.RegisterFlagCompletionFunc("event", cobra.FixedCompletions(cpu.EventNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.MarkFlagDirname("cgroup")
}

// check refuses values out of range, before anything is started.
func (t *targetFlags) check(c *cobra.Command) error {
	base, _, err := cpu.ParseEvents(t.event)
	if err != nil {
		return err
	}
	if t.rows, err = t.tables.rows(); err != nil {
		return err
	}
	if !c.Flags().Changed("count") {
		return checkFrequency(t.frequency)
	}
	switch {
	case c.Flags().Changed("freq"):
		return errors.New("-c and -F exclude each other: give one")
	case base.Clock:
		return fmt.Errorf("-c %d: event %q is a clock, its rate is set by -F", t.count, base.Name)
	case t.count < 1 || t.count > math.MaxUint32:
		return fmt.Errorf("-c %d: want 1 to %d", t.count, uint32(math.MaxUint32))
	}
	return nil
}

// checkFrequency refuses what -F cannot be.
func checkFrequency(hz float64) error {
	if cpu.CheckFrequency(hz) != nil {
		return fmt.Errorf("-F %v: want %d to %d Hz", hz, cpu.MinFrequency, cpu.MaxFrequency)
	}
	return nil
}

// check also refuses a duration that ends nothing.
func (f *recordFlags) check(c *cobra.Command) error {
	if c.Flags().Changed("duration") && f.duration <= 0 {
		return fmt.Errorf("-d %s: want more than 0; without -d it is until Ctrl-C, or the command's end", f.duration)
	}
	if err := f.kernelFlags.check(c); err != nil {
		return err
	}
	if c.Flags().Changed("prune") {
		percent, err := spec.ParsePruning(f.pruning)
		if err != nil {
			return fmt.Errorf("--prune: %w", err)
		}
		f.percent = percent
	}
	if !(f.budget >= 0 && f.budget <= 100) {
		return fmt.Errorf("--budget %v: want a percentage of a core, 0 to 100", f.budget)
	}
	return f.targetFlags.check(c)
}

func recordCommand() *cobra.Command {
	var f recordFlags
	c := &cobra.Command{
		Use:   "record [flags] [-- command [argument...]]",
		Short: "Sample processes, a cgroup, the machine or a command, and write a profile",
		Example: `  atys record -p 1234 -d 10s -o profile.html
  atys record -a -F 199 -d 30s -o machine.pb.gz
  atys record -o out.svg -- ./server --port 8080
  atys record --kernel async-profiler --allow-attach -p 1234 -d 30s
  atys record --server http://10.0.0.5:4300 --select '{service="checkout"}' -d 30s -F 999`,
		RunE: func(c *cobra.Command, args []string) error {
			fleet, err := f.checkFleet(c, args)
			if err == nil {
				err = f.check(c)
			}
			if err != nil {
				return &usageError{err}
			}
			return record(c, f, args, fleet)
		},
	}
	f.targetFlags.add(c)
	f.kernelFlags.add(c)
	f.fleetFlags.add(c)
	flags := c.Flags()
	flags.DurationVarP(&f.duration, "duration", "d", 0, "how long; without it until Ctrl-C, or the command's end")
	flags.StringVarP(&f.output, "output", "o", "atys.pb.gz", "file to write, - for standard output; its extension is its format: "+strings.Join(outputExtensions(), " "))
	flags.StringVar(&f.format, "format", "", "format to write, if the file's extension does not tell: pprof, folded, html, svg, speedscope, cpuprofile")
	flags.BoolVarP(&f.threads, "threads", "t", false, "keep threads apart in formats that show one tree")
	flags.BoolVar(&f.processes, "processes", false, "keep processes apart in formats that show one tree; -a and -G do by their names")
	flags.Float64Var(&f.budget, "budget", 0, "percent of a core that processes which are not sampled may pay at most: the frequency is lowered until they do; 0: as much as it takes")
	flags.StringVar(&f.pruning, "prune", "", "keep the threads that make up so much of each process's samples, by its name, such as P99; the others as one row")
	flags.BoolVar(&f.timed, "timed", false, "keep each sample's time and CPU")
	_ = c.MarkFlagFilename("output", bare(outputExtensions())...)
	_ = c.RegisterFlagCompletionFunc("format", completeFormats)
	return c
}

func record(c *cobra.Command, f recordFlags, args []string, fleet bool) error {
	out, err := newOutput(f.output, f.format, outputOptions{threads: f.threads, processes: f.processes || f.all || f.cgroup != "", apart: f.processes})
	if err != nil {
		return &usageError{err}
	}
	if err := out.check(); err != nil {
		return err
	}
	if fleet {
		return recordFleet(c, f, out)
	}
	child, err := startStopped(args)
	if err != nil {
		return err
	}
	if child != nil {
		f.pids = append(f.pids, child.pid)
		defer child.release()
	}
	targets, err := recorder.FindTargets(proc.FS{}, f.all, f.pids, f.name, f.cgroup)
	if err != nil {
		return &usageError{err}
	}
	window, err := measure(c, f, targets, args, child)
	if window == nil {
		return err
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "atys: the recording ended early, what was measured is kept: %v\n", err)
	}
	if err := out.write(window); err != nil {
		return rescue(window, err)
	}
	summarize(os.Stderr, window, f.output, f.verbose)
	if child != nil {
		return child.status()
	}
	return nil
}

// measure records with the kernel that was asked for, or can be used.
func measure(c *cobra.Command, f recordFlags, targets recorder.Targets, args []string, child *child) (*profile.Window, error) {
	if f.external() {
		return recordExternal(c.Context(), f, external.Kernel(f.kernel), targets, child)
	}
	dir, limit, err := f.cache.place()
	if err != nil {
		return nil, err
	}
	r, err := recorder.Start(recorder.Setup{CacheDir: dir, CacheMax: limit, Rows: f.rows, Log: logger(f.verbose)}, recorder.Options{Targets: targets, Event: f.event, Frequency: f.frequency, Count: f.count,
		Threads: true, Timed: f.timed, Budget: f.budget / 100, MayAsk: f.allowAttach, Pruning: f.percent,
		Placed: warnBystanders})
	if err != nil {
		other, err := f.fallback(c, targets, args, err)
		if err != nil {
			return nil, err
		}
		return recordExternal(c.Context(), f, other, targets, child)
	}
	defer r.Close()
	warnBystanders(r.Sampler().Placement())
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	if child != nil {
		child.run(cancel)
	} else {
		go untilGone(ctx, targets.PIDs, cancel)
	}
	return r.Record(ctx, f.duration, progress(f.duration))
}

// warnBystanders tells what a high frequency costs those who are not sampled.
func warnBystanders(why string, cost float64) {
	if cost > 0.001 {
		fmt.Fprintf(os.Stderr, "atys: %s; processes that are not sampled pay %.1f%% of a core for it\n", why, 100*cost)
	}
}

// untilGone ends a recording when all its targets have exited. Zombies have: a
// parent that does not collect them would have a recording go on for ever.
func untilGone(ctx context.Context, pids []int, cancel func()) {
	if len(pids) == 0 {
		return
	}
	err := proc.AwaitExit(ctx, pids)
	switch {
	case err == nil:
		cancel()
	case ctx.Err() == nil:
		fmt.Fprintf(os.Stderr, "atys: %v: this does not end with its targets, but with Ctrl-C\n", err)
	}
}

// progress reports to a terminal how far a recording is.
func progress(total time.Duration) func(*profile.Window) {
	if !isTerminal(os.Stderr) {
		return nil
	}
	var samples int64
	var spent time.Duration
	return func(w *profile.Window) {
		samples += w.N()
		spent += w.Duration
		of := "Ctrl-C ends it"
		if total > 0 {
			of = "of " + total.String()
		}
		fmt.Fprintf(os.Stderr, "\r\x1b[Krecording: %s %s, %d samples", spent.Round(100*time.Millisecond), of, samples)
	}
}

// summarize says in a few lines what a profile holds and what it lacks.
func summarize(w io.Writer, window *profile.Window, path string, all bool) {
	if isTerminal(os.Stderr) {
		fmt.Fprint(w, "\r\x1b[K")
	}
	fmt.Fprintf(w, "%d samples in %s", window.N(), window.Duration.Round(time.Millisecond))
	if window.Exact.CPU > 0 {
		fmt.Fprintf(w, "; %s", measured(window))
	}
	if path != "-" {
		fmt.Fprintf(w, "; wrote %s", path)
	}
	fmt.Fprintln(w)
	writeMissing(w, window, all)
	for _, comment := range window.Comments {
		fmt.Fprintf(w, "  %s\n", render.Printable(comment))
	}
	switch {
	case window.N() > 0:
	case window.Exact.CPU > 0:
		fmt.Fprintln(w, "  no samples: what was used is too little for this rate: record longer, or with a higher -F (a smaller -c)")
	default:
		fmt.Fprintln(w, "  no samples: the target used no CPU in that time (it waited), or ended before it was seen")
	}
}

// measured says what the kernel measured, and what of it was sampled.
func measured(w *profile.Window) string {
	if len(w.Types) > 0 && w.Types[0].Kind == "cpu" {
		return render.Totals(w.Total(0), w.Types[0], w.Exact.CPU)
	}
	return w.Exact.CPU.Round(time.Millisecond).String() + " of CPU time used"
}
