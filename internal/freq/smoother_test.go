package freq

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPoolOfWander has shares move to and fro, so slowly that windows near each other are
// alike and others are not: by neighbours, windows are better known than alone, however
// they are told, and intervals hold.
func TestPoolOfWander(t *testing.T) {
	const windows, parts = 60, 10
	first := zipf(100)
	for _, c := range []struct{ far, reach, hertz float64 }{ // as a share, and in windows
		{0.02, 10, 500}, {0.01, 3, 500}, {0.005, 30, 500}, {0.02, 0, 500}, {0.02, 10, 50},
	} {
		rng := rand.New(rand.NewPCG(4, uint64(c.hertz*c.far*(c.reach+1))))
		var of, whole, alone scores
		for range 8 {
			off := walk(rng, windows*parts, c.far, c.reach*parts)
			truth := make([][]float64, windows*parts)
			for i := range truth {
				truth[i] = moved(moved(first, 0.1+off[i], 0, 5), 0.05-off[i]/2, 1, 7)
			}
			seen := inParts(rng, func(i int) []float64 { return truth[i] }, windows, parts, c.hertz, 1)
			poolBothWays(seen, truth, func(_ int, told, untold answer, own, real float64) {
				of.add(told.share, told.deviation, real)
				whole.add(untold.share, untold.deviation, real)
				alone.add(own, 0, real)
			})
		}
		t.Logf("%v: error %.5f (not told in parts %.5f, alone %.5f), %.3f covered within %.5f (%.3f within %.5f)", c, of.error/of.n,
			whole.error/whole.n, alone.error/alone.n, of.covered/of.n, of.width/of.n, whole.covered/whole.n, whole.width/whole.n)
		for _, s := range []scores{of, whole} {
			if s.covered/s.n < 0.93 {
				t.Errorf("%v: %.3f are covered", c, s.covered/s.n)
			}
			if s.error > 0.95*alone.error {
				t.Errorf("%v: error %.5f, alone %.5f", c, s.error/s.n, alone.error/alone.n)
			}
		}
	}
}

// walk goes off and comes back: so far, as a standard deviation, and for so long.
func walk(rng *rand.Rand, steps int, far, long float64) []float64 {
	kept := 0.0
	if long > 0 {
		kept = math.Exp(-1 / long)
	}
	at := far * rng.NormFloat64()
	all := make([]float64, steps)
	for i := range all {
		all[i] = at
		at = kept*at + math.Sqrt(1-kept*kept)*far*rng.NormFloat64()
	}
	return all
}

// TestSmoothOfOne has one observation, or shares of 0 and 1.
func TestSmoothOfOne(t *testing.T) {
	models := candidatesAbout(1e-4, 1e-6)
	one, _ := models.smooth([]observation{{0, 0.3, 0.01}}, 0.21)
	if l := one[0]; math.Abs(l.share-0.3) > 1e-9 || math.Abs(l.relVariance+l.meanError*l.meanError-0.01) > 1e-9 || l.extra > 1e-9 {
		t.Errorf("of one observation: %+v", l)
	}
	for _, share := range []float64{0, 1} {
		all, d := models.smooth([]observation{{0, share, 0.01}, {1, share, 0.02}, {5, share, 0.01}}, share*(1-share))
		for _, l := range all {
			if math.Abs(l.share-share) > 1e-9 || l.extra > 1e-20 || !(l.relVariance > 0) || math.IsNaN(d) {
				t.Errorf("of shares of %v: %+v", share, l)
			}
		}
	}
}

// TestSmooth compares with the best linear unbiased prediction by the full covariance
// matrix (kriging with an unknown mean).
func TestSmooth(t *testing.T) {
	w := process{0.02, 2.5}
	observed := []observation{{0, 0.30, 0.01}, {1, 0.36, 0.02}, {4, 0.25, 0.005}, {4, 0.27, 0.03}}
	n := len(observed)
	between := func(i, j int) float64 {
		return w.d * w.correlation(int(math.Abs(float64(observed[i].window-observed[j].window))))
	}
	covariance := make([][]float64, n)
	for i := range covariance {
		covariance[i] = make([]float64, n)
		for j := range covariance[i] {
			covariance[i][j] = between(i, j)
		}
		covariance[i][i] += observed[i].noise
	}
	shares, ones := make([]float64, n), make([]float64, n)
	for i := range observed {
		shares[i], ones[i] = observed[i].share, 1
	}
	byShares, byOnes := solve(covariance, shares), solve(covariance, ones)
	one, both := sum(byOnes), sum(byShares)
	p := w.smooth(observed, 0.2)
	for i, l := range p.levels {
		share, ofMean, cross := both/one, 1.0, make([]float64, n)
		for j := range cross {
			cross[j] = between(i, j)
			share += cross[j] * (byShares[j] - both/one*byOnes[j])
			ofMean -= cross[j] * byOnes[j]
		}
		variance := w.d
		for j, x := range solve(covariance, cross) {
			variance -= cross[j] * x
		}
		if math.Abs(l.share-share) > 1e-12 || math.Abs(l.meanError-ofMean/math.Sqrt(one)) > 1e-12 || math.Abs(l.relVariance-variance) > 1e-12 {
			t.Errorf("observation %d: %+v, want %v, %v and %v", i, l, share, variance, ofMean/math.Sqrt(one))
		}
	}
}

// solve finds x of a x = b, for a that is positive definite.
func solve(a [][]float64, b []float64) []float64 {
	n := len(b)
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = append(append([]float64{}, a[i]...), b[i])
	}
	for i := range rows {
		for j := range rows {
			if j == i {
				continue
			}
			times := rows[j][i] / rows[i][i]
			for k := range rows[j] {
				rows[j][k] -= times * rows[i][k]
			}
		}
	}
	x := make([]float64, n)
	for i := range x {
		x[i] = rows[i][n] / rows[i][i]
	}
	return x
}

// BenchmarkShares is a function's, in an hour of windows in parts.
func BenchmarkShares(b *testing.B) {
	const windows, parts = 360, 10
	rng := rand.New(rand.NewPCG(8, 8))
	p, _ := phased(rng, windows*parts, 60, 300, zipf(100), moved(zipf(100), 0.2, 0, 4))
	seen := inParts(rng, p, windows, parts, 500, 1)
	pooled, own := Pool(seen, Options{}), ownShares(seen, 0)
	for b.Loop() {
		pooled.Shares(own)
	}
}
