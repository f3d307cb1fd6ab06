// Package simulation is a model of sampling by running granularity and sampling interval, and the simulation that tries it.
//
// Both are those of a paper that asks why sampled profiles can be trusted. Of
// its formulas our copy has the prose alone, so they are derived anew here.
// The flow:
//
//  1. Model says what to expect of one task that runs in stretches of one
//     length; Mix of several tasks that take turns.
//  2. Mix.Draw generates a State, unit by unit, whose true shares are known.
//  3. Sampling.Profile takes samples from it, and Summary adds up how far
//     repeated profiles are from the truth.
//  4. Run does so for each setting of the paper's tables and figures, and
//     puts the paper's figures beside it where our copy has them.
package simulation

import "math"

// Model is a task that runs in stretches of one length, and a profiler whose
// first sample falls independently of them. Lengths are in units, as the
// paper's, of which one is the least that a task can run for.
type Model struct {
	Granularity float64 // how long the task runs until it is switched out
	Interval    float64 // from one sample to the next, on average
	Jitter      float64 // variance of the interval, which is normally distributed
}

// Class is one of the three conditions that the paper tells apart.
type Class string

const (
	ClassWhole Class = "whole" // stretches last one interval, or a whole number of them
	ClassShort Class = "short" // the task is switched within an interval
	ClassLong  Class = "long"  // a stretch lasts for several intervals, and a part of one
)

// R is the rate that decides everything: granularity over interval.
func (m Model) R() float64 { return m.Granularity / m.Interval }

// Class tells which condition R is.
func (m Model) Class() Class {
	switch r := m.R(); {
	case r == math.Floor(r):
		return ClassWhole
	case r < 1:
		return ClassShort
	}
	return ClassLong
}

// Counts is how many samples hit a stretch under a constant interval: fewer
// of them or, with probability more, one more. This is the paper's piecewise
// binomial distribution; for R below 1 it is Bernoulli's.
func (m Model) Counts() (fewer int, more float64) {
	whole, part := math.Modf(m.R())
	return int(whole), part
}

// CountMean is how many samples hit a stretch on average. It is R, which is
// what makes profiles unbiased: a stretch counts for as long as it lasts.
func (m Model) CountMean() float64 { return m.R() }

// CountVariance is the variance of the number of samples that hit a stretch:
// frac(R)(1-frac(R)) under a constant interval, 0.25 at most.
//
// It is derived from pairs, which also holds for jittered intervals: the mean
// of K(K-1) is twice the sum over k of the mean length in which a sample and
// the k-th after it both fall into the stretch, per interval.
func (m Model) CountVariance() float64 {
	r := m.R()
	pairs := 0.0
	for k := 1; ; k++ {
		overlap := m.overlap(k)
		if overlap == 0 {
			break
		}
		pairs += overlap
	}
	return max(r+2*pairs/m.Interval-r*r, 0)
}

// overlap is the mean of what is left of a stretch beyond k intervals.
func (m Model) overlap(k int) float64 {
	left := m.Granularity - float64(k)*m.Interval
	sd := math.Sqrt(float64(k) * m.Jitter)
	if sd == 0 {
		return max(left, 0)
	}
	at := left / sd
	if at < -8 { // and for all greater k: less than 1e-15 of sd
		return 0
	}
	return left*normal(at) + sd*math.Exp(-at*at/2)/math.Sqrt(2*math.Pi)
}

// ErrorVariance is the variance of a profile of n samples around the share
// that the task really had while it was profiled; share is what it has on
// average, each stretch being the task's with that probability.
//
// A profile errs by the sum over stretches of (hits - R)/n, for those that are
// the task's. Stretches are independent of each other, there are n/R of them,
// and that the whole is known leaves share(1-share) of the variance of hits.
func (m Model) ErrorVariance(share float64, n int) float64 {
	return share * (1 - share) * m.CountVariance() / (m.R() * float64(n))
}

// MeanVariance is the variance of a profile of n samples around the share that
// the task has on average: that of what it happened to run is in it. For R up
// to 1 samples are independent, and it is the binomial share(1-share)/n that
// the paper gives; beyond, samples of one stretch say the same.
func (m Model) MeanVariance(share float64, n int) float64 {
	alike := 1.0
	for k := 1; k < n; k++ {
		overlap := m.overlap(k)
		if overlap == 0 {
			break
		}
		alike += 2 * (1 - float64(k)/float64(n)) * overlap / m.Granularity
	}
	return share * (1 - share) * alike / float64(n)
}

// IntervalVariance is the variance of the share that the task really has of
// one interval, whose place among the stretches is random.
func (m Model) IntervalVariance(share float64) float64 {
	r := m.R()
	if r <= 1 {
		return share * (1 - share) * r * (1 - r/3)
	}
	return share * (1 - share) * (1 - 1/(3*r))
}

// normal is the standard normal distribution up to x.
func normal(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
