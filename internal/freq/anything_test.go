package freq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestPoolOfAnything has windows of all kinds beside each other: without samples or with
// one, in parts of which some are empty, of functions that come and go. Shares are shares,
// intervals are about them, and the same again the second time.
func TestPoolOfAnything(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		windows := make([]Window, 1+rng.IntN(14))
		most := []float64{2, 30, 1000, 1e6}[rng.IntN(4)]
		for i := range windows {
			w := anything(rng, most)
			for range rng.IntN(3) * rng.IntN(6) {
				w.Parts = append(w.Parts, anything(rng, most))
			}
			windows[i] = w
		}
		pooled, again := Pool(windows, Options{}), Pool(windows, Options{})
		for f := range 3 {
			own := ownShares(windows, f)
			shares, deviations := pooled.Shares(own)
			intervals, second := pooled.Intervals(own), again.Intervals(own)
			for i, s := range shares {
				in := intervals[i]
				if !(s >= -1e-12 && s <= 1+1e-12) || !(deviations[i] >= 0 && deviations[i] <= 1) {
					t.Fatalf("seed %d, window %d, f%d: %v +- %v", seed, i, f, s, deviations[i])
				}
				if math.IsNaN(in.Low) || in.Low > in.High || s > 0 && (in.Low > s+1e-9 || in.High < s-1e-9) {
					t.Fatalf("seed %d, window %d, f%d: %v in %+v", seed, i, f, s, in)
				}
				if in != second[i] {
					t.Fatalf("seed %d, window %d, f%d: %+v, then %+v", seed, i, f, in, second[i])
				}
			}
		}
	}
}

// anything is a window of up to three functions, or of none.
func anything(rng *rand.Rand, most float64) (w Window) {
	if rng.IntN(4) == 0 {
		return w
	}
	for f := range 3 {
		if n := math.Floor(most * math.Pow(rng.Float64(), 3)); n > 0 && rng.IntN(3) > 0 {
			w.Functions = append(w.Functions, Function{fmt.Sprint("f", f), n})
		}
	}
	return w
}
