package stats

import (
	"fmt"
	"math"
	"slices"
)

// Median is the middle of values, the mean of the middle two if their number
// is even, and NaN if there are none. It does not reorder values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return sortedMedian(sorted(values))
}

// MedianInterval is the median of independent values and the interval of the
// median of what they were drawn from, from order statistics: nothing is
// assumed about the distribution.
//
// The second result is the confidence that the bounds really have. It is 0.95
// or a little more; fewer than 6 values cannot give that much, their bounds
// are the least and the greatest and the confidence says how little it means.
func MedianInterval(values []float64) (Interval, float64) {
	if len(values) == 0 {
		return Interval{math.NaN(), math.Inf(-1), math.Inf(1)}, 0
	}
	v := sorted(values)
	n := len(v)
	// Each of the n values lies below the true median with probability 1/2,
	// so the i-th least and i-th greatest enclose it unless fewer than i fell
	// on one side. below is the probability that fewer than i+1 did.
	below, term := 0.0, math.Exp2(-float64(n))
	i, outside := 0, 0.0
	for j := 0; j < (n+1)/2; j++ {
		below += term
		if j > 0 && below > oneTail {
			break
		}
		i, outside = j, 2*below
		term *= float64(n-j) / float64(j+1)
	}
	return Interval{sortedMedian(v), v[i], v[n-1-i]}, max(1-outside, 0)
}

// RatioInterval is the median of a[i]/b[i] and its interval, for measurements
// made in rounds: what disturbs a round disturbs both sides of its ratio. The
// second result is the confidence, as in MedianInterval.
func RatioInterval(a, b []float64) (Interval, float64, error) {
	if len(a) != len(b) {
		return Interval{}, 0, fmt.Errorf("pair rounds: %d values against %d", len(a), len(b))
	}
	ratios := make([]float64, len(a))
	for i := range a {
		if b[i] == 0 {
			return Interval{}, 0, fmt.Errorf("pair rounds: round %d is divided by zero", i)
		}
		ratios[i] = a[i] / b[i]
	}
	interval, confidence := MedianInterval(ratios)
	return interval, confidence, nil
}

func sorted(values []float64) []float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	return v
}

func sortedMedian(v []float64) float64 {
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
