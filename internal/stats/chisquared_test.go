package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestChiSquaredOracle has values of tables that are printed everywhere, and those
// that have a closed form: two degrees are an exponential, one is a squared normal.
func TestChiSquaredOracle(t *testing.T) {
	for _, c := range []struct{ x, freedom, above float64 }{
		{3.841458820694124, 1, 0.05},
		{6.634896601021213, 1, 0.01},
		{10.827566170662733, 1, 0.001},
		{18.307038053275146, 10, 0.05},
		{29.58829844507442, 10, 0.001},
		{124.34211340400407, 100, 0.05},
		{2 * math.Ln2, 2, 0.5},
		{2 * math.Log(1e9), 2, 1e-9},
		{100, 2, math.Exp(-50)},
		{9, 1, math.Erfc(3 / math.Sqrt2)},
	} {
		if got := ChiSquaredAbove(c.x, c.freedom); math.Abs(got/c.above-1) > 1e-9 {
			t.Errorf("above %v with %v: %v, want %v", c.x, c.freedom, got, c.above)
		}
		if got := ChiSquaredAt(c.above, c.freedom); math.Abs(got/c.x-1) > 1e-7 {
			t.Errorf("%v are above, with %v: %v, want %v", c.above, c.freedom, got, c.x)
		}
	}
}

// TestChiSquaredSum adds squares of normal variables up.
func TestChiSquaredSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const freedom, draws = 7, 20_000
	above := 0
	limit := ChiSquaredAt(0.1, freedom)
	for range draws {
		sum := 0.0
		for range freedom {
			x := rng.NormFloat64()
			sum += x * x
		}
		if sum > limit {
			above++
		}
	}
	if share := float64(above) / draws; math.Abs(share-0.1) > 0.01 {
		t.Errorf("%v are above, want 0.1", share)
	}
}
