package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The oracle is SciPy 1.17.1:
//
//	scipy.stats.false_discovery_control([1e-6,.0004,.003,.02,.021,.04,.3,.31,.9,1])
func TestJudgeOracle(t *testing.T) {
	p := []float64{1e-6, .0004, .003, .02, .021, .04, .3, .31, .9, 1}
	want := []float64{1e-5, 0.002, 0.01, 0.042, 0.042, 0.06666666666666667, 0.3875, 0.3875, 1, 1}
	order := []int{3, 9, 0, 5, 1, 8, 2, 7, 4, 6}
	var all []*Comparison
	for _, i := range order {
		all = append(all, &Comparison{P: p[i], Difference: Interval{0.1, 0.05, 0.15}})
	}
	f := Judge(all)
	for at, i := range order {
		if c := all[at]; math.Abs(c.Adjusted-want[i]) > 1e-12 || c.Significant() != (want[i] <= 0.05) {
			t.Errorf("P %v is adjusted to %v, want %v", p[i], c.Adjusted, want[i])
		}
	}
	if f != (Family{10, 10, 5, 0.05 * 5 / 10}) {
		t.Errorf("family %+v", f)
	}
}

// What could not be found is not tested, and takes nothing from the others.
func TestJudgeLeavesOut(t *testing.T) {
	var all []*Comparison
	for range 500 {
		all = append(all, &Comparison{P: 1, least: 0.01, Difference: Interval{0, -1, 1}})
	}
	found := &Comparison{P: 0.002, least: 1e-9, Difference: Interval{0.1, 0.05, 0.15}}
	all = append(all, found)
	if f := Judge(all); f != (Family{501, 1, 1, 0.05}) || !found.Significant() || all[0].Tested || all[0].Significant() {
		t.Errorf("%+v, of 500 with a sample or two and one that is clear: %+v", f, found)
	}
	if f := Judge(nil); f != (Family{Level: 0.05}) {
		t.Errorf("of none: %+v", f)
	}
}

// TestStatedChangeIsFound has one function of many change by what is said to be
// detectable, and asks how often it is found among all.
func TestStatedChangeIsFound(t *testing.T) {
	const rounds = 200
	for _, c := range []struct {
		name          string
		share         float64
		before, after int
	}{
		{"new", 0, 3000, 3000},
		{"rare", 0.002, 3000, 3000},
		{"of a hundredth", 0.01, 3000, 3000},
		{"of a third", 0.3, 3000, 3000},
		{"of nine tenths", 0.9, 3000, 3000},
		{"ten times as many after", 0.02, 500, 5000},
		{"ten times as many before", 0.02, 5000, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(17, 18))
			for _, falls := range []bool{false, true} {
				change, found := detectable(rng, c.share, c.before, c.after, falls), 0
				if change == 0 {
					continue
				}
				for range rounds {
					shares, calls := drawProgram(rng)
					var before, after sides
					before.parts, before.whole = DrawSums(rng, setShare(shares, c.share), c.before)
					after.parts, after.whole = DrawSums(rng, setShare(shares, c.share+change), c.after)
					all, _ := compareAll(calls, before, after)
					if all[len(all)-1].Significant() {
						found++
					}
				}
				power := MidP(float64(found), rounds)
				if power.High < Power {
					t.Errorf("%+.4f: found in %d of %d", change, found, rounds)
				}
				t.Logf("%+.4f: found in %.1f%% (%.1f to %.1f)", change, 100*power.Value, 100*power.Low, 100*power.High)
			}
		})
	}
}

// drawProgram gives functions of which the last neither calls others nor is called.
func drawProgram(rng *rand.Rand) ([]float64, Calls) {
	const functions = 60
	shares, calls := DrawShares(rng, functions), DrawCalls(rng, functions)
	calls[functions-1] = -1
	return shares, calls
}

// detectable is what is said to be, of two recordings in which nothing changed; 0: nothing is.
func detectable(rng *rand.Rand, share float64, n, m int, falls bool) float64 {
	shares, calls := drawProgram(rng)
	before, after := independent(n, m)(rng, setShare(shares, share))
	_, family := compareAll(calls, before, after)
	rise, fall := Detectable(share, Side{Whole: before.whole}, Side{Whole: after.whole}, family.Level)
	if falls {
		return -fall
	}
	return rise
}

// setShare gives the last function a share, and the others what is left.
func setShare(shares []float64, share float64) []float64 {
	shares = slices.Clone(shares)
	last, others := len(shares)-1, 0.0
	for _, s := range shares[:last] {
		others += s
	}
	for i := range last {
		shares[i] *= (1 - share) / others
	}
	shares[last] = share
	return shares
}

// With as many samples as are needed a change is just detectable.
func TestNeeded(t *testing.T) {
	before, after := Side{Whole: equal(1000, 1)}, Side{Whole: equal(2000, 1)}
	for _, to := range []float64{0.05, 0.06, 0.2, 0.01, 0.035} {
		times := Needed(0.04, to, before, after, 0.001)
		scale := func(s Side) Side { return Side{Whole: equal(int64(math.Round(float64(s.Whole.N)*times)), 1)} }
		rise, fall := Detectable(0.04, scale(before), scale(after), 0.001)
		change := rise
		if to < 0.04 {
			change = fall
		}
		if want := math.Abs(to - 0.04); math.Abs(change-want) > 0.05*want {
			t.Errorf("from 4%% to %v%%: %.3f times the samples, with which %v is detectable", 100*to, times, change)
		}
	}
	if times := Needed(0.04, 0.04, before, after, 0.001); !math.IsInf(times, 1) {
		t.Errorf("to find no change: %v", times)
	}
	if times := Needed(0.04, 0.05, Side{}, after, 0.001); !math.IsInf(times, 1) {
		t.Errorf("of nothing: %v", times)
	}
	if rise, fall := Detectable(0.04, Side{}, after, 0.001); rise != 0 || fall != 0 {
		t.Errorf("of nothing %v and %v are detectable", rise, fall)
	}
}

// Who has intervals alone, as pages do, finds by wider ones what Judge finds, but
// for what is on the edge.
func TestWidenAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	found, apart := 0, 0
	for range 100 {
		shares, calls := drawProgram(rng)
		changed := slices.Clone(shares)
		for i := range changed {
			changed[i] *= math.Exp(0.4 * rng.NormFloat64())
		}
		var before, after sides
		before.parts, before.whole = DrawSums(rng, shares, 3000)
		after.parts, after.whole = DrawSums(rng, changed, 2000)
		all, family := compareAll(calls, before, after)
		for _, c := range all {
			d, widen := c.Difference, family.Widen()
			wide := d.Value > widen*(d.Value-d.Low) || -d.Value > widen*(d.High-d.Value)
			if c.Significant() {
				found++
			}
			if wide != c.Significant() {
				apart++
			}
		}
	}
	if found < 500 || apart > found/20 {
		t.Errorf("of %d that are found %d are told differently", found, apart)
	}
	t.Logf("of %d that are found %d are told differently", found, apart)
}
