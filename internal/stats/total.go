package stats

import "math"

// OfExact is what part of an exact total was sampled, with the interval that
// misses the truth with a probability of miss. Period is what a sample weighs where
// there is none.
//
// The number of samples is taken for Poisson, as many as would be as sure as these,
// with Byar's approximation of its limits. A task that runs for several periods at
// a time is sampled more evenly than that: there the interval is safe, and wider
// than need be.
func OfExact(sampled Sums, exact, period, miss float64) Interval {
	if exact <= 0 {
		return Interval{0, 0, math.Inf(1)}
	}
	n, each := 0.0, period
	if sampled.N > 0 && sampled.Weight > 0 {
		each = sampled.squares() / sampled.Weight
		n = sampled.Weight / each
	}
	low, high := poissonLimits(n, normalTail(miss/2))
	return Interval{n * each / exact, low * each / exact, high * each / exact}
}

// poissonLimits are Byar's limits of the mean of which n were counted (Breslow and
// Day 1987, Statistical Methods in Cancer Research II, p. 69).
func poissonLimits(n, z float64) (low, high float64) {
	if n > 0 {
		low = n * math.Pow(max(1-1/(9*n)-z/(3*math.Sqrt(n)), 0), 3)
	}
	m := n + 1
	return low, m * math.Pow(1-1/(9*m)+z/(3*math.Sqrt(m)), 3)
}
