package simulation

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestModel(t *testing.T) {
	for _, c := range []struct {
		granularity float64
		class       Class
		fewer       int
		more        float64
		variance    float64 // of the samples that hit a stretch
	}{
		{30, ClassShort, 0, 0.3, 0.21},
		{50, ClassShort, 0, 0.5, 0.25},
		{100, ClassWhole, 1, 0, 0},
		{150, ClassLong, 1, 0.5, 0.25},
		{200, ClassWhole, 2, 0, 0},
		{280, ClassLong, 2, 0.8, 0.16},
		{314, ClassLong, 3, 0.14, 0.14 * 0.86}, // the paper's example of int() and frac()
	} {
		m := Model{c.granularity, 100, 0}
		fewer, more := m.Counts()
		if m.Class() != c.class || fewer != c.fewer || !near(more, c.more) || !near(m.CountVariance(), c.variance) {
			t.Errorf("R %v: %s, %d and one more with %v, variance %v; want %+v", m.R(), m.Class(), fewer, more, m.CountVariance(), c)
		}
		if mean := float64(fewer) + more; !near(mean, m.CountMean()) || !near(mean, m.R()) {
			t.Errorf("R %v: %v samples on average", m.R(), mean)
		}
	}
}

// The paper's greatest variance is 0.25, and it is that of one sample.
func TestModelVariesByAQuarterAtMost(t *testing.T) {
	for g := 1.0; g < 400; g++ {
		m := Model{g, 100, 0}
		for share := 0.05; share < 1; share += 0.05 {
			if v := max(m.CountVariance(), m.MeanVariance(share, 1)); v > 0.25+1e-12 {
				t.Fatalf("R %v, share %v: %v", m.R(), share, v)
			}
		}
	}
}

// What profiles vary by around the share that a task is set to is what it
// happened to run, and what they err by: of n intervals it ran n/R stretches.
func TestModelVarianceAddsUp(t *testing.T) {
	const share, n = 0.8, 1_000_000
	for _, g := range granularities() {
		m := Model{float64(g), interval, 0}
		states := share * (1 - share) * m.R() / n
		if sum, all := states+m.ErrorVariance(share, n), m.MeanVariance(share, n); math.Abs(sum/all-1) > 1e-5 {
			t.Errorf("R %v: %v of states and profiles, %v in all", m.R(), sum, all)
		}
	}
}

// Stretches are hit as often as the model says, under jitter too.
func TestModelCountsSamples(t *testing.T) {
	const draws = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, g := range granularities() {
		for _, jitter := range []float64{0, 1, 25, 400} {
			m := Model{float64(g), interval, jitter}
			var hits Summary
			var fourth float64
			for range draws {
				n := float64(hitsOf(rng, m))
				hits.Add(n)
				fourth += math.Pow(n-m.CountMean(), 4) / draws
			}
			if off := math.Abs(hits.Mean - m.CountMean()); off > 4*hits.StandardError()+1e-12 {
				t.Errorf("%+v: %v samples on average, want %v", m, hits.Mean, m.CountMean())
			}
			v := m.CountVariance()
			if off := math.Abs(hits.Variance() - v); off > 4*math.Sqrt(max(fourth-v*v, 0)/draws)+1e-4*v+1e-12 {
				t.Errorf("%+v: variance %v, want %v", m, hits.Variance(), v)
			}
		}
	}
}

// hitsOf draws how many samples hit a stretch. Samples begin long before it,
// so that jittered ones have forgotten where.
func hitsOf(rng *rand.Rand, m Model) (n int) {
	const before = 20 * interval
	for at := rng.Float64()*m.Interval - before; at < m.Granularity; at += m.Interval + math.Sqrt(m.Jitter)*rng.NormFloat64() {
		if at >= 0 {
			n++
		}
	}
	return n
}

// Of one task and idle time of the same granularity the model of mixes is
// that of one task.
func TestMixIsModelOfOneTask(t *testing.T) {
	for _, share := range utilisations() {
		for _, g := range granularities() {
			want := Model{float64(g), interval, 0}.ErrorVariance(share, 10_000)
			if got := Single(share, g).ErrorVariance(0, interval, 10_000); math.Abs(got-want) > 1e-12 {
				t.Errorf("share %v, g %d: %v, want %v", share, g, got, want)
			}
		}
	}
}

func TestStateShares(t *testing.T) {
	s := State{ends: []int{30, 80, 100}, tasks: []uint8{0, 1, 0}}
	for _, c := range []struct {
		from, to int
		want     float64
	}{{0, 100, 0.5}, {0, 30, 1}, {30, 80, 0}, {20, 40, 0.5}, {70, 90, 0.5}, {99, 100, 1}} {
		shares := make([]float64, 2)
		s.Shares(c.from, c.to, shares)
		if !near(shares[0], c.want) || !near(shares[1], 1-c.want) {
			t.Errorf("%d to %d: %v, want %v", c.from, c.to, shares, c.want)
		}
	}
	if s.Units() != 100 || (&State{}).Units() != 0 {
		t.Errorf("%d units, %d of none", s.Units(), (&State{}).Units())
	}
}

func TestSummary(t *testing.T) {
	var s Summary
	if s.Variance() != 0 || s.StandardError() != 0 {
		t.Errorf("of nothing: %v, %v", s.Variance(), s.StandardError())
	}
	for _, v := range []float64{4, 1, 7, 4} {
		s.Add(1e9 + v)
	}
	if s.N != 4 || s.Mean != 1e9+4 || s.Min != 1e9+1 || s.Max != 1e9+7 || !near(s.Variance(), 6) || !near(s.StandardError(), math.Sqrt(1.5)) {
		t.Errorf("%+v, variance %v, standard error %v", s, s.Variance(), s.StandardError())
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
