package simulation

import "fmt"

// The paper's parameters.
const (
	interval = 100
	allUnits = 1_000_000

	Repetitions = 1000 // profiles of each setting
)

// idleGranularity is how long the paper's mixed resource is idle at a time:
// our copy does not say, so it is one interval.
const idleGranularity = interval

// intervalJitter is the variance of jittered intervals, of which the paper
// says no more than that it is little: their deviation is 1% of the interval.
const intervalJitter = 1

func granularities() []int    { return []int{30, 50, 100, 150, 200, 280} }
func utilisations() []float64 { return []float64{0.8, 0.5, 0.3} }

// noises are the second parameters of the paper's N(0,0.5), N(0,1), N(0,2).
// It calls them variances where it justifies them (5.1.3).
func noises() []float64 { return []float64{0.5, 1, 2} }

// mixed is the paper's system at 80%: four tasks, and idle time.
func mixed() Mix {
	return Mix{{0.3, 30}, {0.2, 50}, {0.2, 150}, {0.1, 280}, {0.2, idleGranularity}}
}

// mixedTasks are those of it that are not idle.
const mixedTasks = 4

// Design is what repeated profiles have in common.
type Design string

const (
	OneState  Design = "one state"         // one running state, profiled again and again from random starts
	Jittered  Design = "one state, jitter" // and each interval varies
	NewStates Design = "new states"        // each profile has a running state of its own
)

// NotInOurCopy is what stands where a figure of the paper should.
const NotInOurCopy = "not in our copy"

// Setting is what is simulated for one cell, or one row, of the paper.
type Setting struct {
	Place  string // of the paper
	Mix    Mix
	Tasks  int // that are shown, the first of the mix
	Units  int // of a state
	Design Design
	Sampling
	Paper string // its figure, in words; empty: not in our copy
}

// drawn tells whether the paper draws the distribution of a setting's results,
// as its Figure 11.
func (s *Setting) drawn() bool { return s.Place == "Table 2" && s.Mix[0].Granularity == 30 }

// settings are all of the paper's, in its order.
func settings() []Setting {
	var all []Setting
	for _, share := range utilisations() {
		place := "Table 3"
		if share == 0.8 {
			place = "Table 2"
		}
		for _, g := range granularities() {
			all = append(all, designs(Setting{Place: place, Mix: Single(share, g), Tasks: 1, Units: allUnits,
				Sampling: Sampling{Interval: interval}}, OneState, Jittered, NewStates)...)
		}
	}
	all = append(all, few()...)
	all = append(all, designs(mixture("Table 4", 10_000, 0), OneState, NewStates)...)
	for _, noise := range noises() {
		all = append(all, designs(mixture("Table 5", 10_000, noise), OneState, NewStates)...)
	}
	for _, n := range []int{1000, 500} {
		for _, noise := range noises() {
			all = append(all, designs(mixture("Table 6", n, noise), OneState, NewStates)...)
		}
	}
	return all
}

// few are profiles of few samples, each of a state of its own that is as long:
// the paper's effect of n (3.5), and its single sample (5.2.1).
func few() (all []Setting) {
	add := func(place string, share float64, g, n int) {
		s := Setting{Place: place, Mix: Single(share, g), Tasks: 1, Units: n*interval + g, Design: NewStates,
			Sampling: Sampling{Interval: interval, Within: g, Samples: n}}
		if place == SingleSample && share == 0.8 && g == 30 {
			s.Paper = fmt.Sprintf("variance %v", paperSingle)
		}
		all = append(all, s)
	}
	for _, share := range utilisations() {
		for _, g := range granularities() {
			add(SingleSample, share, g, 1)
		}
	}
	for _, g := range []int{30, 280} {
		for _, n := range []int{10, 100, 1000} {
			add(EffectOfN, 0.8, g, n)
		}
	}
	return all
}

// Places that are looked up.
const (
	SingleSample = "Section 5.2.1, one sample"
	EffectOfN    = "Section 3.5, n samples"
)

// mixture is the mixed system profiled with n samples, each with noise.
func mixture(place string, n int, noise float64) Setting {
	return Setting{Place: place, Mix: mixed(), Tasks: mixedTasks, Units: n * interval, Sampling: Sampling{Interval: interval, Noise: noise}}
}

func designs(s Setting, all ...Design) (out []Setting) {
	for _, d := range all {
		s.Design, s.Jitter, s.Paper = d, 0, ""
		if s.drawn() && d != NewStates {
			s.Paper = fmt.Sprintf("%.4f to %.4f", PaperLeast, PaperGreatest)
		}
		if d == Jittered {
			s.Jitter = intervalJitter
		}
		out = append(out, s)
	}
	return out
}
