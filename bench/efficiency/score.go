package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"atys.dev/atys/internal/stats"
)

// moment is a window of a recording of which the truth is known.
type moment struct {
	start int64
	truth []float64 // shares of the workload's functions
	block int       // stretch of windows, from one change to the next
	at    bool      // a change falls into it
	after bool      // one of the two windows that begin after a change
}

// afterChange is how many windows behind a change are looked at by themselves.
const afterChange = 2

// mark tells windows apart by the changes of a recording; blocks count on from first.
func mark(moments []moment, changes []int64, window int64, first int) {
	block, since := first, afterChange
	for i := range moments {
		m := &moments[i]
		m.after = since < afterChange
		since++
		at, _ := slices.BinarySearch(changes, m.start)
		if m.at = at < len(changes) && changes[at] < m.start+window; m.at {
			since = 0
			block++
		}
		m.block = block
	}
}

// meanError is the mean absolute error of shares by function, after what is not the
// workload's functions is left out, as the paper does. Nothing sampled knows nothing:
// all functions alike.
func meanError(found, truth []float64) float64 {
	shares := distribution(found)
	sum := 0.0
	for i, share := range truth {
		guess := 1 / float64(len(truth))
		if shares != nil {
			guess = shares[i]
		}
		sum += math.Abs(guess - share)
	}
	return sum / float64(len(truth))
}

// series are values by repetition and moment.
type series [][]float64

// less takes another away, repetition by repetition and moment by moment.
func (s series) less(o series) series {
	out := make(series, len(s))
	for i := range s {
		out[i] = make([]float64, len(s[i]))
		for j := range s[i] {
			out[i][j] = s[i][j] - o[i][j]
		}
	}
	return out
}

// every counts all moments.
func every(moment) bool { return true }

// behind counts those after a change.
func behind(m moment) bool { return m.after }

const (
	draws  = 2000
	margin = 0.1 // of the error at a par's Scale
)

// mean is that of the moments that count, with its 95% interval: repetitions differ by
// which samples are drawn, stretches by what the program did. Both are drawn anew, each
// by itself (Owen's pigeonhole bootstrap, Annals of Applied Statistics 1, 2007, which is
// if anything too wide); moments of one stretch stay together, for they depend on each
// other by the policy's memory.
func (s series) mean(moments []moment, counts func(moment) bool) stats.Interval {
	sums, n := s.blocks(moments, counts)
	if len(n) == 0 || len(s) == 0 {
		return stats.Interval{Value: math.NaN(), Low: math.Inf(-1), High: math.Inf(1)}
	}
	r := rand.New(rand.NewPCG(1, uint64(len(n))))
	means := make([]float64, draws)
	for i := range means {
		means[i] = drawMean(sums, n, r)
	}
	slices.Sort(means)
	const tail = draws * 25 / 1000
	return stats.Interval{Value: wholeMean(sums, n), Low: means[tail], High: means[draws-1-tail]}
}

// blocks sums up by repetition and stretch; stretches without a moment that counts are left out.
func (s series) blocks(moments []moment, counts func(moment) bool) (sums [][]float64, n []float64) {
	sums = make([][]float64, len(s))
	before := -1
	for j, m := range moments {
		if !counts(m) {
			continue
		}
		if m.block != before {
			before = m.block
			n = append(n, 0)
			for i := range sums {
				sums[i] = append(sums[i], 0)
			}
		}
		n[len(n)-1]++
		for i := range sums {
			sums[i][len(n)-1] += s[i][j]
		}
	}
	return sums, n
}

func wholeMean(sums [][]float64, n []float64) float64 {
	var sum, count float64
	for i := range sums {
		for j := range n {
			sum += sums[i][j]
			count += n[j]
		}
	}
	return sum / count
}

// drawMean is the mean of repetitions and stretches drawn with replacement.
func drawMean(sums [][]float64, n []float64, r *rand.Rand) float64 {
	chosen := make([]int, len(n))
	for j := range chosen {
		chosen[j] = r.IntN(len(n))
	}
	var sum, count float64
	for range sums {
		repetition := sums[r.IntN(len(sums))]
		for _, j := range chosen {
			sum += repetition[j]
			count += n[j]
		}
	}
	return sum / count
}

// verdict is a difference of errors, and whether it is small.
type verdict struct {
	Difference stats.Interval
	Margin     float64
	Holds      bool // the upper end is within the margin
}

func judge(difference stats.Interval, scale float64) verdict {
	return verdict{difference, margin * scale, difference.High <= margin*scale}
}
