package freq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/stats"
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
		o := Options{Width: []float64{0, 0.4, 1e-3, 1e-160}[rng.IntN(4)]}
		pooled, again := Pool(windows, o), Pool(windows, o)
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

// TestPoolOfAll has a function that is in all samples: no interval says less of it than
// those of a window alone.
func TestPoolOfAll(t *testing.T) {
	for windows := 1; windows < 40; windows++ {
		seen := make([]Window, windows)
		own := make([][]float64, windows)
		for i := range seen {
			seen[i], own[i] = two(0.3), []float64{1}
		}
		alone := stats.Proportion(seen[0].N(), seen[0].N())
		for i, in := range Pool(seen, Options{}).Intervals(own) {
			if in.Value < 1-1e-9 || in.Width() > alone.Width()+1e-9 {
				t.Fatalf("window %d of %d: %+v, alone %+v", i, windows, in, alone)
			}
		}
	}
}

// TestTimes has windows missing between others, some in which nothing was said of when
// they were, and clocks that were set back.
func TestTimes(t *testing.T) {
	at := func(seconds ...int) (windows []Window) {
		for _, s := range seconds {
			windows = append(windows, Window{Start: time.Unix(int64(s), 0), Length: 10 * time.Second})
		}
		return windows
	}
	unsaid := at(0, 0, 50)
	unsaid[1].Length = 0
	for _, c := range []struct {
		windows []Window
		want    []int
	}{{at(0, 10, 20), []int{0, 1, 2}}, {at(5, 15, 3605), []int{0, 1, 360}}, {at(100, 50, 160), []int{0, 1, 6}}, {unsaid, []int{0, 1, 5}}, {nil, []int{}}} {
		if got := times(c.windows); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
