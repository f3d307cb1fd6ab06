package simulation

import (
	"math"
	"math/rand/v2"
)

// Sampling is how a profiler takes its samples.
type Sampling struct {
	Interval int     // units from one sample to the next, and events that a sample counts
	Jitter   float64 // variance of each interval, 0: it is constant
	Noise    float64 // variance of the events that a sample counts, 0: they are its base event
	Within   int     // the first sample falls evenly within so many units; 0: within one interval
	Samples  int     // at most so many; 0: up to the end of the state
}

// Profile writes the share of events that a profile finds for each task, and
// gives the number of its samples.
func (s Sampling) Profile(rng *rand.Rand, state *State, shares []float64) (n int) {
	clear(shares)
	within := s.Within
	if within == 0 {
		within = s.Interval
	}
	jitter, noise := math.Sqrt(s.Jitter), math.Sqrt(s.Noise)
	unit := float64(s.Interval)
	stretch, units := 0, state.Units()
	for at := rng.Float64() * float64(within); int(at) < units && (s.Samples == 0 || n < s.Samples); n++ {
		for state.ends[stretch] <= int(at) {
			stretch++
		}
		events := unit
		if noise > 0 {
			events += noise * rng.NormFloat64()
		}
		shares[state.tasks[stretch]] += events
		at += unit
		if jitter > 0 {
			at += max(jitter*rng.NormFloat64(), -unit) // time does not run backwards
		}
	}
	for i := range shares {
		shares[i] /= unit * float64(n)
	}
	return n
}

// Summary adds up values without keeping them. Its zero value is ready.
type Summary struct {
	N              int
	Mean, Min, Max float64

	squares float64 // sum of squared distances from the mean
}

// Add adds a value, by Welford's method: it loses nothing where values are
// nearly the same.
func (s *Summary) Add(v float64) {
	if s.N++; s.N == 1 {
		s.Min, s.Max = v, v
	}
	s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	off := v - s.Mean
	s.Mean += off / float64(s.N)
	s.squares += off * (v - s.Mean)
}

// Variance is that of what the values were drawn from; 0 of fewer than two.
func (s *Summary) Variance() float64 {
	if s.N < 2 {
		return 0
	}
	return s.squares / float64(s.N-1)
}

// StandardError is that of the mean.
func (s *Summary) StandardError() float64 {
	return math.Sqrt(s.Variance() / float64(max(s.N, 1)))
}
