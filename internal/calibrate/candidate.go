package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/spec"
)

// Fixed is the policy that has one rate, which is Max.
const Fixed = "fixed"

// Candidate is one way to choose how often is sampled.
type Candidate struct {
	Window time.Duration
	freq.Options
}

// String names it.
func (c Candidate) String() string {
	switch c.Policy {
	case freq.Atys:
		return fmt.Sprintf("%s theta %g lambda %g, %g-%g Hz", freq.Atys, c.Theta, c.Lambda, c.Min, c.Max)
	case freq.Auto:
		return fmt.Sprintf("%s width %g, %g-%g Hz", freq.Auto, c.Width, c.Min, c.Max)
	}
	return strconv.FormatFloat(c.Max, 'g', -1, 64) + " Hz"
}

// Range is what candidates are chosen from.
type Range struct {
	Windows  []time.Duration
	Min, Max float64  // Hz
	Policies []string // of freq, and Fixed
}

// What is tried of each policy. The thresholds are from far below to far above what the
// paper's figures show; the widths around the default.
func thetas() []float64  { return []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5} }
func lambdas() []float64 { return []float64{0.5, 0.6, 0.7, 0.8, 0.9} }
func widths() []float64  { return []float64{0.0025, 0.005, 0.01, 0.02, 0.05} }
func rates() []float64   { return []float64{1, 2, 5, 10, 19, 49, 99, 199, 499, 999, 1999, 4999} }

// Candidates are all of a range. A policy has the whole range of rates, or that from
// the default on: at less, of few instances, it may see noise alone. A fixed rate is
// within the range.
func (r Range) Candidates() (all []Candidate) {
	for _, window := range r.Windows {
		for _, policy := range r.Policies {
			for _, o := range r.options(policy) {
				all = append(all, Candidate{window, o})
			}
		}
	}
	return all
}

func (r Range) options(policy string) (all []freq.Options) {
	add := func(o freq.Options) {
		o.Max = r.Max
		o.Fill()
		for _, o.Min = range r.leasts() {
			all = append(all, o)
		}
	}
	switch policy {
	case Fixed:
		for _, hertz := range rates() {
			if hertz >= r.Min && hertz <= r.Max {
				all = append(all, fixed(hertz))
			}
		}
	case freq.Atys:
		for _, theta := range thetas() {
			for _, lambda := range lambdas() {
				add(freq.Options{Policy: freq.Atys, Theta: theta, Lambda: lambda})
			}
		}
	case freq.Auto:
		for _, width := range widths() {
			add(freq.Options{Policy: freq.Auto, Width: width})
		}
	}
	return all
}

// leasts are the rates below which a policy may not fall.
func (r Range) leasts() []float64 {
	if r.Min < spec.DefaultFrequency && spec.DefaultFrequency < r.Max {
		return []float64{r.Min, spec.DefaultFrequency}
	}
	return []float64{r.Min}
}

func fixed(hertz float64) freq.Options {
	return freq.Options{Policy: Fixed, Min: hertz, Max: hertz, Top: freq.DefaultTop}
}

// Baseline is what is recorded where nobody asks for anything: others are compared
// with it. It has the default's window if that is one of those, else the first.
func (r Range) Baseline() Candidate {
	window := r.Windows[0]
	if slices.Contains(r.Windows, spec.DefaultWindow) {
		window = spec.DefaultWindow
	}
	return Candidate{window, fixed(min(spec.DefaultFrequency, r.Max))}
}

// leastWindows are those a policy can be judged by.
const leastWindows = 4

// Fit leaves the lengths of windows that a recording has enough of, and the rates that
// it can tell of: half of its samples are needed to compare with.
func (r Range) Fit(s *Stream) (Range, error) {
	var fit []time.Duration
	for _, window := range slices.Compact(slices.Sorted(slices.Values(r.Windows))) {
		if window%s.Step == 0 && leastWindows*window <= s.Length() {
			fit = append(fit, window)
		}
	}
	if len(fit) == 0 {
		return r, fmt.Errorf("%w: %v, which is less than %d windows of %v", ErrTooShort, s.Length(), leastWindows, slices.Min(r.Windows))
	}
	r.Windows = fit
	if r.Max = min(r.Max, math.Floor(s.Hertz/2)); r.Min > r.Max {
		return r, fmt.Errorf("%w: %.0f Hz, of which half are compared with, and the least rate is to be %g Hz", ErrTooSlow, s.Hertz, r.Min)
	}
	return r, nil
}
