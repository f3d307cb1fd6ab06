package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The oracle is SciPy 1.17.1: scipy.stats.norm.isf.
func TestNormalTail(t *testing.T) {
	for p, want := range map[float64]float64{0.5: 0, 0.025: 1.9599639845400545, 0.0005: 3.2905267314918945, 1e-7: 5.1993375821928165, 1 - Power: powerDeviate} {
		if got := normalTail(p); math.Abs(got-want) > 1e-9 {
			t.Errorf("normalTail(%v) = %v, want %v", p, got, want)
		}
	}
}

// As many samples as are said to be needed give the interval that was asked for.
func TestSamplesFor(t *testing.T) {
	for _, c := range []struct{ share, within, confidence, least, most float64 }{
		{0.01, 0.001, 0.95, 38031, 38031 * 1.09}, // z^2 p(1-p)/x^2, and some for being skewed: the upper bound is farther
		{0.5, 0.05, 0.95, 380, 390},
		{0.1, 0.01, 0.99, 5971, 5971 * 1.09},
		{0, 0.001, 0.95, 3300, 3400}, // ln(0.72/0.025)/0.001
		{0.3, 2, 0.95, 1, 1},
	} {
		n := SamplesFor(c.share, c.within, c.confidence)
		if n < c.least || n > c.most {
			t.Errorf("share %v within %v at %v: %v samples, want %v to %v", c.share, c.within, c.confidence, n, c.least, c.most)
		}
		if half := HalfWidth(c.share, n, c.confidence); half > c.within || n > 1 && half < 0.99*c.within {
			t.Errorf("share %v within %v at %v: %v samples give %v", c.share, c.within, c.confidence, n, half)
		}
	}
	i := Proportion(10, 400)
	if got := HalfWidth(10.0/400, 400, 0.95); math.Abs(got-(i.High-i.Value)) > 1e-9 {
		t.Errorf("at 95%% %v, the interval that is shown has %v", got, i.High-i.Value)
	}
}

// The design effect is what simulated samples have.
func TestDesignEffect(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	const length = 1000 * time.Second
	_, whole := Program{{End: length}}.Sample(Randomised(999).Draw(rng, length), 1)
	if got := float64(whole.N) * whole.Squares / (whole.Weight * whole.Weight); math.Abs(got-DesignEffect) > 0.01 {
		t.Errorf("%v, simulated %v", DesignEffect, got)
	}
}
