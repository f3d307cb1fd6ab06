package freq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// inParts draws windows in parts, of a program that is told part by part.
func inParts(rng *rand.Rand, p program, windows, parts int, hertz, cpus float64) (all []Window) {
	for i := range windows {
		var w Window
		for j := range parts {
			part := sample(rng, p, i*parts+j, hertz/float64(parts), cpus)
			part.Length /= time.Duration(parts)
			w.Parts = append(w.Parts, part)
			w.absorbAll(&part)
		}
		w.Start, w.Length, w.Hertz = time.Unix(int64(i)*10, 0), 10*time.Second, hertz
		all = append(all, w)
	}
	return all
}

// absorbAll adds up functions, however many there are.
func (w *Window) absorbAll(part *Window) {
	for _, f := range part.Functions {
		i := slices.IndexFunc(w.Functions, func(o Function) bool { return o.Name == f.Name })
		if i < 0 {
			i = len(w.Functions)
			w.Functions = append(w.Functions, Function{Name: f.Name})
		}
		w.Functions[i].N += f.N
	}
}

// untold are the same windows, not told in parts.
func untold(windows []Window) []Window {
	all := slices.Clone(windows)
	for i := range all {
		all[i].Parts = nil
	}
	return all
}

// during is a function's share of a window, by that of its parts.
func during(parts [][]float64, function int) (share float64) {
	for _, shares := range parts {
		share += shares[function] / float64(len(parts))
	}
	return share
}

// answer is what pooled windows say of a share.
type answer struct{ share, deviation float64 }

// poolBothWays pools windows told in parts, and the same not told so, and gives of some
// functions what both say of each window, its own samples, and the truth of its parts.
func poolBothWays(seen []Window, truth [][]float64, take func(window int, told, untold answer, own, real float64)) {
	together, parts := untold(seen), len(truth)/len(seen)
	told, untold := Pool(seen, Options{}), Pool(together, Options{})
	for _, f := range []int{0, 1, 5, 7, 70} {
		own := ownShares(together, f)
		shares, deviations := told.Shares(ownShares(seen, f))
		others, othersDeviations := untold.Shares(own)
		for i := range seen {
			take(i, answer{shares[i], deviations[i]}, answer{others[i], othersDeviations[i]}, own[i][0], during(truth[i*parts:(i+1)*parts], f))
		}
	}
}

// TestPoolInParts has a change anywhere within a window: told in parts, the window is
// as well known as others nearly, and all intervals hold, whatever parts differ by.
func TestPoolInParts(t *testing.T) {
	const windows, parts = 150, 10
	first := zipf(100)
	phases := [][]float64{first, moved(first, 0.15, 0, 5), moved(first, 0.2, 0, 70), moved(first, 0.1, 1, 7)}
	for _, c := range []struct{ equivalent, hertz float64 }{{1e9, 500}, {1e9, 20}, {5_000, 500}, {300, 500}} {
		rng := rand.New(rand.NewPCG(2, uint64(c.equivalent)))
		var of, with, whole, wholeWith, alone scores // with: a change
		for range 4 {
			base, changes := phased(rng, windows*parts, 60, 300, phases...)
			p := wandering(rng, c.equivalent, base)
			truth := make([][]float64, windows*parts)
			for i := range truth {
				truth[i] = p(i)
			}
			seen := inParts(rng, func(i int) []float64 { return truth[i] }, windows, parts, c.hertz, 2)
			poolBothWays(seen, truth, func(i int, told, untold answer, own, real float64) {
				of.add(told.share, told.deviation, real)
				whole.add(untold.share, untold.deviation, real)
				alone.add(own, 0, real)
				if slices.ContainsFunc(changes, func(at int) bool { return at/parts == i }) {
					with.add(told.share, told.deviation, real)
					wholeWith.add(untold.share, untold.deviation, real)
				}
			})
		}
		what := fmt.Sprintf("%.0f Hz, parts of %.0f equivalent samples", c.hertz, c.equivalent)
		t.Logf("%s: error %.5f (not told in parts %.5f, alone %.5f), with a change %.5f (%.5f), %.3f covered within %.5f (%.3f within %.5f)", what,
			of.error/of.n, whole.error/whole.n, alone.error/alone.n, with.error/with.n, wholeWith.error/wholeWith.n,
			of.covered/of.n, of.width/of.n, whole.covered/whole.n, whole.width/whole.n)
		if of.covered/of.n < 0.93 || with.covered/with.n < 0.93 {
			t.Errorf("%s: %.3f are covered, and %.3f with a change", what, of.covered/of.n, with.covered/with.n)
		}
		if of.error > 1.02*whole.error || with.error > 1.02*wholeWith.error {
			t.Errorf("%s: error %.5f and %.5f, not told in parts %.5f and %.5f", what, of.error/of.n, with.error/with.n, whole.error/whole.n, wholeWith.error/wholeWith.n)
		}
	}
}

// TestPoolOfStart has a program whose first windows are like nothing that comes later, and
// in which no two parts are alike: their intervals take in what the last changes hide.
func TestPoolOfStart(t *testing.T) {
	const windows, parts = 40, 10
	begun, settled := zipf(100), moved(moved(zipf(100), 0.15, 0, 5), 0.1, 1, 7)
	for _, starting := range []float64{8, 15, 30} { // parts, until half of what differs is gone
		rng := rand.New(rand.NewPCG(3, uint64(starting)))
		truth := make([][]float64, windows*parts)
		for i := range truth {
			left := math.Exp2(-float64(i) / starting)
			for f := range begun {
				truth[i] = append(truth[i], left*begun[f]+(1-left)*settled[f])
			}
		}
		var together, alone scores
		for range 10 {
			seen := inParts(rng, func(i int) []float64 { return truth[i] }, windows, parts, 2000, 1)
			whole, pooled := untold(seen), Pool(seen, Options{})
			for _, f := range []int{0, 1, 5, 7} {
				shares, deviations := pooled.Shares(ownShares(seen, f))
				own := ownShares(whole, f)
				for i := range 8 {
					real := during(truth[i*parts:(i+1)*parts], f)
					together.add(shares[i], deviations[i], real)
					alone.add(own[i][0], 0, real)
				}
			}
		}
		t.Logf("%.0f parts: error %.5f (alone %.5f), %.3f covered", starting, together.error/together.n, alone.error/alone.n, together.covered/together.n)
		if together.covered/together.n < 0.93 {
			t.Errorf("%.0f parts: %.3f are covered", starting, together.covered/together.n)
		}
		if together.error > 1.25*alone.error {
			t.Errorf("%.0f parts: error %.5f, alone %.5f", starting, together.error/together.n, alone.error/alone.n)
		}
	}
}
