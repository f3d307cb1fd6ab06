package calibrate

import (
	"math"
	"math/rand/v2"
)

// divided is a stream of which each sample went to one of two parts, at random: given
// what the program did in a step, what the one part says of it is independent of
// what the other says. Were the reference the whole, a window at a high rate would
// be compared with itself.
type divided struct {
	reference, rest [][]float64 // samples by step and function
}

func divide(rng *rand.Rand, s *Stream) *divided {
	d := &divided{}
	for _, counts := range s.Counts {
		reference, rest := make([]float64, len(counts)), make([]float64, len(counts))
		for i, n := range counts {
			reference[i] = binomial(rng, n, 0.5)
			rest[i] = n - reference[i]
		}
		d.reference, d.rest = append(d.reference, reference), append(d.rest, rest)
	}
	return d
}

// thin keeps each sample with one probability.
func thin(rng *rand.Rand, counts []float64, p float64) []float64 {
	kept := make([]float64, len(counts))
	for i, n := range counts {
		kept[i] = binomial(rng, n, p)
	}
	return kept
}

// binomial draws how many of n are kept, each with probability p. Few are drawn by
// how many are passed over up to the next; of many the normal distribution is near.
func binomial(rng *rand.Rand, n, p float64) float64 {
	const many = 100
	switch variance := n * p * (1 - p); {
	case p >= 1:
		return n
	case n <= 0 || p <= 0:
		return 0
	case p > 0.5:
		return n - binomial(rng, n, 1-p)
	case variance > many:
		return min(max(math.Round(n*p+rng.NormFloat64()*math.Sqrt(variance)), 0), n)
	}
	kept, passed := -1.0, 0.0
	for passed <= n {
		passed += math.Floor(math.Log(1-rng.Float64())/math.Log1p(-p)) + 1
		kept++
	}
	return kept
}
