package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// bootstraps is how often Slope resamples: its bounds are the 25th value from
// either end.
const bootstraps = 1000

// Slope is the slope of y over x by Theil and Sen, the median of the slopes
// between all pairs of points with different x, which a third of wild points
// cannot move far. The interval is from resampling points. It is an error if
// all x are the same.
func Slope(x, y []float64, rng *rand.Rand) (Interval, error) {
	if len(x) != len(y) {
		return Interval{}, fmt.Errorf("fit slope: %d x against %d y", len(x), len(y))
	}
	all := make([]int, len(x))
	for i := range all {
		all[i] = i
	}
	pairs := make([]float64, 0, len(x)*len(x)/2)
	value, ok := theilSen(x, y, all, pairs)
	if !ok {
		return Interval{}, fmt.Errorf("fit slope: %d points share one x", len(x))
	}
	slopes := make([]float64, 0, bootstraps)
	pick := make([]int, len(x))
	for range bootstraps {
		for i := range pick {
			pick[i] = rng.IntN(len(x))
		}
		if s, ok := theilSen(x, y, pick, pairs); ok {
			slopes = append(slopes, s)
		}
	}
	if len(slopes) == 0 {
		return Interval{value, math.Inf(-1), math.Inf(1)}, nil
	}
	slices.Sort(slopes)
	tail := int(oneTail * float64(len(slopes)))
	return Interval{value, min(value, slopes[tail]), max(value, slopes[len(slopes)-1-tail])}, nil
}

// theilSen is the median slope between the picked points; pairs is scratch.
func theilSen(x, y []float64, pick []int, pairs []float64) (float64, bool) {
	pairs = pairs[:0]
	for i, p := range pick {
		for _, q := range pick[:i] {
			if x[p] != x[q] {
				pairs = append(pairs, (y[p]-y[q])/(x[p]-x[q]))
			}
		}
	}
	if len(pairs) == 0 {
		return 0, false
	}
	slices.Sort(pairs)
	return sortedMedian(pairs), true
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
