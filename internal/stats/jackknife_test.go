package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestServiceShareOfMeans compares with what is known of means: where all groups
// are alike in size the jackknife's error is that of the mean of shares.
func TestServiceShareOfMeans(t *testing.T) {
	c := Clusters{Part: []float64{1, 2, 3, 6}, Whole: []float64{10, 10, 10, 10}}
	variance := (0.2*0.2 + 0.1*0.1 + 0 + 0.3*0.3) / 3 / 4
	for _, tt := range []struct {
		name               string
		recorded, eligible int
		selection          Interval
		variance, freedom  float64
	}{
		{"of any number", 0, 0, Interval{0.3, 0.3, 0.3}, variance, 3},
		{"4 of 8", 4, 8, Interval{0.3, 0.3, 0.3}, variance / 2, 3},
		{"4 of 8, and sampling", 4, 8, Interval{0.3, 0.3 - 0.02*z, 0.3 + 0.02*z}, variance/2 + 0.0004/2, 3 * math.Pow(1+0.0004/variance, 2)},
	} {
		c.Recorded, c.Eligible = tt.recorded, tt.eligible
		got, why := c.ServiceShare(tt.selection)
		half := studentQuantile(tt.freedom) * math.Sqrt(tt.variance) / (0.3 * 0.7)
		logit := func(p float64) float64 { return math.Log(p / (1 - p)) }
		if why != "" || math.Abs(got.Value-0.3) > 1e-12 || math.Abs(logit(got.High)-logit(0.3)-half) > 1e-9 || math.Abs(logit(got.Low)-logit(0.3)+half) > 1e-9 {
			t.Errorf("%s: %+v, %q; want log odds within %v", tt.name, got, why, half)
		}
	}
	c.Recorded, c.Eligible = 8, 8
	selection := Interval{0.3, 0.29, 0.31}
	if got, _ := c.ServiceShare(selection); math.Abs(got.Low-0.29)+math.Abs(got.High-0.31) > 2e-4 {
		t.Errorf("all of the service recorded: %+v, want %+v", got, selection)
	}
}

// TestServiceShareOfUnlike: what instances of any sizes differ by is found whole in
// the mean, where sampling adds nothing; with sizes alike that takes no more than
// for groups.
func TestServiceShareOfUnlike(t *testing.T) {
	const rounds = 20_000
	rng := rand.New(rand.NewPCG(5, 6))
	for _, sizes := range [][]float64{{100, 100, 100, 100}, {400, 100, 100, 50, 50, 10}, {900, 30, 30, 30, 10}} {
		whole, found, truth := 0.0, 0.0, 0.0
		for _, n := range sizes {
			whole += n
		}
		for range rounds {
			c := Clusters{Part: make([]float64, len(sizes)), Whole: sizes}
			part := 0.0
			for i, n := range sizes {
				c.Part[i] = n * (0.4 + 0.05*rng.NormFloat64())
				part += c.Part[i]
			}
			variance, _ := c.between(part/whole, whole)
			hidden := c.hidden(variance, whole)
			if sizes[0] == sizes[1] && math.Abs(hidden) > 1e-9*variance {
				t.Fatalf("of instances of one size %v is hidden of %v", hidden, variance)
			}
			found, truth = found+(variance+hidden)/rounds, truth+math.Pow(part/whole-0.4, 2)/rounds
		}
		if math.Abs(found/truth-1) > 0.05 {
			t.Errorf("sizes %v: variance %v, want %v", sizes, found, truth)
		}
	}
}

func TestServiceShareUnknown(t *testing.T) {
	for _, c := range []struct {
		clusters Clusters
		why      string
	}{
		{Clusters{}, "0 instances, or groups of them,"},
		{Clusters{Part: []float64{0, 0}, Whole: []float64{0, 0}}, "0 instances"},
		{Clusters{Part: []float64{1, 0, 2, 0}, Whole: []float64{5, 0, 4, 0}}, "2 instances"},
		{Clusters{Part: []float64{1, 1, 2}, Whole: []float64{5, 3, 4}, Recorded: 2, Eligible: 90}, "2 of 90 instances"},
	} {
		if got, why := c.clusters.ServiceShare(Interval{0, 0, 1}); !strings.Contains(why, c.why) || got != (Interval{}) {
			t.Errorf("of groups %v: %+v, %q", c.clusters.Whole, got, why)
		}
	}
}

// The oracle is SciPy 1.17.1: scipy.stats.t.ppf(.975, freedom); between whole
// degrees it may be a little wider.
func TestStudentQuantile(t *testing.T) {
	for freedom, want := range map[float64]float64{1: 12.7062, 2: 4.30265, 3: 3.18245, 5: 2.57058, 7: 2.36462, 8: 2.306, 9: 2.26216, 12: 2.17881, 20: 2.08596, 50: 2.00856, 1000: 1.96234} {
		if got := studentQuantile(freedom); math.Abs(got-want) > 2e-4 {
			t.Errorf("%v degrees: %v, want %v", freedom, got, want)
		}
	}
	for freedom, want := range map[float64]float64{1.5: 6.0167, 2.5: 3.5747, 3.7: 2.8675, 5.5: 2.5019, 6.3: 2.4189, 7.5: 2.333} {
		if got := studentQuantile(freedom); got < want-1e-4 || got > 1.25*want || freedom > 2 && got > 1.02*want {
			t.Errorf("%v degrees: %v, want %v or a little more", freedom, got, want)
		}
	}
}

// fleet is a service whose instances differ in their shares and in their sizes.
type fleet struct {
	name      string
	instances int
	share     float64
	spread    float64 // standard deviation of instances' shares, of the share
	samples   int     // of a middling instance
	uneven    bool    // instances are of sizes that differ by ten and more
}

var fleets = []fleet{
	{"10 instances", 10, 0.2, 0.3, 300, false},
	{"10, unlike in size", 10, 0.2, 0.3, 300, true},
	{"16, alike in shares", 16, 0.05, 0, 200, false},
	{"30, rare", 30, 0.01, 0.5, 100, false},
	{"50, unlike in size", 50, 0.3, 0.3, 50, true},
	{"200", 200, 0.1, 0.5, 100, false},
}

// draw gives what is sampled of instances drawn for so many groups; 0: each is by
// itself.
func (f fleet) draw(rng *rand.Rand, groups int) (c Clusters, selection Interval) {
	apart := groups == 0
	if apart {
		groups = f.instances
	}
	c = Clusters{Part: make([]float64, groups), Whole: make([]float64, groups), Apart: apart}
	var part, whole Sums
	for i := range f.instances {
		n, g := f.samples, rng.IntN(groups)
		if apart {
			g = i
		}
		if f.uneven {
			n = int(float64(n) * math.Exp(rng.NormFloat64()))
		}
		share := f.share * min(max(1+f.spread*rng.NormFloat64(), 0), 2)
		hits := 0
		for range n {
			if rng.Float64() < share {
				hits++
			}
		}
		part, whole = part.Plus(equal(int64(hits), 1)), whole.Plus(equal(int64(n), 1))
		c.Part[g] += float64(hits)
		c.Whole[g] += float64(n)
	}
	return c, Share(part, whole)
}

// TestServiceShareCovers: the truth of all instances lies within the interval
// of some of them as often as it is to, 93% or more.
func TestServiceShareCovers(t *testing.T) {
	for _, f := range fleets {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.covers(t, 8)
		})
		if f.instances < 30 {
			t.Run(f.name+", apart", func(t *testing.T) {
				t.Parallel()
				f.covers(t, 0)
			})
		}
	}
}

// covers has a fleet drawn, and its intervals held against the truth.
func (f fleet) covers(t *testing.T, groups int) {
	const rounds = 1500
	rng := rand.New(rand.NewPCG(1, 2))
	covered, known, width, squares := 0, 0, 0.0, 0.0
	for range rounds {
		c, selection := f.draw(rng, groups)
		i, why := c.ServiceShare(selection)
		if why != "" {
			continue
		}
		known++
		if i.Contains(f.share) {
			covered++
		}
		if i.Low > selection.Low || i.High < selection.High {
			t.Fatalf("%v is narrower than of the selection, %v", i, selection)
		}
		width += i.Width()
		squares += math.Pow(i.Value-f.share, 2)
	}
	coverage := MidP(float64(covered), float64(known))
	ideal := 2 * z * math.Sqrt(squares/float64(known))
	if coverage.High < 0.93 || known < rounds*9/10 {
		t.Errorf("%.1f%% of %d intervals hold the truth", 100*coverage.Value, known)
	}
	t.Logf("%.1f%% (%.1f to %.1f) hold the truth, %.2f times as wide as the variance gives", 100*coverage.Value, 100*coverage.Low, 100*coverage.High, width/float64(known)/ideal)
}

// TestServiceShareOfRecorded: of all instances of a service some are recorded,
// and the truth is that of all of them.
func TestServiceShareOfRecorded(t *testing.T) {
	const rounds, instances, recorded = 2000, 24, 16
	rng := rand.New(rand.NewPCG(3, 4))
	covered, width, without := 0, 0.0, 0.0
	for range rounds {
		c := Clusters{Part: make([]float64, 8), Whole: make([]float64, 8)}
		truth, hits := 0.0, int64(0)
		for i := range instances {
			share := 0.2 * min(max(1+0.4*rng.NormFloat64(), 0), 2)
			truth += share / instances
			if i >= recorded {
				continue
			}
			for range 200 {
				c.Whole[i%8]++
				if rng.Float64() < share {
					c.Part[i%8]++
					hits++
				}
			}
		}
		selection := Share(equal(hits, 1), equal(200*recorded, 1))
		wide, _ := c.ServiceShare(selection)
		c.Recorded, c.Eligible = recorded, instances
		got, _ := c.ServiceShare(selection)
		if got.Contains(truth) {
			covered++
		}
		width, without = width+got.Width(), without+wide.Width()
	}
	if coverage := MidP(float64(covered), rounds); coverage.High < 0.93 || width > 0.85*without {
		t.Errorf("%.1f%% of the intervals hold the truth; %.2f times as wide as of any number of instances", 100*coverage.Value, width/without)
	}
}
