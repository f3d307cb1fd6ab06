package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/freq"
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
	if least := calibrate.EnoughWindows * slices.Min(f.windows); f.duration < least {
		return fmt.Errorf("-d %v: want %v or more, which are %d of the shortest windows", f.duration, least, calibrate.EnoughWindows)
	}
	return nil
}

// calibrated is the result of a calibration, and the losses of its recording.
type calibrated struct {
	*calibrate.Calibration
	fleet bool     // a server's agents recorded
	lacks []string // words of what is missing
}

func (f *calibrateFlags) run(c *cobra.Command, what string) error {
	var p calibrate.Preprofile
	var found calibrated
	var err error
	if found.fleet = c.Flags().Changed("server"); found.fleet {
		p, found.lacks, err = f.fromFleet(c.Context(), what, c.ErrOrStderr())
	} else {
		endOnSignal(c, nil)
		p, err = f.fromFile(what)
	}
	if err != nil {
		return err
	}
	if found.Calibration, err = calibrate.Calibrate(c.Context(), p, f.options()); err != nil {
		return fmt.Errorf("%q: %w%s", what, err, remedy(err))
	}
	err = f.write(c.OutOrStdout(), c.ErrOrStderr(), found)
	if errors.Is(err, errNoProposal) {
		err = fmt.Errorf("%q: %w", what, err)
	}
	return err
}

// options are what the flags say; check has read them.
func (f *calibrateFlags) options() calibrate.Options {
	o := calibrate.Options{Range: calibrate.Range{Windows: f.windows, Min: f.least, Max: f.most, Policies: f.policies}, Rounds: f.rounds, Replays: f.replays, Seed: f.seed}
	o.Epsilon, _ = fraction("epsilon", f.epsilon, 0, 1)
	if f.within != "" {
		within, _ := fraction("within", f.within, 0, 1)
		o.Within = &within
	}
	return o
}

// fromFile reads a recording that has kept times.
func (f *calibrateFlags) fromFile(path string) (p calibrate.Preprofile, err error) {
	p.Whole, err = readProfile(path)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(path, "./") {
		return p, fmt.Errorf("%w (a service of a fleet is recorded with --server)", err)
	}
	if err != nil {
		return p, err
	}
	p.Name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".pb")
	if service := p.Whole.Target["service"]; service != "" {
		p.Name = service
		if p.Targets, err = ofService(service); err != nil {
			return p, err
		}
	}
	if p.Stream, err = calibrate.FromTimed(p.Whole, f.step()); err != nil {
		return p, fmt.Errorf("%q: %w%s", path, err, remedy(err))
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
	case errors.Is(err, calibrate.ErrFewWindows):
		return ": record for longer (-d 5m)"
	case errors.Is(err, calibrate.ErrFit):
		return ": record for longer (-d 5m), or with --epsilon 0% find a rate alone"
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

// errNoProposal says that a recording does not tell how to record from now on.
var errNoProposal = errors.New("no profile is proposed")

// write tells what was found, and writes the files that were asked for.
func (f *calibrateFlags) write(out, log io.Writer, c calibrated) error {
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
	if c.Refused != nil {
		return fmt.Errorf("%w: %w%s", errNoProposal, c.Refused, remedy(c.Refused))
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
