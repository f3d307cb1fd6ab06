package freq

import (
	"math"
	"strings"
	"testing"
)

// TestJensenShannon has values in closed form; the third is the square of SciPy's
// scipy.spatial.distance.jensenshannon([1, 0], [.5, .5]), 0.46450140402245893.
func TestJensenShannon(t *testing.T) {
	for _, c := range []struct {
		p, q []float64
		nats float64
	}{
		{[]float64{0.2, 0.8}, []float64{0.2, 0.8}, 0},
		{[]float64{1, 0}, []float64{0, 1}, math.Ln2},
		{[]float64{1, 0}, []float64{0.5, 0.5}, 0.46450140402245893 * 0.46450140402245893},
	} {
		if got := JensenShannon(c.p, c.q); math.Abs(got-c.nats) > 1e-12 {
			t.Errorf("%v, %v: %v, want %v", c.p, c.q, got, c.nats)
		}
	}
}

// two is a window in which one of two functions has a share.
func two(share float64) Window {
	return Window{Hertz: 100, Functions: []Function{{"f", 1000 * share}, {"g", 1000 * (1 - share)}}}
}

// TestAlgorithm goes through it by hand: up at a change, down after each five windows
// without one, within bounds.
func TestAlgorithm(t *testing.T) {
	p := New(filled(Options{Policy: Atys, Min: 50, Max: 100, Theta: 0.01, Lambda: 0.5}))
	for i, c := range []struct {
		share  float64
		hertz  float64
		reason Reason
	}{
		{0.5, 100, Began},
		{0.5, 100, Stays}, {0.5, 100, Stays}, {0.5, 100, Stays}, {0.5, 100, Stays}, {0.5, 50, Steady},
		{0.5, 50, Stays}, {0.5, 50, Stays}, {0.5, 50, Stays}, {0.5, 50, Stays}, {0.5, 50, Steady}, // no lower
		{0.5, 50, Stays},
		{0.9, 100, Changed},
		{0.9, 100, Stays}, {0.9, 100, Stays}, {0.9, 100, Stays}, {0.9, 100, Stays}, {0.9, 50, Steady},
		{0.1, 100, Changed}, {0.9, 100, Changed}, // no higher
	} {
		if d := p.Next(two(c.share)); d.Hertz != c.hertz || d.Reason != c.reason {
			t.Errorf("window %d: %+v, want %v", i, d, c)
		}
	}
}

// TestRenormalise has the rest alone change: with the paper's variant that is no change.
func TestRenormalise(t *testing.T) {
	window := func(rest float64) Window {
		w := Window{Hertz: 100, Functions: []Function{{"f", 600}, {"g", 300}}}
		for _, name := range strings.Split("abcdehijklmnopqrstuvwxyz", "") {
			w.Functions = append(w.Functions, Function{name, rest})
		}
		return w
	}
	for _, renormalise := range []bool{false, true} {
		p := New(filled(Options{Policy: Atys, Min: 50, Max: 100, Top: 2, Theta: 0.05, Renormalise: renormalise}))
		p.Next(window(1))
		if d := p.Next(window(50)); isChange(d) == renormalise {
			t.Errorf("renormalised %v: %+v", renormalise, d)
		}
	}
}

func TestCheck(t *testing.T) {
	for want, o := range map[string]Options{
		"":            {Min: 19, Max: 999},
		"policy":      {Policy: "best", Min: 19, Max: 999},
		"min: 0":      {Max: 999},
		"min: 99":     {Min: 99, Max: 19},
		"min: NaN":    {Min: math.NaN(), Max: 19},
		"theta: 0.7":  {Policy: Atys, Min: 19, Max: 99, Theta: 0.7},
		"theta: -1":   {Policy: Atys, Min: 19, Max: 99, Theta: -1},
		"lambda: 1":   {Policy: Atys, Min: 19, Max: 99, Lambda: 1},
		"streak: -1":  {Policy: Atys, Min: 19, Max: 99, Streak: -1},
		"top: 101":    {Min: 19, Max: 99, Top: 101},
		"width: 0.5":  {Min: 19, Max: 99, Width: 0.5},
		"width: it":   {Policy: Atys, Min: 19, Max: 99, Width: 0.01},
		"policy: the": {Policy: Auto, Min: 19, Max: 99, Theta: 0.1},
	} {
		o.Fill()
		wrong := o.Check()
		if want == "" {
			if len(wrong) > 0 {
				t.Errorf("%+v: %v", o, wrong)
			}
			continue
		}
		if len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), want) {
			t.Errorf("%+v: %v, want %q", o, wrong, want)
		}
	}
}

// TestSubstitute has windows at low rates stand for what was known before, until
// functions change.
func TestSubstitute(t *testing.T) {
	at := func(hertz, share float64) Window {
		w := two(share)
		w.Hertz = hertz
		return w
	}
	windows := []Window{at(100, 0.5), at(50, 0.51), {}, at(50, 0.49), at(50, 0.9), at(100, 0.91), at(50, 0.92)}
	shares, _ := Substitute(windows, Options{Policy: Atys, Theta: 0.01}).Shares([][]float64{{0.5}, {0.51}, {0}, {0.49}, {0.9}, {0.91}, {0.92}})
	want := []float64{0.5, 0.5, 0, 0.5, 0.9, 0.91, 0.91}
	for i, share := range shares {
		if math.Abs(share-want[i]) > 1e-12 {
			t.Errorf("window %d: %v, want %v", i, share, want[i])
		}
	}
}
