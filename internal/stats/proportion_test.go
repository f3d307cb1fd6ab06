package stats

import (
	"math"
	"slices"
	"testing"
)

// TestProportionCovers enumerates what Proportion does of all counts there are,
// where coverage is least: just within and just without each bound.
func TestProportionCovers(t *testing.T) {
	least, most, widest := 1.0, 0.0, 0.0
	for _, n := range []int{1, 2, 3, 5, 9, 10, 14, 22, 27, 30, 44, 61, 85, 100, 250, 1000, 5000} {
		proportions, midP := enumerate(n, Proportion), enumerate(n, MidP)
		for _, p := range hardest(proportions) {
			covered := coverage(proportions, p)
			expected := p * float64(n)
			if least = min(least, covered); covered < 0.933 {
				t.Errorf("of %d, %.3f expected: covered in %.4f", n, expected, covered)
			}
			if expected >= 20 && (1-p)*float64(n) >= 20 {
				if most = max(most, covered); covered > 0.97 {
					t.Errorf("of %d, %.3f expected: covered in %.4f", n, expected, covered)
				}
			}
		}
		for expected := 0.01; expected <= float64(n)/2; expected *= 1.3 {
			p := expected / float64(n)
			ratio := meanWidth(proportions, p) / meanWidth(midP, p)
			if widest = max(widest, ratio); ratio > 1.122 {
				t.Errorf("of %d, %.3f expected: %.4f times as wide as mid-P", n, expected, ratio)
			}
		}
	}
	t.Logf("covered in %.4f or more, %.4f or less where 20 are expected; at most %.4f times as wide as mid-P", least, most, widest)
}

// enumerate gives the intervals of all counts of n.
func enumerate(n int, of func(k, n float64) Interval) []Interval {
	out := make([]Interval, n+1)
	for k := range out {
		out[k] = of(float64(k), float64(n))
	}
	return out
}

// hardest lists proportions up to a half at which some interval just does, or
// just does not, reach.
func hardest(intervals []Interval) (out []float64) {
	for k, i := range intervals {
		for _, end := range []float64{i.Low, i.High} {
			many := end*float64(len(intervals)) > 100 // there coverage hardly changes
			if end > 0 && end <= 0.5 && (!many || k%20 == 0) {
				out = append(out, end*(1-1e-9), end*(1+1e-9))
			}
		}
	}
	return append(out, 0.5)
}

// coverage is how often the intervals of a binomial count contain its p.
func coverage(intervals []Interval, p float64) (sum float64) {
	n := len(intervals) - 1
	for k := likely(n, p); k <= n; k++ {
		mass := math.Exp(logMass(k, n, p))
		if intervals[k].Contains(p) {
			sum += mass
		}
		if mass < 1e-12 && float64(k) > p*float64(n) {
			break
		}
	}
	return sum
}

func meanWidth(intervals []Interval, p float64) (sum float64) {
	n := len(intervals) - 1
	for k := likely(n, p); k <= n; k++ {
		mass := math.Exp(logMass(k, n, p))
		sum += mass * intervals[k].Width()
		if mass < 1e-12 && float64(k) > p*float64(n) {
			break
		}
	}
	return sum
}

// likely is a count below which nothing need be added up.
func likely(n int, p float64) int {
	mean := p * float64(n)
	return max(0, int(mean-9*math.Sqrt(mean)-9))
}

func logMass(k, n int, p float64) float64 {
	return logChoose(float64(n), float64(k)) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p)
}

// Bounds of more hits are higher, also between whole counts: else more samples
// on a function could lower its interval.
func TestProportionRises(t *testing.T) {
	for _, n := range []float64{1, 7.5, 50, 61, 1000} {
		before := Proportion(0, n)
		for k := 0.05; k <= n; k += 0.05 {
			i := Proportion(k, n)
			if i.Low < before.Low || i.High < before.High || !i.Contains(k/n) {
				t.Fatalf("Proportion(%v, %v) = %v after %v", k, n, i, before)
			}
			before = i
		}
	}
}

// The oracle is SciPy's incomplete beta function; see testdata/midp.py.
func TestProportionOracle(t *testing.T) {
	rows := readTable(t, "testdata/proportion.tsv", 4)
	if len(rows) < 200 {
		t.Errorf("%d rows of the oracle's table, want more than 200", len(rows))
	}
	worst := map[bool]float64{}
	for _, v := range rows {
		k, n, low, high := v[0], v[1], v[2], v[3]
		got := Proportion(k, n)
		off := max(math.Abs(got.Low-low), math.Abs(got.High-high)) / (high - low)
		expanded := min(k, n-k) > exactBelow
		worst[expanded] = max(worst[expanded], off)
		if limit := map[bool]float64{false: 1e-6, true: 0.003}[expanded]; !(off <= limit) {
			t.Errorf("Proportion(%v, %v) = [%v, %v], want [%v, %v]: off by %.2g of the width", k, n, got.Low, got.High, low, high, off)
		}
	}
	t.Logf("worst error, as a part of the width: exact %.2g, expanded %.2g", worst[false], worst[true])
	if !slices.ContainsFunc(rows, func(v []float64) bool { return min(v[0], v[1]-v[0]) > exactBelow }) {
		t.Error("no row beyond the exact ones")
	}
}
