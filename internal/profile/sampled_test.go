package profile

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"atys.dev/atys/internal/stats"
)

// Exact limits are quantiles of chi-squared: x/2 of 2n degrees of freedom below,
// and of 2n+2 above (Garwood 1936).
func TestPoissonLimitsAgainstOracle(t *testing.T) {
	for _, n := range []float64{1, 5, 20, 100, 1000, 10000} {
		low, high := poissonLimits(n)
		wantLow, wantHigh := stats.ChiSquaredAt(1-0.0005, 2*n)/2, stats.ChiSquaredAt(0.0005, 2*n+2)/2
		if math.Abs(low-wantLow) > 0.2*math.Sqrt(n) || math.Abs(high-wantHigh) > 0.2*math.Sqrt(n) {
			t.Errorf("of %v: %.3f to %.3f, want %.3f to %.3f", n, low, high, wantLow, wantHigh)
		}
	}
}

// In the simulated design the interval misses the truth no more often than it says,
// for tasks that run for less than a period, for many, and in step with the timer.
func TestBalanceCoversItsDesign(t *testing.T) {
	const runs, miss = 2000, 0.001
	rng := rand.New(rand.NewPCG(7, 29))
	for name, program := range map[string]func(length time.Duration) stats.Program{
		"short": func(l time.Duration) stats.Program {
			return stats.Periodic(rng, l, 500*time.Microsecond, 1700*time.Microsecond)
		},
		"long": func(l time.Duration) stats.Program {
			return stats.Periodic(rng, l, 50*time.Millisecond, 70*time.Millisecond)
		},
		"in step": func(l time.Duration) stats.Program {
			return stats.Periodic(rng, l, 2*time.Millisecond, 8*time.Millisecond)
		},
	} {
		missed, sum := 0, 0.0
		for range runs {
			const length = 4 * time.Second
			p := program(length)
			parts, _ := p.Sample(stats.Randomised(100).Draw(rng, length), 2)
			r, low, high := ratio(Sum{N: parts[0].N, Value: int64(parts[0].Weight), Squares: parts[0].Squares}, float64(p.Times(2)[0]), 1e7)
			sum += r / runs
			if low > 1 || high < 1 {
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
