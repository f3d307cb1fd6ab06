// Package stats says how sure a profile is: intervals of shares, differences and medians, and a model of the sampling they come from.
//
// The flow for a share:
//
//  1. Sums of a node and of the whole (samples, weights, squared weights)
//     come from the profile; weights differ because the sampler draws a new
//     period for every block of samples, and because rates change.
//  2. Share turns them into an effective number of samples: as many equally
//     weighted, independent ones as would vary as much.
//  3. Proportion gives the interval of a proportion at that number.
//  4. Difference compares two shares, TotalFromShare scales one to the exact
//     time the kernel accounted. Compare tests it, Judge says which of many
//     tests are significant, Detectable and Needed what could have been found.
//  5. Clusters say the same of a service, whose instances differ.
//
// SamplesFor and HalfWidth go the other way, from what is wanted to samples.
// Design, Program and Calls simulate the sampler against programs whose true
// shares are known; the tests of this package choose and check step 2 with them.
// Median, MedianInterval, RatioInterval and Slope serve benchmarks.
package stats

import "math"

// z is the normal deviate of a two-sided 95% interval; every interval of this
// package is at that level, unless a confidence is asked for.
const (
	z       = 1.959963984540054
	oneTail = 0.025
)

// Interval is an estimate with the bounds of its 95% interval.
type Interval struct {
	Value, Low, High float64
}

// Width is the distance between the bounds.
func (i Interval) Width() float64 { return i.High - i.Low }

// Contains tells whether v lies within the bounds.
func (i Interval) Contains(v float64) bool { return i.Low <= v && v <= i.High }

// Sums is what was sampled on a node, or on all of a selection.
type Sums struct {
	N       int64   // samples
	Weight  float64 // sum of their weights
	Squares float64 // sum of their squared weights; 0 means that all weighed the same
}

// Plus adds what was sampled elsewhere.
func (s Sums) Plus(o Sums) Sums {
	return Sums{s.N + o.N, s.Weight + o.Weight, s.Squares + o.Squares}
}

// squares gives the sum of squared weights, derived where it was not kept.
func (s Sums) squares() float64 {
	if s.Squares > 0 || s.N <= 0 {
		return s.Squares
	}
	return s.Weight * s.Weight / float64(s.N)
}

// Share is the share that part has of whole, of which it is a part.
//
// It takes samples for independent given their weights. In the simulated
// design they are nearly: coverage is 94-96% for programs whose functions run
// for less than a sampling period or in step with it, and no correction for
// blocks is needed (see TestShareCoversItsDesign). Functions that run for
// several periods at a time are sampled more evenly than by chance; their
// intervals are safe and wider than need be, coverage is near 100%.
//
// With no sample on the part, High is still informative: what may have been
// missed. Without any sample at all the share may be anything.
func Share(part, whole Sums) Interval {
	if whole.N <= 0 || whole.Weight <= 0 {
		return Interval{0, 0, 1}
	}
	share := min(max(part.Weight/whole.Weight, 0), 1)
	n := effective(share, part, whole)
	return Proportion(share*n, n)
}

// effective is how many equally weighted, independent samples would be as
// sure of the share as these are: the lower of two answers.
//
// The first, Kish's, is of the whole: squared sum over sum of squares. The
// second puts the part's own squared weights into the variance of a ratio.
// They agree while weights do not depend on where a sample fell. Where rates
// changed between merged windows, the first is too sure of what ran only at
// the low rate (simulated, 999 Hz and 20 Hz merged: 80-86% covered), the
// second of what ran throughout but was hit at the high rate only (63%); the
// lower of both is not, and costs 1-3% of width where rates did not change.
func effective(share float64, part, whole Sums) float64 {
	square := whole.Weight * whole.Weight
	n := min(square/whole.squares(), float64(whole.N))
	if part.N <= 0 || share <= 0 || share >= 1 {
		return n
	}
	variance := ((1-2*share)*part.squares() + share*share*whole.squares()) / square
	if variance > 0 {
		n = min(n, share*(1-share)/variance)
	}
	return max(n, 1) // less only where the sums contradict each other
}

// Difference is by how much share b exceeds share a, two independent shares,
// or what TotalFromShare makes of them: seconds.
//
// It is Newcombe's hybrid (Statistics in Medicine 17, 1998, method 10): each
// side of the interval takes the bound of a and of b that lie on that side,
// so it stays inside [-1, 1] and knows that shares near 0 are skewed.
func Difference(a, b Interval) Interval {
	d := b.Value - a.Value
	return Interval{
		Value: d,
		Low:   d - math.Hypot(b.Value-b.Low, a.High-a.Value),
		High:  d + math.Hypot(b.High-b.Value, a.Value-a.Low),
	}
}

// TotalFromShare is the total behind a share of something that is known
// exactly, such as the CPU time the kernel accounted to a thread.
func TotalFromShare(share Interval, exact float64) Interval {
	return Interval{share.Value * exact, share.Low * exact, share.High * exact}
}
