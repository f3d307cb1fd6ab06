package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func equal(n int64, weight float64) Sums {
	return Sums{N: n, Weight: float64(n) * weight, Squares: float64(n) * weight * weight}
}

func TestShare(t *testing.T) {
	tests := []struct {
		name        string
		part, whole Sums
		want        Interval
	}{
		{"no samples", Sums{}, Sums{}, Interval{0, 0, 1}},
		{"none of 100", Sums{}, equal(100, 3), Interval{0, 0, 1 - math.Pow(oneTail/atNone, 0.01)}},
		{"all of 100", equal(100, 3), equal(100, 3), Interval{1, math.Pow(oneTail/atNone, 0.01), 1}},
		{"equal weights are counts", equal(20, 7), equal(100, 7), Proportion(20, 100)},
		{"squares not kept", Sums{N: 20, Weight: 140}, Sums{N: 100, Weight: 700}, Proportion(20, 100)},
	}
	for _, tt := range tests {
		got := Share(tt.part, tt.whole)
		if math.Abs(got.Value-tt.want.Value)+math.Abs(got.Low-tt.want.Low)+math.Abs(got.High-tt.want.High) > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Whatever is passed, an interval is within 0..1 and encloses its estimate.
func FuzzShare(f *testing.F) {
	f.Add(int64(3), int64(100), 3.0, 100.0, 3.0, 100.0)
	f.Add(int64(1), int64(2), 1e300, 1e300, 1.0, 1e-300)
	f.Add(int64(50000), int64(100000), 5e10, 1e11, 5e16, 1e17)
	f.Fuzz(func(t *testing.T, pn, wn int64, pw, ww, ps, ws float64) {
		for _, v := range []float64{pw, ww, ps, ws} {
			if !(v >= 0 && v < 1e150) { // sums of weights are neither negative nor squares beyond float64
				return
			}
		}
		got := Share(Sums{pn, pw, ps}, Sums{wn, ww, ws})
		if !(0 <= got.Low && got.Low <= got.Value+1e-9 && got.Value <= got.High+1e-9 && got.High <= 1) {
			t.Errorf("Share = %v", got)
		}
	})
}

func TestDifference(t *testing.T) {
	// 56/70 against 48/80, 9/10 against 3/10, 10/10 against 0/10: the worked
	// examples of Newcombe 1998, table II. There the hybrid is of Wilson's
	// intervals, given here as he prints them.
	score := func(k, n float64) Interval {
		low, high := wilson(k, n, z)
		return Interval{k / n, low, high}
	}
	tests := []struct {
		b, a      Interval
		low, high float64
	}{
		{score(56, 70), score(48, 80), 0.0524, 0.3339},
		{score(9, 10), score(3, 10), 0.1705, 0.8090},
		{score(10, 10), score(0, 10), 0.6075, 1.0000},
	}
	for _, tt := range tests {
		got := Difference(tt.a, tt.b)
		if math.Abs(got.Low-tt.low) > 5e-5 || math.Abs(got.High-tt.high) > 5e-5 {
			t.Errorf("Difference(%v, %v) = %v, want [%v, %v]", tt.a, tt.b, got, tt.low, tt.high)
		}
	}
}

func TestDifferenceCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	draw := func(p float64, n int) Interval {
		k := 0
		for range n {
			if rng.Float64() < p {
				k++
			}
		}
		return Proportion(float64(k), float64(n))
	}
	for _, c := range []struct {
		a, b float64
		n, m int
	}{{0.02, 0.05, 500, 400}, {0.3, 0.3, 200, 500}, {0.9, 0.99, 300, 300}} {
		covered := 0
		const rounds = 3000
		for range rounds {
			if Difference(draw(c.a, c.n), draw(c.b, c.m)).Contains(c.b - c.a) {
				covered++
			}
		}
		if got := float64(covered) / rounds; got < 0.935 || got > 0.985 {
			t.Errorf("difference of %v and %v covered in %.3f", c.a, c.b, got)
		}
	}
}

// Differences of seconds hold as those of shares do, also where one recording is
// of more CPU time than the other: what is the same share is not the same then.
func TestDifferenceOfSecondsCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	const before, after, rounds = 10.0, 25.0, 3000
	seconds := func(p float64, n int, cpu float64) Interval {
		parts, whole := DrawSums(rng, []float64{p, 1 - p}, n)
		return TotalFromShare(Share(parts[0], whole), cpu)
	}
	covered := 0
	for range rounds {
		if Difference(seconds(0.02, 400, before), seconds(0.04, 700, after)).Contains(0.04*after - 0.02*before) {
			covered++
		}
	}
	if got := float64(covered) / rounds; got < 0.935 || got > 0.985 {
		t.Errorf("covered in %.3f", got)
	}
}

func TestTotalFromShare(t *testing.T) {
	got := TotalFromShare(Interval{0.5, 0.25, 0.75}, float64(4*time.Second))
	if want := (Interval{2e9, 1e9, 3e9}); got != want {
		t.Errorf("TotalFromShare = %v, want %v", got, want)
	}
}

func BenchmarkShare(b *testing.B) {
	whole := Sums{N: 50000, Weight: 50e9, Squares: 54e15}
	for b.Loop() {
		for k := int64(1); k <= 100; k++ { // per op: 100 nodes
			Share(Sums{N: k, Weight: float64(k) * 1e6, Squares: float64(k) * 1.08e12}, whole)
		}
	}
}
