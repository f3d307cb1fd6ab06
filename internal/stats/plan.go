package stats

import "math"

// DesignEffect is how many samples of the random design are worth as much as one
// if all weighed the same. Each weighs its period; over the samples its mean is
// the asked one, and the mean of its square, by which effective counts, that of
// a period, shortest + 1/2.
const DesignEffect = shortest + 0.5

// HalfWidth is how far the farther bound lies from a share of n samples that
// weigh the same: the x in "share +- x". Confidence is of one, such as 0.95, at
// which it is the interval that Share has.
func HalfWidth(share, n, confidence float64) float64 {
	i := enclose(share*n, n, levelOf(confidence), ownWeight)
	return max(i.High-share, share-i.Low)
}

// SamplesFor is how many samples that weigh the same let a share be known
// within some other, at a confidence. Both are of one.
func SamplesFor(share, within, confidence float64) float64 {
	few := func(n float64) bool { return HalfWidth(share, n, confidence) > within }
	low, high := 1.0, 1.0
	for few(high) && high < math.MaxInt64 {
		low, high = high, 2*high
	}
	for high-low > 1e-3*high {
		if middle := (low + high) / 2; few(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// Effort is what a recording takes: so many instances, each keeping so many CPUs
// busy, for some seconds, each CPU sampled so often in a second.
type Effort struct{ Instances, CPUs, Seconds, Hertz float64 }

// Samples is how many samples of the random design an effort gives.
func (e Effort) Samples() float64 { return e.Instances * e.CPUs * e.Seconds * e.Hertz }

// Solve gives the one field of an effort that is 0 the value at which there are
// so many samples.
func (e Effort) Solve(samples float64) Effort {
	for _, unknown := range []*float64{&e.Instances, &e.CPUs, &e.Seconds, &e.Hertz} {
		if *unknown == 0 {
			*unknown = 1
			*unknown = samples / e.Samples()
			break
		}
	}
	return e
}

// SamplesForChange is how many samples that weigh the same each of two
// recordings needs for a change from one share to another to be found, four
// times of five, where so many functions are compared.
func SamplesForChange(share, changed float64, functions int) float64 {
	const some = 1000
	each := Side{Whole: Sums{N: some, Weight: some, Squares: some}}
	return some * Needed(share, changed, each, each, FalseDiscoveries/float64(max(functions, 1)))
}
