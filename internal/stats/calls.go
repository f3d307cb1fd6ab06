package stats

import (
	"math/rand/v2"
	"sort"
)

// Calls tells of each function of a simulated program who calls it; -1: nobody.
// Callers come before what they call.
type Calls []int

// DrawCalls gives n functions that call each other at random.
func DrawCalls(rng *rand.Rand, n int) Calls {
	c := make(Calls, n)
	for i := range c {
		c[i] = rng.IntN(i+1) - 1
	}
	return c
}

// Totals adds to each function what those it calls have.
func (c Calls) Totals(self []Sums) []Sums {
	totals := make([]Sums, len(self))
	copy(totals, self)
	for i := len(c) - 1; i >= 0; i-- {
		if c[i] >= 0 {
			totals[c[i]] = totals[c[i]].Plus(totals[i])
		}
	}
	return totals
}

// DrawShares gives n shares as those of functions are, few large and many small,
// in no order: the i-th is in proportion to 1/i.
func DrawShares(rng *rand.Rand, n int) []float64 {
	shares, all := make([]float64, n), 0.0
	for i, at := range rng.Perm(n) {
		shares[at] = 1 / float64(i+1)
		all += shares[at]
	}
	for i := range shares {
		shares[i] /= all
	}
	return shares
}

// DrawSums gives what so many independent samples of one weight find of functions
// that have shares.
func DrawSums(rng *rand.Rand, shares []float64, samples int) (parts []Sums, whole Sums) {
	upTo, sum := make([]float64, len(shares)), 0.0
	for i, s := range shares {
		sum += s
		upTo[i] = sum
	}
	parts = make([]Sums, len(shares))
	one := Sums{1, 1, 1}
	for range samples {
		u := rng.Float64() * sum
		f := sort.Search(len(shares)-1, func(f int) bool { return upTo[f] > u })
		parts[f] = parts[f].Plus(one)
		whole = whole.Plus(one)
	}
	return parts, whole
}
