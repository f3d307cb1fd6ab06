package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/prune/cost"
	"atys.dev/atys/internal/spec"
)

// Preprofile is a recording at a high rate to calibrate by.
type Preprofile struct {
	Name    string        // of the service
	Targets spec.Selector // that a proposal is for; none: all
	Whole   *profile.Window
	Stream  *Stream
}

// Options are what is tried, and which errors are allowed.
type Options struct {
	Range
	Epsilon float64  // largest mean relative error that pruning may cause
	Within  *float64 // largest error of shares that a low rate may cause; nil: half of the baseline's
	Rounds  int      // time measurements; 0: none
	Replays int
	Seed    uint64
}

// Calibration is what was found.
type Calibration struct {
	Preprofile
	Threads  *cost.Report // nil: threads are not known, so none can be pruned
	Pruning  *Pruning     // nil: none can be pruned
	Level    float64      // to prune to; prune.MaxLevel: not
	Off      float64      // percent, as measured at that level
	Unfitted bool         // the fit of errors failed, so no pruning is proposed
	Tried    Range
	Results  []Result
	Baseline Result
	Within   float64
	Chosen   Result
	Met      bool          // its error is within the allowed one
	Theta    float64       // threshold of policy atys
	Sample   time.Duration // CPU time that a sample cost; 0: unknown
	Refused  error         // why nothing is proposed: ErrFewWindows or ErrFit
	Proposal *spec.Profile // nil if Refused
}

const (
	// failedFit is the mean error in percent from which on a fit has failed: it is off by
	// as much as what it describes.
	failedFit = 100
	// EnoughWindows are needed to tell a policy from chance.
	EnoughWindows = 10
	// TopFunctions are those whose error is fitted, as in the paper.
	TopFunctions = 50
)

// Reasons not to propose anything.
var (
	ErrFewWindows = fmt.Errorf("%d or more tell a policy from chance", EnoughWindows)
	ErrFit        = errors.New("the fit of MAPE(p) failed")
)

// Calibrate finds how much of a service can be pruned, and which policy of rates suits it.
func Calibrate(ctx context.Context, p Preprofile, o Options) (*Calibration, error) {
	c := &Calibration{Preprofile: p, Level: prune.MaxLevel}
	if n := p.Whole.N(); n > 0 {
		c.Sample = p.Whole.Cost.Total() / time.Duration(n)
	}
	if err := c.replay(ctx, o); err != nil {
		return nil, err
	}
	if err := c.prune(ctx, o); err != nil && !errors.Is(err, cost.ErrNoThreads) {
		return nil, err
	}
	switch n := c.windows(c.Chosen); {
	case n < EnoughWindows:
		c.Refused = fmt.Errorf("%v are %d windows of %v, and %w", c.Stream.Length().Round(time.Second), n, c.Chosen.Window, ErrFewWindows)
	case c.Unfitted && o.Epsilon > 0:
		c.Refused = fmt.Errorf("%w, it is off by %.2f%%", ErrFit, c.Pruning.ErrorFit.BelowP99)
	}
	if c.Refused != nil {
		return c, nil
	}
	var err error
	c.Proposal, err = Propose(p.Name, p.Targets, c.Chosen.Candidate, c.Level)
	return c, err
}

// replay tries candidates, and chooses one.
func (c *Calibration) replay(ctx context.Context, o Options) (err error) {
	if c.Tried, err = o.Range.Fit(c.Stream); err != nil {
		return err
	}
	all, err := Replay(ctx, c.Stream, append(c.Tried.Candidates(), c.Tried.Baseline()), o.Replays, o.Seed)
	if err != nil {
		return err
	}
	c.Results, c.Baseline = all[:len(all)-1], all[len(all)-1]
	if len(c.Results) == 0 {
		return fmt.Errorf("no fixed rate that is tried lies within %g and %g Hz", c.Tried.Min, c.Tried.Max)
	}
	if c.Within = c.Baseline.Error / 2; o.Within != nil {
		c.Within = *o.Within
	}
	told := slices.DeleteFunc(slices.Clone(c.Results), func(r Result) bool { return c.windows(r) < EnoughWindows })
	if len(told) == 0 {
		told = c.Results
	}
	c.Chosen, c.Met = Choose(told, c.Within)
	c.Theta = thetaOf(c.Results, c.Chosen, c.Within)
	return nil
}

// windows is how many windows of a candidate the recording has.
func (c *Calibration) windows(r Result) int { return int(c.Stream.Length() / r.Window) }

// thetaOf is the threshold of the best candidate of policy atys, or the default.
func thetaOf(results []Result, chosen Result, within float64) float64 {
	if chosen.Theta > 0 {
		return chosen.Theta
	}
	if atys := slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Policy != freq.Atys }); len(atys) > 0 {
		best, _ := Choose(atys, within)
		return best.Theta
	}
	return freq.DefaultTheta
}

// prune measures what pruning does, and solves for the most that is allowed.
func (c *Calibration) prune(ctx context.Context, o Options) (err error) {
	if c.Threads, err = cost.Of(ctx, c.Whole, o.Rounds, false); err != nil {
		return err
	}
	if c.Threads.Levels[0].Threads == c.Threads.Skew.Sampled {
		return nil // no thread is small enough to be left out
	}
	place := slices.Index(cost.Tops(), TopFunctions)
	var saved, off []Point
	for _, l := range c.Threads.Levels {
		off = append(off, Point{Level: l.Percent, Value: 100 * l.MAPE[place]})
		if o.Rounds > 0 {
			saved = append(saved, Point{Level: l.Percent, Value: 100 * l.SavedAll.Value})
		}
	}
	if c.Pruning, err = FitPruning(saved, off, 100*o.Epsilon); err != nil {
		return err
	}
	if c.Unfitted = fitFailed(c.Pruning.ErrorFit); c.Unfitted {
		return nil
	}
	full, err := prune.Rank(c.Whole, false)
	if err != nil {
		return err
	}
	c.Level, c.Off, err = c.Pruning.Allowed(func(level float64) (float64, error) {
		l, err := cost.At(c.Whole, full, level, false)
		if err != nil {
			return 0, err
		}
		return 100 * l.MAPE[place], nil
	})
	return err
}

// fitFailed reports whether a fit says nothing about what was measured. If that is
// nothing but zeros there is nothing to say, either.
func fitFailed(fit Goodness) bool {
	off := fit.BelowP99
	if math.IsNaN(off) {
		off = fit.All
	}
	return off >= failedFit
}
