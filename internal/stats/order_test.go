package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMedianInterval(t *testing.T) {
	ramp := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64((i*7)%n + 1) // 1..n, out of order where 7 does not divide n
		}
		return v
	}
	// Ranks and confidences from the binomial distribution, as tabulated in
	// Conover, Practical Nonparametric Statistics, table A3 (p = 1/2).
	tests := []struct {
		n          int
		low, high  float64
		confidence float64
	}{
		{1, 1, 1, 0},
		{5, 1, 5, 0.9375},
		{6, 1, 6, 0.96875},
		{9, 2, 8, 0.9609},
		{15, 4, 12, 0.9648},
		{20, 6, 15, 0.9586},
	}
	for _, tt := range tests {
		got, confidence := MedianInterval(ramp(tt.n))
		want := Interval{float64(tt.n+1) / 2, tt.low, tt.high}
		if got != want || math.Abs(confidence-tt.confidence) > 5e-5 {
			t.Errorf("%d values: %v at %.4f, want %v at %.4f", tt.n, got, confidence, want, tt.confidence)
		}
	}
	if got, confidence := MedianInterval(nil); !math.IsNaN(got.Value) || confidence != 0 {
		t.Errorf("no values: %v at %v", got, confidence)
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestMedianIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	covered := 0
	const rounds = 4000
	for range rounds {
		v := make([]float64, 15)
		for i := range v {
			v[i] = rng.ExpFloat64()
		}
		if got, _ := MedianInterval(v); got.Contains(math.Ln2) {
			covered++
		}
	}
	if c := float64(covered) / rounds; c < 0.955 || c > 0.975 {
		t.Errorf("median of 15 exponential values covered in %.3f, want 0.965", c)
	}
}

func TestRatioInterval(t *testing.T) {
	a := []float64{2, 4.2, 6, 8, 10, 11}
	b := []float64{1, 2, 3, 4, 5, 5}
	got, confidence, err := RatioInterval(a, b)
	if want := (Interval{2, 2, 2.2}); err != nil || got != want || confidence < 0.95 {
		t.Errorf("RatioInterval = %v at %v, %v; want %v", got, confidence, err, want)
	}
	if _, _, err := RatioInterval(a, b[1:]); err == nil {
		t.Error("unpaired rounds passed")
	}
	if _, _, err := RatioInterval([]float64{1}, []float64{0}); err == nil {
		t.Error("division by zero passed")
	}
}
