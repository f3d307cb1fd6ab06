package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/prune/cost"
	"atys.dev/atys/internal/spec"
)

type calibrateFlags struct {
	clientFlags
	duration        time.Duration // of these two, with a server
	frequency       float64
	epsilon, within string
	windows         []time.Duration
	least, most     float64 // Hz
	policies        []string
	rounds, replays int
	seed            uint64
	yaml, html, png string
	json            bool
}

func calibrateCommand() *cobra.Command {
	var f calibrateFlags
	c := &cobra.Command{
		Use:   "calibrate [flags] FILE, or calibrate --server URL [flags] SERVICE",
		Short: "Find how much of a service can be pruned, and which policy of rates suits it",
		Long: `Run calibrate once, before you profile a service for a long time: from one recording
at a high rate it finds how much can be pruned, and how often to sample.

Pruning: how far off shares are at several levels, and how much CPU time is saved,
are measured as "atys prune report" does, a logarithm and a line are fitted to them,
and solved for the lowest level at which shares are off by at most --epsilon.

Rates: the recording is replayed, thinned to the rates that policies choose, with
several thresholds, factors, widths and lengths of windows, and to fixed rates. A
random half of its samples is the reference, and the replays sample from the other
half, so that rates above half of the recording's cannot be judged. calibrate
proposes the cheapest policy whose error is at most --within.

FILE is a recording of "atys record --timed" in .pb.gz, at a high rate and some
minutes long. With --server the agents of a fleet make one, which has windows in
place of times, of the targets of SERVICE, or of a selector such as '{service="a"}'.`,
		Example: `  atys record -p 1234 --timed -F 1999 -d 5m -o busy.pb.gz
  atys calibrate busy.pb.gz --html busy.html
  atys calibrate --server http://10.0.0.5:4300 checkout --yaml - | atys apply -f -`,
		ValidArgsFunction: completeProfiles(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args); err != nil {
				return &usageError{err}
			}
			return f.run(c, args[0])
		},
	}
	f.clientFlags.add(c)
	flags := c.Flags()
	flags.DurationVarP(&f.duration, "duration", "d", 2*time.Minute, "with --server: how long the fleet is recorded")
	flags.Float64VarP(&f.frequency, "freq", "F", 1999, "with --server: samples a second and CPU")
	flags.StringVar(&f.epsilon, "epsilon", "1%", "largest mean relative error of the 50 largest functions' shares that pruning may cause")
	flags.StringVar(&f.within, "within", "", "largest error of shares, in points, that a low rate may cause, such as 0.5% (default: half the error of 19 Hz, the built-in rate)")
	flags.DurationSliceVar(&f.windows, "window", []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second}, "lengths of windows to try, in whole seconds")
	flags.Float64Var(&f.least, "min", 1, "lowest rate to try, in Hz")
	flags.Float64Var(&f.most, "max", 999, "highest rate to try, in Hz; at most half of the recording's rate")
	flags.StringSliceVar(&f.policies, "policy", []string{calibrate.Fixed, freq.Atys, freq.Auto}, "what to try: fixed rates, and the policies atys and auto")
	flags.IntVar(&f.rounds, "rounds", 5, "number of time measurements; 0: none")
	flags.IntVar(&f.replays, "replays", 4, "number of replays, each with another random reference")
	flags.Uint64Var(&f.seed, "seed", 1, "random seed")
	flags.StringVar(&f.yaml, "yaml", "", "file for the proposed profile; -: standard output, and everything else to standard error")
	flags.StringVar(&f.html, "html", "", "file for an HTML page with tables and charts")
	flags.StringVar(&f.png, "png", "", "file for the charts alone")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	_ = c.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions([]string{calibrate.Fixed, freq.Atys, freq.Auto}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// check refuses what cannot be meant, before anything is recorded.
func (f *calibrateFlags) check(c *cobra.Command, args []string) error {
	fleet := c.Flags().Changed("server")
	switch {
	case len(args) == 0 && fleet:
		return errors.New(`say which service the fleet is to record, such as checkout ("atys get targets" shows what there is)`)
	case len(args) == 0:
		return errors.New("say which recording: atys record -p PID --timed -F 1999 -d 5m -o busy.pb.gz makes one")
	case len(args) > 1:
		return fmt.Errorf("%d arguments: give one recording, or with --server one service", len(args))
	case !fleet && (c.Flags().Changed("duration") || c.Flags().Changed("freq")):
		return errors.New("-d and -F go with --server: a file was recorded already")
	case f.rounds < 0:
		return fmt.Errorf("--rounds %d: want 0 or more", f.rounds)
	case f.replays < 1 || f.replays > mostReplays:
		return fmt.Errorf("--replays %d: want 1 to %d", f.replays, mostReplays)
	case !(f.least >= 1 && f.least <= f.most && f.most <= mostHertz):
		return fmt.Errorf("--min %v, --max %v: want 1 to %d Hz, the least not above the highest", f.least, f.most, mostHertz)
	case f.yaml == "-" && f.json:
		return errors.New("--yaml - and --json both write to standard output: give one of them a file")
	}
	for _, w := range f.windows {
		if w < time.Second || w > time.Hour || w%time.Second != 0 {
			return fmt.Errorf("--window %v: want whole seconds, 1s to 1h", w)
		}
	}
	for _, policy := range f.policies {
		if policy != calibrate.Fixed && !slices.Contains(freq.Policies(), policy) {
			return fmt.Errorf("--policy %q: want %s, %s", policy, calibrate.Fixed, strings.Join(freq.Policies(), ", "))
		}
	}
	if len(f.windows) == 0 || len(f.policies) == 0 {
		return errors.New("--window, --policy: name one or more")
	}
	if f.within != "" {
		if _, err := fraction("within", f.within, 0, 1); err != nil {
			return err
		}
	}
	if _, err := fraction("epsilon", f.epsilon, 0, 1); err != nil {
		return err
	}
	if fleet {
		return errors.Join(checkFrequency(f.frequency), f.checkDuration())
	}
	return nil
}

const mostReplays = 100

func (f *calibrateFlags) checkDuration() error {
	if least := enoughWindows * slices.Min(f.windows); f.duration < least {
		return fmt.Errorf("-d %v: want %v or more, which are %d of the shortest windows", f.duration, least, enoughWindows)
	}
	return nil
}

// preprofile is what is calibrated by.
type preprofile struct {
	name    string
	targets spec.Selector
	whole   *profile.Window
	stream  *calibrate.Stream
	fleet   bool     // a server told it
	lacks   []string // words of what is missing
}

func (f *calibrateFlags) run(c *cobra.Command, what string) error {
	var p *preprofile
	var err error
	if c.Flags().Changed("server") {
		p, err = f.fromFleet(c.Context(), what, c.ErrOrStderr())
	} else {
		endOnSignal(c, nil)
		p, err = f.fromFile(what)
	}
	if err != nil {
		return err
	}
	found, err := f.calibrate(c.Context(), p)
	if err != nil {
		return fmt.Errorf("%q: %w", what, err)
	}
	err = f.write(c.OutOrStdout(), c.ErrOrStderr(), found)
	if errors.Is(err, errNoProposal) {
		err = fmt.Errorf("%q: %w", what, err)
	}
	return err
}

// fromFile reads a recording that has kept times.
func (f *calibrateFlags) fromFile(path string) (*preprofile, error) {
	w, err := readProfile(path)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(path, "./") {
		return nil, fmt.Errorf("%w (a service of a fleet is recorded with --server)", err)
	}
	if err != nil {
		return nil, err
	}
	p := &preprofile{name: strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".pb"), whole: w}
	if service := w.Target["service"]; service != "" {
		p.name = service
		if p.targets, err = ofService(service); err != nil {
			return nil, err
		}
	}
	if p.stream, err = calibrate.FromTimed(w, f.step()); err != nil {
		return nil, fmt.Errorf("%q: %w%s", path, err, remedy(err))
	}
	return p, nil
}

// remedy says what makes a recording that can be calibrated by.
func remedy(err error) string {
	switch {
	case errors.Is(err, calibrate.ErrNoTimes):
		return ": atys record -p PID --timed -F 1999 -d 5m -o busy.pb.gz keeps them"
	case errors.Is(err, calibrate.ErrNoSamples):
		return ": record while the program uses CPU time"
	case errors.Is(err, calibrate.ErrNoClock):
		return ": record with -e cpu-clock, which is what record does unless told otherwise"
	case errors.Is(err, calibrate.ErrTooShort), errors.Is(err, calibrate.ErrTooFew):
		return ": record for longer (-d 5m), or try shorter windows (--window 1s,5s)"
	case errors.Is(err, calibrate.ErrTooSlow):
		return ": record at a higher rate (-F 1999), or allow a lower one (--min)"
	}
	return ""
}

// step is the longest time that all windows are made of.
func (f *calibrateFlags) step() time.Duration {
	step := f.windows[0]
	for _, w := range f.windows {
		for w != 0 {
			step, w = w, step%w
		}
	}
	return step
}

// calibrated is what was found.
type calibrated struct {
	*preprofile
	threads  *cost.Report       // nil: nothing tells threads, so none can be pruned
	pruning  *calibrate.Pruning // nil: none can be pruned
	level    float64            // to prune to; 100: not
	off      float64            // percent, as measured there
	tried    calibrate.Range
	results  []calibrate.Result
	baseline calibrate.Result
	within   float64
	chosen   calibrate.Result
	met      bool
	theta    float64       // of policy atys
	sample   time.Duration // that one costs; 0: nobody knows
	refused  string        // why no rate is proposed; "": one is
	unfitted bool          // the fit of errors failed: no pruning is proposed
	proposal *spec.Profile
}

const (
	// failedFit is from how many percent on a fit has failed: it is off by as much as
	// what it is to describe.
	failedFit = 100
	// enoughWindows are those that tell a policy from chance.
	enoughWindows = 10
)

// errNoProposal says that a recording does not tell how to record from now on.
var errNoProposal = errors.New("no profile is proposed")

func (f *calibrateFlags) calibrate(ctx context.Context, p *preprofile) (*calibrated, error) {
	c := &calibrated{preprofile: p, level: prune.MaxLevel}
	if n := p.whole.N(); n > 0 {
		c.sample = p.whole.Cost.Total() / time.Duration(n)
	}
	if err := f.replay(ctx, c); err != nil {
		return nil, fmt.Errorf("%w%s", err, remedy(err))
	}
	if err := f.prune(ctx, c); err != nil && !errors.Is(err, cost.ErrNoThreads) {
		return nil, err
	}
	epsilon, _ := fraction("epsilon", f.epsilon, 0, 1) // check has read it
	switch n := c.windows(c.chosen); {
	case n < enoughWindows:
		c.refused = fmt.Sprintf("%v are %s of %v, and %d or more tell a policy from chance: record for longer (-d 5m)", c.stream.Length().Round(time.Second), counted(n, "window"), c.chosen.Window, enoughWindows)
	case c.unfitted && epsilon > 0:
		c.refused = fmt.Sprintf("the fit of MAPE(p) failed, it is off by %s: record for longer (-d 5m), or with --epsilon 0%% find a rate alone", offWords(c.pruning.ErrorFit.BelowP99))
	}
	if c.refused != "" {
		return c, nil
	}
	var err error
	c.proposal, err = calibrate.Propose(p.name, p.targets, c.chosen.Candidate, c.level)
	return c, err
}

// replay tries candidates, and chooses one.
func (f *calibrateFlags) replay(ctx context.Context, c *calibrated) (err error) {
	r := calibrate.Range{Windows: f.windows, Min: f.least, Max: f.most, Policies: f.policies}
	if c.tried, err = r.Fit(c.stream); err != nil {
		return err
	}
	all, err := calibrate.Replay(ctx, c.stream, append(c.tried.Candidates(), c.tried.Baseline()), f.replays, f.seed)
	if err != nil {
		return err
	}
	c.results, c.baseline = all[:len(all)-1], all[len(all)-1]
	if len(c.results) == 0 {
		return fmt.Errorf("no fixed rate that is tried lies within %g and %g Hz", c.tried.Min, c.tried.Max)
	}
	if c.within = c.baseline.Error / 2; f.within != "" {
		c.within, _ = fraction("within", f.within, 0, 1) // check has read it
	}
	told := slices.DeleteFunc(slices.Clone(c.results), func(r calibrate.Result) bool { return c.windows(r) < enoughWindows })
	if len(told) == 0 {
		told = c.results
	}
	c.chosen, c.met = calibrate.Choose(told, c.within)
	c.theta = thetaOf(c.results, c.chosen, c.within)
	return nil
}

// windows is how many of a candidate's windows the recording is long.
func (c *calibrated) windows(r calibrate.Result) int { return int(c.stream.Length() / r.Window) }

// thetaOf is the threshold of the best candidate of policy atys, or the default.
func thetaOf(results []calibrate.Result, chosen calibrate.Result, within float64) float64 {
	if chosen.Theta > 0 {
		return chosen.Theta
	}
	if atys := slices.DeleteFunc(slices.Clone(results), func(r calibrate.Result) bool { return r.Policy != freq.Atys }); len(atys) > 0 {
		best, _ := calibrate.Choose(atys, within)
		return best.Theta
	}
	return freq.DefaultTheta
}

// mostFunctions are those whose error is fitted, as in the paper.
const mostFunctions = 50

// prune measures what pruning does, and solves for the most that is allowed.
func (f *calibrateFlags) prune(ctx context.Context, c *calibrated) (err error) {
	if c.threads, err = cost.Of(ctx, c.whole, f.rounds, false); err != nil {
		return err
	}
	if c.threads.Levels[0].Threads == c.threads.Skew.Sampled {
		return nil // no thread is small enough to be left out
	}
	place := slices.Index(cost.Tops(), mostFunctions)
	var saved, off []calibrate.Point
	for _, l := range c.threads.Levels {
		off = append(off, calibrate.Point{Level: l.Percent, Value: 100 * l.MAPE[place]})
		if f.rounds > 0 {
			saved = append(saved, calibrate.Point{Level: l.Percent, Value: 100 * l.SavedAll.Value})
		}
	}
	epsilon, _ := fraction("epsilon", f.epsilon, 0, 1) // check has read it
	if c.pruning, err = calibrate.FitPruning(saved, off, 100*epsilon); err != nil {
		return err
	}
	if c.unfitted = fitFailed(c.pruning.ErrorFit); c.unfitted {
		return nil
	}
	full, err := prune.Rank(c.whole, false)
	if err != nil {
		return err
	}
	c.level, c.off, err = c.pruning.Allowed(func(level float64) (float64, error) {
		l, err := cost.At(c.whole, full, level, false)
		if err != nil {
			return 0, err
		}
		return 100 * l.MAPE[place], nil
	})
	return err
}

// fitFailed tells whether a fit says nothing of what was measured. Where that is
// nothing but zeros there is nothing to say, either.
func fitFailed(fit calibrate.Goodness) bool {
	off := fit.BelowP99
	if math.IsNaN(off) {
		off = fit.All
	}
	return off >= failedFit
}

// write tells what was found, and writes the files that were asked for.
func (f *calibrateFlags) write(out, log io.Writer, c *calibrated) error {
	words := out
	if f.yaml == "-" {
		words = log
	}
	write := c.writeWords
	if f.json {
		write = c.writeJSON
	}
	if err := write(words); err != nil {
		return err
	}
	if c.refused != "" {
		return fmt.Errorf("%w: %s", errNoProposal, c.refused)
	}
	for path, encode := range map[string]func(io.Writer) error{f.html: c.writeHTML, f.png: c.writePNG, f.yaml: c.writeYAML} {
		if path == "" {
			continue
		}
		if err := writeWhole(path, out, encode); err != nil {
			return err
		}
	}
	return nil
}

// selectorOf is that of what was asked for: a service, or a selector.
func selectorOf(asked string) (spec.Selector, error) {
	if strings.HasPrefix(asked, "{") {
		return spec.ParseSelector(asked)
	}
	return ofService(asked)
}

// ofService selects a service, whatever its name looks like.
func ofService(service string) (spec.Selector, error) {
	return spec.ParseSelector(fmt.Sprintf("{service=%q}", service))
}
