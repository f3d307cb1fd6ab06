// Package granularity tells from samples whose times were kept how evenly a machine was sampled, and how long a program ran at a time.
package granularity

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// Observed is what the samples of a recording show. In JSON its fields are stable.
type Observed struct {
	Samples int `json:"samples"`
	CPUs    int `json:"cpus"`
	// Breaks is how often a sample does not follow on its CPU's last: in between
	// that was idle, or ran what was not recorded. No interval is known there.
	Breaks    int          `json:"breaks"`
	Intervals Distribution `json:"interval_ns"`    // between samples that follow each other
	Runs      Distribution `json:"granularity_ns"` // of the same module, in samples that follow each other
	Rates     Distribution `json:"r"`              // granularity over the mean interval
	Events    *Events      `json:"events"`         // nil without a second event
}

// Events is how many events of a second kind samples counted.
type Events struct {
	Kind      string       `json:"kind"`
	Values    Distribution `json:"per_ns"` // of each sample, over its interval
	Modules   int          `json:"modules"`
	Variances Distribution `json:"variances"` // of the values within each module of more than 10 samples
}

// leastSamples is what a module needs for its variance to say something; the
// paper that this follows wants more than 10.
const leastSamples = 11

// Refusals of recordings that do not hold what is asked.
var (
	ErrNoTimes = errors.New("it holds no times of samples")
	ErrNoClock = errors.New("its samples are not those of a clock, so that nobody knows which of them follow each other")
	ErrThinned = errors.New("its samples were thinned at random, so that those left do not follow each other")
)

// Observe reads a recording.
func Observe(w *profile.Window) (*Observed, error) {
	switch {
	case len(w.Samples) == 0:
		return nil, ErrNoTimes
	case len(w.Types) == 0 || w.Types[0].Unit != "nanoseconds":
		return nil, ErrNoClock
	case w.Design == profile.DesignThinned:
		return nil, ErrThinned
	}
	o := observer{modules: modulesOf(w), byModule: map[string][]float64{}}
	samples := slices.Clone(w.Samples)
	slices.SortStableFunc(samples, func(a, b profile.Sample) int {
		return cmp.Or(cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Time, b.Time))
	})
	for i := range samples {
		if i == 0 || samples[i].CPU != samples[i-1].CPU {
			o.begin(&samples[i])
		} else {
			o.next(&samples[i-1], &samples[i])
		}
	}
	o.endRun()
	return o.observed(w, len(samples)), nil
}

// modulesOf names the binary or script that each stack was in.
func modulesOf(w *profile.Window) []string {
	modules := make([]string, len(w.Stacks))
	for i, s := range w.Stacks {
		modules[i] = "[unknown]"
		if len(s.Locations) > 0 {
			leaf := w.Frames(s.Locations[0])[0]
			if name := cmp.Or(leaf.Mapping, leaf.File); name != "" {
				modules[i] = path.Base(name)
			}
		}
	}
	return modules
}

// observer goes along the samples of each CPU.
type observer struct {
	modules   []string // of stacks
	cpus      int
	breaks    int
	intervals []float64
	runs      []float64
	values    []float64
	byModule  map[string][]float64

	module string        // that runs
	run    time.Duration // for how long
}

// begin takes a CPU's first sample.
func (o *observer) begin(s *profile.Sample) {
	o.cpus++
	o.switchTo(s)
}

func (o *observer) next(last, s *profile.Sample) {
	interval := s.Time - last.Time
	if !follows(last, s) {
		o.breaks++
		o.switchTo(s)
		return
	}
	o.intervals = append(o.intervals, float64(interval))
	if interval > 0 {
		module, value := o.modules[s.Stack], float64(s.Delta)/float64(interval)
		o.values = append(o.values, value)
		o.byModule[module] = append(o.byModule[module], value)
	}
	if o.modules[s.Stack] != o.module {
		o.endRun()
		o.module = o.modules[s.Stack]
	}
	o.run += interval
}

// switchTo begins a run with a sample before which no interval is known: it
// counts for what it stands for.
func (o *observer) switchTo(s *profile.Sample) {
	o.endRun()
	o.module, o.run = o.modules[s.Stack], time.Duration(s.Weight)
}

func (o *observer) endRun() {
	if o.run > 0 {
		o.runs = append(o.runs, float64(o.run))
	}
	o.run = 0
}

// follows tells whether no tick of the timer lies between two samples. Its
// period, of which the weight is a little more, is drawn anew for each block
// of samples (package stats), and at the edge the timer starts afresh: then
// what was left of the last block is part of the interval.
func follows(last, s *profile.Sample) bool {
	interval := s.Time - last.Time
	if last.Weight == s.Weight {
		return interval <= time.Duration(s.Weight+s.Weight/2)
	}
	return interval <= time.Duration(last.Weight+s.Weight)
}

func (o *observer) observed(w *profile.Window, samples int) *Observed {
	out := &Observed{Samples: samples, CPUs: o.cpus, Breaks: o.breaks, Intervals: distribution(o.intervals), Runs: distribution(o.runs)}
	if mean := out.Intervals.Mean; mean > 0 {
		rates := make([]float64, len(o.runs))
		for i, run := range o.runs {
			rates[i] = run / mean
		}
		out.Rates = distribution(rates)
	}
	counted := slices.ContainsFunc(w.Samples, func(s profile.Sample) bool { return s.Delta != 0 })
	if len(w.Types) > 1 && counted {
		out.Events = o.events(w.Types[1].Kind)
	}
	return out
}

func (o *observer) events(kind string) *Events {
	e := &Events{Kind: kind, Values: distribution(o.values), Modules: len(o.byModule)}
	var variances []float64
	for _, values := range o.byModule {
		if len(values) >= leastSamples {
			variances = append(variances, distribution(values).Variance)
		}
	}
	e.Variances = distribution(variances)
	return e
}
