package calibrate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// recorded is a recording of one busy CPU, its samples' times being kept, of a program
// that does one thing after the other, each for so long.
func recorded(hertz int, phases ...phase) *profile.Window {
	rng := rand.New(rand.NewPCG(1, 2))
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	weight := int64(time.Second) / int64(hertz)
	at := time.Duration(0)
	for _, p := range phases {
		for end := at + p.length; at < end; at += time.Duration(weight) {
			b.AddSample(profile.Sample{Time: at, Stack: stackOf(b, p.draw(rng)), Weight: weight})
		}
	}
	return b.Window()
}

// phase is what a program does for a while: functions by their shares.
type phase struct {
	length time.Duration
	shares map[string]float64
}

func (p *phase) draw(rng *rand.Rand) string {
	u := rng.Float64()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range p.shares {
			if !yield(name) {
				return
			}
		}
	}) {
		if u -= p.shares[name]; u < 0 {
			return name
		}
	}
	return "rest"
}

func stackOf(b *profile.Builder, function string) profile.StackID {
	return b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: function})}, profile.EndComplete)
}

const second = time.Second

// twoPhases is a program that changes after a while, and changes back.
func twoPhases(hertz int) *profile.Window {
	parse := map[string]float64{"parse": 0.5, "read": 0.3, "hash": 0.1}
	serve := map[string]float64{"serve": 0.6, "read": 0.2, "hash": 0.1}
	return recorded(hertz, phase{60 * second, parse}, phase{60 * second, serve}, phase{60 * second, parse})
}

func streamOf(t *testing.T, w *profile.Window, step time.Duration) *Stream {
	t.Helper()
	s, err := FromTimed(w, step)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStream(t *testing.T) {
	s := streamOf(t, twoPhases(1000), 5*second)
	if s.Length() != 180*second || s.N() != 180_000 || math.Abs(s.Hertz-1000) > 1e-6 || s.Functions() != 5 {
		t.Errorf("%v, %g samples at %g Hz, functions %q", s.Length(), s.N(), s.Hertz, s.Names)
	}
	for i, counts := range s.Counts {
		if sum(counts) != 5000 {
			t.Errorf("step %d has %g samples", i, sum(counts))
		}
	}
}

// TestDivergencesPeakAtChanges: and nowhere else.
func TestDivergencesPeakAtChanges(t *testing.T) {
	s := streamOf(t, twoPhases(1000), 5*second)
	for _, length := range []time.Duration{5 * second, 10 * second, 20 * second} {
		all := s.Divergences(length)
		if len(all) != int(180*second/length)-1 {
			t.Errorf("windows of %v: %d divergences", length, len(all))
		}
		for _, d := range all {
			change := d.At == 60*second || d.At == 120*second
			if change != (d.Nats > 0.1) || !change && d.Nats > 10*s.ByChance(length, s.Hertz) {
				t.Errorf("windows of %v: %g at %v, chance has %g", length, d.Nats, d.At, s.ByChance(length, s.Hertz))
			}
		}
	}
}

// TestByChance is the mean divergence of a program that does not change.
func TestByChance(t *testing.T) {
	s := streamOf(t, recorded(500, phase{600 * second, map[string]float64{"a": 0.3, "b": 0.2, "c": 0.2, "d": 0.1, "e": 0.1}}), second)
	mean := 0.0
	all := s.Divergences(second)
	for _, d := range all {
		mean += d.Nats / float64(len(all))
	}
	if want := s.ByChance(second, s.Hertz); !near(mean, want, 0.1) {
		t.Errorf("windows diverge by %g, chance has %g", mean, want)
	}
}

// TestErrorOfFixedRates is what sampling theory says: p(1-p)/n, whatever the reference's
// own noise.
func TestErrorOfFixedRates(t *testing.T) {
	s := streamOf(t, recorded(2000, phase{300 * second, map[string]float64{"a": 0.4, "b": 0.3}}), 5*second)
	candidates := []Candidate{{5 * second, fixed(20)}, {5 * second, fixed(200)}, {5 * second, fixed(1000)}, {10 * second, fixed(20)}}
	results, err := Replay(t.Context(), s, candidates, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		want := math.Sqrt((0.4*0.6 + 0.3*0.7 + 0.3*0.7) / 3 / (r.Max * r.Window.Seconds()))
		if !near(r.Error, want, 0.1) || r.Hertz != r.Max || r.Doubt > 0.1*want {
			t.Errorf("%v in windows of %v: %g +- %g, theory has %g, at %g Hz", r, r.Window, r.Error, r.Doubt, want, r.Hertz)
		}
	}
}

// TestLongWindowsPayForChanges: more samples do not make up for what is not told apart.
func TestLongWindowsPayForChanges(t *testing.T) {
	swap := func(i int) map[string]float64 { return map[string]float64{[]string{"a", "b"}[i%2]: 0.9} }
	var phases []phase
	for i := range 24 {
		phases = append(phases, phase{5 * second, swap(i)})
	}
	s := streamOf(t, recorded(2000, phases...), 5*second)
	results, err := Replay(t.Context(), s, []Candidate{{5 * second, fixed(99)}, {10 * second, fixed(99)}}, 4, 1)
	if err != nil || results[0].Error > 0.05 || results[1].Error < 0.3 {
		t.Errorf("%v: %+v", err, results)
	}
}

// TestPoliciesSave replays all candidates: policies come to less than the highest rate,
// and what is recommended is on the frontier.
func TestPoliciesSave(t *testing.T) {
	s := streamOf(t, twoPhases(2000), 5*second)
	r, err := Range{Windows: []time.Duration{5 * second, 10 * second, 30 * second}, Min: 19, Max: 999, Policies: []string{Fixed, freq.Atys, freq.Auto}}.Fit(s)
	if err != nil {
		t.Fatal(err)
	}
	results, err := Replay(t.Context(), s, r.Candidates(), 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		if result.Hertz < 19*0.99 || result.Hertz > 999 || math.IsNaN(result.Error) {
			t.Errorf("%v in windows of %v: %g Hz, %g", result, result.Window, result.Hertz, result.Error)
		}
		if result.Width >= 0.01 && result.Hertz > 0.5*999 {
			t.Errorf("%v in windows of %v saves little: %g Hz", result, result.Window, result.Hertz)
		}
	}
	for _, within := range []float64{0.1, 0.02, 0.01, 0.005} {
		chosen, met := Choose(results, within)
		if met != (chosen.Error <= within) || !slices.Contains(Frontier(results), chosen) {
			t.Errorf("within %g: %+v, %v", within, chosen, met)
		}
		for _, other := range results {
			if other.Error <= within && other.Hertz < chosen.Hertz {
				t.Errorf("within %g: %+v is cheaper than %+v", within, other, chosen)
			}
		}
	}
	if chosen, met := Choose(results, 0); met && chosen.Error > 0 {
		t.Errorf("%+v has no error", chosen)
	}
}

// TestReplayIsRepeatable: the same seed finds the same.
func TestReplayIsRepeatable(t *testing.T) {
	s := streamOf(t, twoPhases(500), 10*second)
	candidates := Range{Windows: []time.Duration{10 * second}, Min: 5, Max: 199, Policies: []string{freq.Atys}}.Candidates()
	var found [2][]Result
	for i := range found {
		var err error
		if found[i], err = Replay(t.Context(), s, candidates, 2, 7); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(found[0], found[1]) {
		t.Error("it found something else")
	}
}

// TestOneFunction: its share is always the same, so that the least rate does.
func TestOneFunction(t *testing.T) {
	s := streamOf(t, recorded(400, phase{60 * second, map[string]float64{"all": 1}}), 5*second)
	r, err := Range{Windows: []time.Duration{5 * second}, Min: 1, Max: 999, Policies: []string{Fixed, freq.Atys, freq.Auto}}.Fit(s)
	if err != nil || r.Max != 200 {
		t.Fatalf("%v: at most %g Hz", err, r.Max)
	}
	results, err := Replay(t.Context(), s, r.Candidates(), 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if chosen, met := Choose(results, 0); !met || chosen.Policy == Fixed && chosen.Max > 5 || s.ByChance(5*second, 1) != 0 {
		t.Errorf("%+v, %v", chosen, met)
	}
}

func TestBadRecordings(t *testing.T) {
	clock := []profile.ValueType{profile.CPUTime(0)}
	empty := profile.NewBuilder(profile.Head{Types: clock}).Window()
	untimed := profile.NewBuilder(profile.Head{Types: clock})
	untimed.Add(profile.Row{Stack: stackOf(untimed, "f"), N: 9, Values: []int64{90}})
	faults := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "page-faults", Unit: "count"}}})
	faults.AddSample(profile.Sample{Stack: stackOf(faults, "f"), Weight: 1})
	weightless := profile.NewBuilder(profile.Head{Types: clock})
	weightless.AddSample(profile.Sample{Stack: stackOf(weightless, "f")})
	long := profile.NewBuilder(profile.Head{Types: clock})
	for _, at := range []time.Duration{math.MinInt64, math.MaxInt64, 0} {
		long.AddSample(profile.Sample{Stack: stackOf(long, "f"), Weight: 1, Time: at})
	}
	for name, c := range map[string]struct {
		w    *profile.Window
		want error
	}{
		"empty": {empty, ErrNoSamples}, "not timed": {untimed.Window(), ErrNoTimes}, "no clock": {faults.Window(), ErrNoClock},
		"no weights": {weightless.Window(), ErrNoClock}, "hundreds of years": {long.Window(), ErrTooLong},
	} {
		if _, err := FromTimed(c.w, second); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := FromWindows(second, nil, empty); !errors.Is(err, ErrNoSamples) {
		t.Errorf("windows without samples: %v", err)
	}
	if _, err := FromWindows(second, faults.Window()); !errors.Is(err, ErrNoClock) {
		t.Errorf("windows of no clock: %v", err)
	}
}

// TestShortAndSlow says which recordings tell too little.
func TestShortAndSlow(t *testing.T) {
	all := Range{Windows: []time.Duration{5 * second, 10 * second}, Min: 19, Max: 999, Policies: []string{Fixed}}
	for name, c := range map[string]struct {
		hertz  int
		length time.Duration
		want   error
	}{
		"one sample": {1, second, ErrTooShort}, "short": {999, 14 * second, ErrTooShort}, "slow": {30, 60 * second, ErrTooSlow},
	} {
		s := streamOf(t, recorded(c.hertz, phase{c.length, map[string]float64{"f": 1}}), 5*second)
		if _, err := all.Fit(s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	s := streamOf(t, recorded(99, phase{21 * second, map[string]float64{"f": 1}}), 5*second)
	if r, err := all.Fit(s); err != nil || !slices.Equal(r.Windows, []time.Duration{5 * second}) || r.Max != 49 {
		t.Errorf("%v: %+v is left", err, r)
	}
	idle := &Stream{Step: second, Hertz: 100, Names: []string{"f", freq.Others}, Counts: [][]float64{{1, 0}, {0, 0}, {0, 0}, {1, 0}}}
	if _, err := Replay(t.Context(), idle, []Candidate{{second, fixed(19)}}, 1, 1); !errors.Is(err, ErrTooFew) {
		t.Errorf("a sample here and there: %v", err)
	}
}

// TestIdleSteps: what sleeps for a while can be replayed.
func TestIdleSteps(t *testing.T) {
	s := streamOf(t, recorded(400, phase{120 * second, map[string]float64{"f": 0.6}}), 5*second)
	for i := range s.Counts {
		if i%3 > 0 {
			s.Counts[i] = make([]float64, len(s.Names))
		}
	}
	candidates := Range{Windows: []time.Duration{5 * second, 10 * second}, Min: 2, Max: 199, Policies: []string{Fixed, freq.Atys, freq.Auto}}.Candidates()
	results, err := Replay(t.Context(), s, candidates, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if math.IsNaN(r.Error) || math.IsNaN(r.Hertz) {
			t.Errorf("%v: %g Hz, %g", r, r.Hertz, r.Error)
		}
	}
}

// TestBinomial has the mean and the variance it should, few and many being drawn.
func TestBinomial(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct{ n, p float64 }{{1, 0.3}, {7, 0.5}, {40, 0.9}, {1000, 0.01}, {1000, 0.2}, {50_000, 0.7}} {
		const draws = 20_000
		mean, squares := 0.0, 0.0
		for range draws {
			k := binomial(rng, c.n, c.p)
			if k < 0 || k > c.n || k != math.Trunc(k) {
				t.Fatalf("%g of %g", k, c.n)
			}
			mean, squares = mean+k/draws, squares+k*k/draws
		}
		variance := c.n * c.p * (1 - c.p)
		if math.Abs(mean-c.n*c.p) > 4*math.Sqrt(variance/draws) || !near(squares-mean*mean, variance, 0.06) {
			t.Errorf("%g of %g: mean %g, variance %g", c.p, c.n, mean, squares-mean*mean)
		}
	}
	if binomial(rng, 9, 1) != 9 || binomial(rng, 9, 0) != 0 || binomial(rng, 0, 0.5) != 0 {
		t.Error("all, none, or some of nothing")
	}
}

// TestProposalsCanBeApplied reads them back as what they were.
func TestProposalsCanBeApplied(t *testing.T) {
	targets, err := spec.ParseSelector(`{service="checkout"}`)
	if err != nil {
		t.Fatal(err)
	}
	all := Range{Windows: []time.Duration{5 * second, 30 * second}, Min: 19, Max: 499.5, Policies: []string{Fixed, freq.Atys, freq.Auto}}
	for _, c := range all.Candidates() {
		p, err := Propose("Checkout Service", targets, c, 97.5)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != "checkout-service" || p.Window != c.Window || p.Pruning != 97.5 || p.Select.String() != targets.String() || p.Frequency != c.Max {
			t.Errorf("%v is proposed as %+v", c, p)
		}
		if c.Policy == Fixed != (p.Adaptive == nil) || p.Adaptive != nil && *p.Adaptive != c.Options {
			t.Errorf("%v has the policy %+v", c, p.Adaptive)
		}
	}
	if p, err := Propose("--", nil, all.Baseline(), 100); err != nil || p.Name != "calibrated" || p.Pruning != 0 || p.Rates() != "19" {
		t.Errorf("%v: %+v", err, p)
	}
}
