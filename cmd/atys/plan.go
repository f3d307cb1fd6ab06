package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

// sampleCost is the CPU time of a kept sample: all that a recording takes above
// the work alone, its interrupts too. docs/bench/sampling.md, "What a kept sample costs",
// of `go run ./bench/cost` on a virtual machine (AMD EPYC).
const sampleCost = 14200 * time.Nanosecond

// mostHertz is what record takes.
const mostHertz = 20_000

type planFlags struct {
	share, within, change          string
	confidence                     float64
	functions                      int
	samples, instances, cpus, freq float64
	duration, cost                 time.Duration
	json                           bool
}

func planCommand() *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:   "plan --share S [--within X | --change X] [flags]",
		Short: "How many samples, instances, seconds or Hz an answer takes, and what they cost",
		Long: `plan tells how much has to be recorded for a function's share to be known within
some points (--within), or for a change of it between two recordings to be found
(--change). Of --instances, --duration and -F leave out the one that is asked for;
one instance and 99 Hz are taken where nothing else is said. With all of them, or with
--samples, it tells how sure the share will be.

Samples say what these instances did in this time. How instances or hours differ is
no matter of more samples, but of more instances and hours: see the interval of the
service in "atys query top".`,
		Example: `  atys plan --share 1% --within 0.1%
  atys plan --share 1% --within 0.1% --instances 20 --duration 1m
  atys plan --share 10% --change 1% --functions 500 -F 49
  atys plan --share 1% --samples 20000`,
		Args:   noArgs,
		PreRun: endOnSignal,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := f.plan(c.Flags().Changed)
			if err != nil {
				return &usageError{err}
			}
			if f.json {
				return printJSON(c.OutOrStdout(), p)
			}
			return p.write(c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.share, "share", "", "the function's share, such as 1% or 0.01")
	flags.StringVar(&f.within, "within", "", "how far the bounds of its interval may lie from it, in points: 0.1%")
	flags.StringVar(&f.change, "change", "", "the change that is to be found between two recordings, in points: 0.5% or -0.5%")
	flags.Float64Var(&f.confidence, "confidence", 95, "of the interval, in percent")
	flags.IntVar(&f.functions, "functions", 100, "how many functions are compared when a change is looked for")
	flags.Float64Var(&f.samples, "samples", 0, "so many samples")
	flags.Float64Var(&f.instances, "instances", 0, "so many instances")
	flags.Float64Var(&f.cpus, "cpus", 1, "CPUs that each instance keeps busy")
	flags.DurationVarP(&f.duration, "duration", "d", 0, "so long, such as 1m")
	flags.Float64VarP(&f.freq, "freq", "F", 0, "samples a second and CPU")
	flags.DurationVar(&f.cost, "cost", sampleCost, "CPU time of a sample; what it is by default was measured (docs/bench/sampling.md, \"What a kept sample costs\"), and differs between machines")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// plan is what an answer takes. Its field names are stable.
type plan struct {
	Share      float64  `json:"share"`
	Within     *float64 `json:"within,omitempty"` // how far the farther bound lies from the share
	Change     *float64 `json:"change,omitempty"` // that is found, 4 times of 5
	Confidence float64  `json:"confidence,omitempty"`
	Functions  int      `json:"functions,omitempty"`
	// Samples of each recording, and as how many of one weight they count.
	Samples       int64    `json:"samples"`
	Effective     float64  `json:"effective_samples"`
	Instances     float64  `json:"instances,omitempty"`
	CPUs          float64  `json:"cpus,omitempty"`
	Seconds       float64  `json:"seconds,omitempty"`
	Hertz         float64  `json:"hertz,omitempty"`
	CostSeconds   float64  `json:"cost_cpu_seconds"`
	CostShare     float64  `json:"cost_share,omitempty"` // of the CPU time that is profiled
	CostPerSample float64  `json:"cost_per_sample_ns"`
	Notes         []string `json:"notes,omitempty"`

	solved string // what was asked for
}

func (f *planFlags) plan(given func(flag string) bool) (*plan, error) {
	if err := f.check(given); err != nil {
		return nil, err
	}
	share, err := fraction("share", f.share, 0, 1)
	if err != nil {
		return nil, err
	}
	p := &plan{Share: share, CPUs: f.cpus, CostPerSample: float64(f.cost)}
	effort := stats.Effort{Instances: f.instances, CPUs: f.cpus, Seconds: f.duration.Seconds(), Hertz: f.freq}
	switch {
	case f.within == "" && f.change == "":
		err = f.precision(p, effort)
	default:
		err = f.effort(p, effort)
	}
	if err != nil {
		return nil, err
	}
	p.CostSeconds = float64(p.Samples) * f.cost.Seconds()
	p.CostShare = p.Hertz * f.cost.Seconds()
	return p, nil
}

// check refuses what cannot be meant, and says what can.
func (f *planFlags) check(given func(flag string) bool) error {
	for _, n := range []struct {
		flag  string
		value float64
	}{{"samples", f.samples}, {"instances", f.instances}, {"cpus", f.cpus}, {"freq", f.freq}, {"functions", float64(f.functions)}} {
		if given(n.flag) && !(n.value > 0 && n.value < 1e15) {
			return fmt.Errorf("--%s %v: want more than 0", n.flag, n.value)
		}
	}
	for flag, d := range map[string]time.Duration{"duration": f.duration, "cost": f.cost} {
		if given(flag) && d <= 0 {
			return fmt.Errorf("--%s %v: want more than 0s", flag, d)
		}
	}
	var effort []string
	for _, flag := range []string{"instances", "duration", "freq"} {
		if given(flag) {
			effort = append(effort, "--"+flag)
		}
	}
	wanted := cmp.Or(f.within, f.change) != ""
	switch {
	case f.share == "":
		return errors.New("--share: say which share the function has, such as --share 1%")
	case f.within != "" && f.change != "":
		return errors.New("--within asks for an interval, --change for a comparison: give one of them")
	case f.change != "" && given("confidence"):
		return errors.New("--confidence is of intervals: leave it out, a --change is found 4 times of 5, and 5% of what is found is chance")
	case !(f.confidence >= 50 && f.confidence <= 99.99):
		return fmt.Errorf("--confidence %v: want 50 to 99.99 percent", f.confidence)
	case f.freq > mostHertz:
		return fmt.Errorf("-F %v: at most %d are taken: more --instances or a longer --duration give more samples", f.freq, mostHertz)
	case wanted && f.samples > 0:
		return errors.New("--samples and what is wanted: leave out --samples to be told how many it takes, or --within and --change to be told what so many give")
	case wanted && len(effort) == 3:
		return fmt.Errorf("%s and what is wanted: leave out one of the three to be told what it takes, or --within and --change to be told what they give", strings.Join(effort, ", "))
	case !wanted && f.samples == 0 && len(effort) < 3:
		return errors.New("say what is wanted (--within 0.1% or --change 0.5%), or what is there (--samples, or --instances, --duration and -F)")
	case f.samples > 0 && len(effort) > 0:
		return fmt.Errorf("--samples says how many there are, and so does %s: leave out one of the two", strings.Join(effort, ", "))
	}
	return nil
}

// precision tells how sure a share is of so many samples.
func (f *planFlags) precision(p *plan, effort stats.Effort) error {
	samples := f.samples
	if samples == 0 {
		samples = effort.Samples()
		p.Instances, p.Seconds, p.Hertz = effort.Instances, effort.Seconds, effort.Hertz
	}
	if !(samples >= 1 && samples < 1e15) {
		return fmt.Errorf("--instances, --duration and -F give %.3g samples: want 1 or more", samples)
	}
	p.solved = "within"
	p.Samples, p.Effective = int64(samples), samples/stats.DesignEffect
	within := stats.HalfWidth(p.Share, p.Effective, f.confidence/100)
	p.Within, p.Confidence = &within, f.confidence
	return nil
}

// effort tells how many samples are needed, and what takes them.
func (f *planFlags) effort(p *plan, effort stats.Effort) (err error) {
	if p.Effective, err = f.needed(p); err != nil {
		return err
	}
	samples := math.Ceil(p.Effective * stats.DesignEffect)
	if effort.Instances == 0 && (effort.Seconds == 0 || effort.Hertz == 0) {
		effort.Instances = 1
		p.Notes = append(p.Notes, "one instance is assumed (set --instances)")
	}
	if effort.Seconds == 0 && effort.Hertz == 0 {
		effort.Hertz = 99
		p.Notes = append(p.Notes, "99 Hz is assumed (set -F)")
	}
	switch {
	case effort.Instances == 0:
		p.solved = "instances"
	case effort.Seconds == 0:
		p.solved = "duration"
	default:
		p.solved = "freq"
	}
	effort = effort.Solve(samples)
	effort.Instances = math.Ceil(effort.Instances)
	if effort.Hertz > mostHertz {
		return fmt.Errorf("%.3g samples in --duration %v of --instances %g take %.0f Hz, and at most %d are taken: give more --instances or a longer --duration, or want less",
			samples, f.duration, effort.Instances, effort.Hertz, mostHertz)
	}
	p.Instances, p.Seconds, p.Hertz = effort.Instances, effort.Seconds, effort.Hertz
	p.Samples = int64(math.Ceil(effort.Samples() - 1e-6))
	return nil
}

// needed is how many samples of one weight what is wanted takes.
func (f *planFlags) needed(p *plan) (float64, error) {
	var n float64
	if f.change == "" {
		within, err := fraction("within", f.within, 0, 1)
		if err != nil {
			return 0, err
		}
		if within == 0 {
			return 0, errors.New("--within 0: no number of samples is enough: want some points, such as 0.1%")
		}
		p.Within, p.Confidence = &within, f.confidence
		n = stats.SamplesFor(p.Share, within, f.confidence/100)
	} else {
		change, err := fraction("change", f.change, -1, 1)
		if err != nil {
			return 0, err
		}
		changed := p.Share + change
		if change == 0 || changed < -1e-9 || changed > 1+1e-9 {
			return 0, fmt.Errorf("--change %s of --share %s: want a change to another share of 0 to 100%%", f.change, f.share)
		}
		p.Change, p.Functions = &change, f.functions
		n = stats.SamplesForChange(p.Share, min(max(changed, 0), 1), f.functions)
	}
	if !(n < 1e15) {
		return 0, errors.New("no number of samples that can be taken is enough: want less than --within or --change does")
	}
	return n, nil
}

// fraction reads 1% or 0.01.
func fraction(flag, text string, least, most float64) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= least && v <= most) {
		return 0, fmt.Errorf("--%s %q: want a part of all, such as 2%% or 0.02", flag, text)
	}
	return v, nil
}

func busy(cpus float64) string {
	if cpus == 1 {
		return "1 CPU"
	}
	return strconv.FormatFloat(cpus, 'g', 4, 64) + " CPUs"
}

func (p *plan) write(w io.Writer) error {
	var b strings.Builder
	n := counted(int(p.Samples), "sample")
	switch {
	case p.Change != nil:
		fmt.Fprintf(&b, "a change of %s points of a function of %s is found, 4 times of 5 among %s, in %s before and as many after\n",
			point(*p.Change), render.Share(p.Share), counted(p.Functions, "function"), n)
	case p.solved == "within":
		fmt.Fprintf(&b, "%s tell a function of %s within %s, at %v%%\n", n, render.Share(p.Share), strings.TrimPrefix(point(*p.Within), "+")+" points", p.Confidence)
	default:
		fmt.Fprintf(&b, "a function of %s is known within %s points, at %v%%, by %s\n", render.Share(p.Share), strings.TrimPrefix(point(*p.Within), "+"), p.Confidence, n)
	}
	if p.Instances > 0 {
		fmt.Fprintf(&b, "record %s on %s, each with %s busy, at %s Hz\n", render.Value(p.Seconds, "seconds"),
			counted(int(p.Instances), "instance"), busy(p.CPUs), strconv.FormatFloat(p.Hertz, 'g', 4, 64))
	}
	fmt.Fprintf(&b, "cost: %s of CPU time", render.Value(p.CostSeconds, "seconds"))
	if p.CostShare > 0 {
		fmt.Fprintf(&b, ", %s of what is profiled", render.Share(p.CostShare))
	}
	if p.Change != nil {
		b.WriteString(" each time")
	}
	fmt.Fprintf(&b, " (%s a sample: --cost)\n", render.Value(p.CostPerSample, "nanoseconds"))
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "%s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
