package stats

import (
	"math/rand/v2"
	"testing"
	"time"
)

// programs are what samplers meet: spans far shorter and far longer than the
// sampling period, cycles that divide it, are divided by it, or equal it.
var programs = []struct {
	name string
	draw func(rng *rand.Rand, length time.Duration) Program
}{
	{"20us spans", func(r *rand.Rand, l time.Duration) Program {
		return Phases(r, l, 20*time.Microsecond, 1, 4, 20, 60, 115)
	}},
	{"1ms spans", func(r *rand.Rand, l time.Duration) Program { return Phases(r, l, time.Millisecond, 1, 4, 20, 60, 115) }},
	{"100ms spans", func(r *rand.Rand, l time.Duration) Program {
		return Phases(r, l, 100*time.Millisecond, 4, 20, 60, 115)
	}},
	{"10ms cycle", func(r *rand.Rand, l time.Duration) Program {
		return Periodic(r, l, 3*time.Millisecond, 7*time.Millisecond)
	}},
	{"1ms cycle", func(r *rand.Rand, l time.Duration) Program {
		return Periodic(r, l, 300*time.Microsecond, 700*time.Microsecond)
	}},
	{"1ms cycle, rare", func(r *rand.Rand, l time.Duration) Program {
		return Periodic(r, l, 50*time.Microsecond, 950*time.Microsecond)
	}},
	{"0.5ms cycle", func(r *rand.Rand, l time.Duration) Program {
		return Periodic(r, l, 150*time.Microsecond, 350*time.Microsecond)
	}},
	{"2ms cycle", func(r *rand.Rand, l time.Duration) Program {
		return Periodic(r, l, 600*time.Microsecond, 1400*time.Microsecond)
	}},
}

// score pools what a design does over the functions of many windows.
type score struct {
	n, covered    int
	width, midP   float64
	bias, squared float64 // of the estimate, in standard errors of n independent draws
}

func simulate(rng *rand.Rand, d Design, length time.Duration, windows int, draw func(*rand.Rand, time.Duration) Program) (s score) {
	const functions = 5
	for range windows {
		p := draw(rng, length)
		parts, whole := p.Sample(d.Draw(rng, length), functions)
		for f, t := range p.Times(functions) {
			truth := float64(t) / float64(length)
			n := float64(whole.N)
			if truth*n < 5 || truth == 1 {
				continue
			}
			got := Share(parts[f], whole)
			s.n++
			if got.Contains(truth) {
				s.covered++
			}
			s.width += got.Width()
			s.midP += MidP(float64(parts[f].N), n).Width()
			off := got.Value - truth
			s.bias += off
			s.squared += off * off * n / (truth * (1 - truth))
		}
	}
	return s
}

// The criterion of the project: at least 93% covered and no wider than 1.2
// mid-P intervals, for every program apart. 0.92 here allows for the noise of
// a short run. The logged design effect (variance over that of independent
// draws of the same number) is 1.08 from unequal weights alone; much less
// means that regular sampling of long spans is surer than its interval says.
func TestShareCoversItsDesign(t *testing.T) {
	designs := []struct {
		name   string
		d      Design
		length time.Duration
	}{
		{"999 Hz", Randomised(999), 500 * time.Millisecond},
		{"99 Hz", Randomised(99), 2 * time.Second},
		{"thinned", Design{Period: time.Millisecond, Keep: 0.2}, 2 * time.Second},
	}
	for _, d := range designs {
		for _, p := range programs {
			t.Run(d.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				s := simulate(rand.New(rand.NewPCG(7, 8)), d.d, d.length, 250, p.draw)
				n := float64(s.n)
				coverage, width := float64(s.covered)/n, s.width/s.midP
				if coverage < 0.92 || width > 1.2 {
					t.Errorf("covered %.3f, width %.3f of mid-P", coverage, width)
				}
				if off := s.bias / n; off < -0.004 || off > 0.004 {
					t.Errorf("biased by %.4f", off)
				}
				t.Logf("covered %.3f, width %.3f of mid-P, design effect %.2f", coverage, width, s.squared/n)
			})
		}
	}
}

// A fixed period that divides the program's cycle is what the design is for:
// this is how far off it is.
func TestFixedPeriodIsBiased(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	fixed := Design{Period: time.Millisecond, Fixed: true}
	s := simulate(rng, fixed, 500*time.Millisecond, 200, programs[4].draw)
	if coverage := float64(s.covered) / float64(s.n); coverage > 0.1 {
		t.Errorf("samples in step with the program were covered in %.3f: the simulation does not see lock-step", coverage)
	}
}

// Windows of different rates are merged, with programs that ran throughout, or
// only at one of the rates.
func TestShareCoversMergedRates(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	fast, slow := Randomised(999), Randomised(50)
	const half = 5 * time.Second
	for _, c := range []struct {
		name         string
		inFast, slow float64
	}{{"throughout", 0.05, 0.05}, {"slow only", 0, 0.1}, {"fast only", 0.1, 0}} {
		covered := 0
		const windows = 200
		for range windows {
			p := Phases(rng, half, 200*time.Microsecond, c.inFast, 1-c.inFast)
			q := Phases(rng, half, 200*time.Microsecond, c.slow, 1-c.slow)
			part, whole := p.Sample(fast.Draw(rng, half), 2)
			more, all := q.Sample(slow.Draw(rng, half), 2)
			truth := float64(p.Times(2)[0]+q.Times(2)[0]) / float64(2*half)
			if Share(part[0].Plus(more[0]), whole.Plus(all)).Contains(truth) {
				covered++
			}
		}
		if got := float64(covered) / windows; got < 0.915 {
			t.Errorf("%s: covered in %.3f", c.name, got)
		}
	}
}

// Share must also hold where little was seen: n from 5 on, shares from 0.001.
func TestShareCoversFewSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, n := range []int{5, 20, 100, 500, 5000} {
		for _, share := range []float64{0.001, 0.01, 0.1, 0.5, 0.9, 0.99} {
			covered, width, midP := 0, 0.0, 0.0
			const windows = 1500
			for range windows {
				part, whole := Sums{}, Sums{}
				period := 0.0
				for i := range n {
					if i%20 == 0 {
						period = 0.5 + rng.Float64()
					}
					whole = whole.Plus(Sums{1, period, period * period})
					if rng.Float64() < share {
						part = part.Plus(Sums{1, period, period * period})
					}
				}
				got := Share(part, whole)
				if got.Contains(share) {
					covered++
				}
				width += got.Width()
				midP += MidP(float64(part.N), float64(n)).Width()
			}
			coverage := float64(covered) / windows
			// 0.93, but for the noise of so many windows.
			if coverage < 0.92 || width/midP > 1.2 {
				t.Errorf("n %d, share %v: covered %.3f, width %.3f of mid-P", n, share, coverage, width/midP)
			}
		}
	}
}
