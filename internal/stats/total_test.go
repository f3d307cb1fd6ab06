package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Exact limits are quantiles of chi-squared: x/2 of 2n degrees of freedom below,
// and of 2n+2 above (Garwood 1936).
func TestPoissonLimitsAgainstOracle(t *testing.T) {
	for _, n := range []float64{1, 5, 20, 100, 1000, 10000} {
		low, high := poissonLimits(n, normalTail(0.0005))
		wantLow, wantHigh := ChiSquaredAt(1-0.0005, 2*n)/2, ChiSquaredAt(0.0005, 2*n+2)/2
		if math.Abs(low-wantLow) > 0.2*math.Sqrt(n) || math.Abs(high-wantHigh) > 0.2*math.Sqrt(n) {
			t.Errorf("of %v: %.3f to %.3f, want %.3f to %.3f", n, low, high, wantLow, wantHigh)
		}
	}
}

func TestOfExact(t *testing.T) {
	const period = 1e6
	for _, c := range []struct {
		name     string
		sampled  Sums
		exact    float64
		want     float64
		contains bool // that all was sampled
	}{
		{"all of it", Sums{N: 1000, Weight: 1000 * period}, 1000 * period, 1, true},
		{"a tenth less, of many", Sums{N: 9000, Weight: 9000 * period}, 10000 * period, 0.9, false},
		{"a tenth less, of few", Sums{N: 90, Weight: 90 * period}, 100 * period, 0.9, true},
		{"none where one was due", Sums{}, period, 0, true},
		{"none where many were", Sums{}, 100 * period, 0, false},
		{"few heavy ones are less sure", Sums{N: 9000, Weight: 9000 * period, Squares: 9000 * period * 100 * period}, 10000 * period, 0.9, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := OfExact(c.sampled, c.exact, period, 0.001)
			if math.Abs(i.Value-c.want) > 1e-9 || i.Low > i.Value || i.High < i.Value {
				t.Errorf("%+v, want %v", i, c.want)
			}
			if got := i.Contains(1); got != c.contains {
				t.Errorf("%+v contains 1: %v", i, got)
			}
		})
	}
	if i := OfExact(Sums{N: 3, Weight: 3}, 0, 1, 0.001); !i.Contains(1) {
		t.Errorf("without an exact time: %+v", i)
	}
}

// In the simulated design the interval misses the truth no more often than it says,
// for tasks that run for less than a period, for many, and in step with the timer.
func TestOfExactCoversItsDesign(t *testing.T) {
	const runs, miss = 2000, 0.01
	rng := rand.New(rand.NewPCG(7, 29))
	for name, program := range map[string]func(length time.Duration) Program{
		"short":   func(l time.Duration) Program { return Periodic(rng, l, 500*time.Microsecond, 1700*time.Microsecond) },
		"long":    func(l time.Duration) Program { return Periodic(rng, l, 50*time.Millisecond, 70*time.Millisecond) },
		"in step": func(l time.Duration) Program { return Periodic(rng, l, 2*time.Millisecond, 8*time.Millisecond) },
	} {
		missed, sum := 0, 0.0
		for range runs {
			const length = 4 * time.Second
			p := program(length)
			parts, _ := p.Sample(Randomised(100).Draw(rng, length), 2)
			i := OfExact(parts[0], float64(p.Times(2)[0]), 1e7, miss)
			sum += i.Value / runs
			if !i.Contains(1) {
				missed++
			}
		}
		if limit := miss*runs + 3*math.Sqrt(miss*runs); float64(missed) > limit {
			t.Errorf("%s: %d of %d intervals miss the truth, at most %.0f should", name, missed, runs, limit)
		}
		if math.Abs(sum-1) > 0.01 {
			t.Errorf("%s: %.3f of the time is sampled on average", name, sum)
		}
	}
}
