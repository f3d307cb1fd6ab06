package freq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// scores are how well windows' shares are known, over all of them and a few functions.
type scores struct{ error, covered, width, n float64 }

func (s *scores) add(share, deviation, truth float64) {
	e := math.Abs(share - truth)
	s.n++
	s.error += e
	s.width += 1.96 * deviation
	if e <= 1.96*deviation {
		s.covered++
	}
}

// ownShares are a function's in each window's own samples.
func ownShares(windows []Window, function int) (own [][]float64) {
	c := newCells([]string{fmt.Sprint("f", function)})
	for i := range windows {
		parts, _ := apart(windows[i : i+1])
		var of []float64
		for j := range parts {
			of = append(of, normal(c.counts(&parts[j]))[0])
		}
		own = append(own, of)
	}
	return own
}

// TestPool has a policy choose the rates of programs that change now and then. What
// windows say together is as good as ten or more times the samples, their intervals
// hold, and the two windows after a change are better than at 99 Hz.
func TestPool(t *testing.T) {
	phases := [][]float64{zipf(100)}
	phases = append(phases, moved(phases[0], 0.15, 0, 5), moved(phases[0], 0.2, 0, 70), moved(phases[0], 0.1, 1, 7))
	for _, c := range []struct {
		equivalent, width float64
		better            float64 // than by its own samples, so many times
	}{{500, 0.005, 1}, {20_000, 0.005, 1}, {1e9, 0.005, 3}} {
		rng := rand.New(rand.NewPCG(1, uint64(c.equivalent)))
		const windows = 150
		var pooled, own, changed, at99 scores
		hertz := 0.0
		for range 4 {
			base, changes := phased(rng, windows, 6, 30, phases...)
			truth := make([][]float64, windows)
			for i, p := 0, wandering(rng, c.equivalent, base); i < windows; i++ {
				truth[i] = p(i)
			}
			p := func(i int) []float64 { return truth[i] }
			o := filled(Options{Policy: Auto, Min: 19, Max: 999, Width: c.width})
			seen, _ := follow(rng, o, p, windows, 2)
			var other []Window
			for i := range windows {
				other = append(other, sample(rng, p, i, 99, 2))
				hertz += seen[i].Hertz / windows / 4
			}
			after := map[int]bool{}
			for _, w := range changes {
				after[w], after[w+1] = true, true
			}
			all := Pool(seen, o)
			for _, f := range []int{0, 1, 5, 7, 70} {
				shares, deviations := all.Shares(ownShares(seen, f))
				alone, reference := ownShares(seen, f), ownShares(other, f)
				for i := range shares {
					pooled.add(shares[i], deviations[i], truth[i][f])
					own.add(alone[i][0], 0, truth[i][f])
					if after[i] {
						changed.add(shares[i], deviations[i], truth[i][f])
						at99.add(reference[i][0], 0, truth[i][f])
					}
				}
			}
		}
		t.Logf("%.0f equivalent samples: %.0f Hz, error %.5f (alone %.5f), after a change %.5f (99 Hz %.5f), %.3f covered within %.5f", c.equivalent, hertz,
			pooled.error/pooled.n, own.error/own.n, changed.error/changed.n, at99.error/at99.n, pooled.covered/pooled.n, pooled.width/pooled.n)
		if pooled.covered/pooled.n < 0.93 {
			t.Errorf("%.0f: %.3f are covered", c.equivalent, pooled.covered/pooled.n)
		}
		if pooled.error*c.better > own.error {
			t.Errorf("%.0f: error %.5f, alone %.5f", c.equivalent, pooled.error/pooled.n, own.error/own.n)
		}
		if changed.error > at99.error {
			t.Errorf("%.0f: after a change %.5f, at 99 Hz %.5f", c.equivalent, changed.error/changed.n, at99.error/at99.n)
		}
	}
}

// TestPoolOfLittle has nothing to pool, or hardly anything.
func TestPoolOfLittle(t *testing.T) {
	o := Options{Policy: Atys, Min: 19, Max: 99}
	if p := Pool(nil, o); len(p.Estimates) != 0 {
		t.Errorf("%v", p)
	}
	windows := []Window{{}, two(0.3), {}, {Functions: []Function{{"f", 1}}}, {}}
	p := Pool(windows, o)
	shares, deviations := p.Shares([][]float64{{0}, {0.3}, {0}, {1}, {0}})
	for i := range windows {
		if math.IsNaN(shares[i]) || math.IsNaN(deviations[i]) || shares[i] < 0 || shares[i] > 1 {
			t.Errorf("window %d: %v +- %v", i, shares[i], deviations[i])
		}
	}
	if shares[0] != 0 || deviations[0] != 0 {
		t.Errorf("a window without samples has an estimate: %v +- %v", shares[0], deviations[0])
	}
}

// BenchmarkPool is an hour of windows.
func BenchmarkPool(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 7))
	p, _ := phased(rng, 360, 6, 30, zipf(300), moved(zipf(300), 0.2, 0, 4))
	var windows []Window
	for i := range 360 {
		windows = append(windows, sample(rng, p, i, 199, 2))
	}
	for b.Loop() {
		Pool(windows, filled(Options{Policy: Auto, Min: 19, Max: 999}))
	}
}
