package freq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// phased is a program of stretches of random length, of which each does what one of a
// few phases does; changes are anywhere within a window.
func phased(rng *rand.Rand, windows, shortest, longest int, phases ...[]float64) (p program, changes []int) {
	truth := make([][]float64, windows)
	for i := range truth {
		truth[i] = make([]float64, len(phases[0]))
	}
	at, now := 0.0, 0
	for at < float64(windows) {
		end := min(at+float64(shortest)+rng.Float64()*float64(longest-shortest), float64(windows))
		for w := int(at); w < windows && float64(w) < end; w++ {
			part := min(end, float64(w+1)) - max(at, float64(w))
			for f, share := range phases[now] {
				truth[w][f] += part * share
			}
		}
		if at = end; at < float64(windows) {
			changes = append(changes, int(at))
		}
		now = (now + 1 + rng.IntN(len(phases)-1)) % len(phases)
	}
	return func(i int) []float64 { return truth[i] }, changes
}

func TestSeePool(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	base := zipf(200)
	phases := [][]float64{base, moved(base, 0.15, 0, 5), moved(base, 0.2, 0, 150), moved(base, 0.1, 1, 7)}
	for _, K := range []float64{500, 5000, 50000, 1e6, 1e9} {
		for _, o := range []Options{{Policy: Auto, Min: 19, Max: 9999, Width: 0.003}, {Policy: Auto, Min: 19, Max: 999, Width: 0.005}, {Policy: Atys, Min: 19, Max: 9999, Theta: 0.01}} {
			o.Fill()
			const windows = 200
			var errs, raw, after, hzs, cover, width, n float64
			var errFix, err500, afterFix float64
			changed := 0.0
			for range 5 {
				base, changes := phased(rng, windows, 6, 30, phases...)
				truth := make([][]float64, windows)
				q := wandering(rng, K, base)
				for i := range truth {
					truth[i] = q(i)
				}
				p := program(func(i int) []float64 { return truth[i] })
				s := New(o)
				hz, pending := o.Max, o.Max
				var ws []Window
				for i := range windows {
					w := sample(rng, p, i, hz, 2)
					ws = append(ws, w)
					d := s.Next(w)
					hzs += hz
					hz, pending = pending, d.Hertz
				}
				isAfter := map[int]bool{}
				for _, c := range changes {
					isAfter[c], isAfter[c+1] = true, true
				}
				pooled := Pool(ws, o)
				var fix, fix500, fix99 []Window
				for i := range windows {
					fix = append(fix, sample(rng, p, i, 10000, 2))
					fix500 = append(fix500, sample(rng, p, i, 500, 2))
					fix99 = append(fix99, sample(rng, p, i, 99, 2))
				}
				for _, f := range []int{0, 1, 2, 5, 7, 150} {
					c := newCells([]string{fmt.Sprint("f", f)})
					own := func(ws []Window) (own []float64) {
						for i := range ws {
							x := c.counts(&ws[i])
							own = append(own, x[0]/(x[0]+x[1]))
						}
						return own
					}
					shares, dev := pooled.Shares(own(ws))
					fx, f5, f9 := own(fix), own(fix500), own(fix99)
					for i := range shares {
						e := math.Abs(shares[i] - truth[i][f])
						n++
						errs += e
						errFix += math.Abs(fx[i] - truth[i][f])
						err500 += math.Abs(f5[i] - truth[i][f])
						if isAfter[i] {
							changed++
							after += e
							afterFix += math.Abs(f9[i] - truth[i][f])
						}
						if e < 1.96*dev[i] {
							cover++
						}
						width += 1.96 * dev[i]
					}
				}
			}
			_ = raw
			fmt.Printf("K %.0g %s max %v width %v: error %.5f (10k %.5f, 500 %.5f; on par below %.5f) after a change %.5f (99: %.5f) mean Hz %.0f, cover %.3f width %.5f\n", K, o.Policy, o.Max, o.Width, errs/n, errFix/n, err500/n, errFix/n+0.1*err500/n, after/changed, afterFix/changed, hzs/5/windows, cover/n, width/n)
		}
	}
}
