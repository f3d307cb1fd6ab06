package freq

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// machine is one whose agent costs something whatever the rates, and the rest in
// proportion to them.
type machine struct {
	fixed, each float64 // cores; and for each Hz
	wanted      []float64
}

func (m machine) load(g *Governor, noise float64) Load {
	sum := 0.0
	for _, w := range m.wanted {
		sum += g.Rate(w)
	}
	return Load{Cores: (m.fixed + m.each*sum) * noise, Wanted: m.wanted}
}

func random(r *rand.Rand) (machine, *Governor) {
	m := machine{fixed: 0.015 * r.Float64(), each: math.Pow(10, -5+3*r.Float64())}
	for range 1 + r.IntN(4) {
		m.wanted = append(m.wanted, math.Pow(10, 4*r.Float64()))
	}
	return m, &Governor{Budget: Budget{Cores: 0.02}}
}

func (m machine) atLeast(g *Governor) bool {
	for _, w := range m.wanted {
		if g.Rate(w) > min(w, Lowest) {
			return false
		}
	}
	return true
}

// TestGovernorSettles gives it a machine that stays as it is: it comes within the
// budget, or to the lowest rates; from then on rates never fall again, and end
// where raising them once more would not fit.
func TestGovernorSettles(t *testing.T) {
	for seed := range uint64(3000) {
		m, g := random(rand.New(rand.NewPCG(seed, 1)))
		within := 0
		for m.load(g, 1).Cores > g.Budget.Cores && !m.atLeast(g) {
			if within++; within > 60 {
				t.Fatalf("seed %d: not within the budget after %d decisions: %+v, %+v", seed, within, m, g)
			}
			g.Decide(m.load(g, 1))
		}
		if m.atLeast(g) && m.load(g, 1).Cores > g.Budget.Cores {
			if d := g.Decide(m.load(g, 1)); !d.Stop || d.For != CPU || d.Lowered {
				t.Fatalf("seed %d: %+v at the lowest rates, and over the budget", seed, d)
			}
			continue
		}
		for range 500 {
			if d := g.Decide(m.load(g, 1)); d.Lowered || d.Stop {
				t.Fatalf("seed %d: %+v within the budget: %+v, %+v", seed, d, m, g)
			}
		}
		if l := m.load(g, 1); g.Cap != 0 && l.Cores*grow < fits*g.Budget.Cores {
			t.Errorf("seed %d: %.4f cores of %.4f, and there is still a cap of %g", seed, l.Cores, g.Budget.Cores, g.Cap)
		}
	}
}

// TestGovernorIsCalm gives it loads that differ by a fifth from time to time: rates
// are seldom turned around, ever more seldom, and never are what they may not be.
func TestGovernorIsCalm(t *testing.T) {
	const decisions = 2000
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, g := random(r)
		turns, up := 0, false
		for range decisions {
			before := g.Cap
			d := g.Decide(m.load(g, 0.9+0.2*r.Float64()))
			if d.Lowered && up {
				turns++
			}
			up = d.Raised && g.Cap != 0 || up && !d.Lowered
			for _, w := range m.wanted {
				if got := g.Rate(w); got > w || got < min(w, Lowest) {
					t.Fatalf("seed %d: %g Hz in place of %g", seed, got, w)
				}
				if was := under(w, before); g.Rate(w) > was*grow*(1+1e-9) && g.Cap != 0 {
					t.Fatalf("seed %d: from %g to %g Hz at once", seed, was, g.Rate(w))
				}
			}
		}
		if turns > decisions/mostPatience+10 {
			t.Errorf("seed %d: rates turned around %d times in %d decisions: %+v", seed, turns, decisions, m)
		}
	}
}

// TestGovernorGoesBack has a burden come and go: rates are lowered within few
// decisions, and are what was asked for again after many.
func TestGovernorGoesBack(t *testing.T) {
	m := machine{fixed: 0.004, each: 0.0001, wanted: []float64{19, 999}}
	g := &Governor{Budget: Budget{Cores: 0.02}}
	for range 10 {
		g.Decide(m.load(g, 1))
	}
	if g.Rate(19) != 19 || g.Rate(999) >= 200 || g.For != CPU {
		t.Errorf("%g and %g Hz for want of %q: the fastest is lowered first", g.Rate(19), g.Rate(999), g.For)
	}
	m.each = 1e-6
	n := 0
	for ; g.Cap != 0 && n < 200; n++ {
		g.Decide(m.load(g, 1))
	}
	if n < 20 || n == 200 || g.For != Nothing {
		t.Errorf("back after %d decisions: %+v", n, g)
	}
}

// TestGovernorRemembers has a policy want little between changes: what it could not have
// at the last one it cannot have at the next.
func TestGovernorRemembers(t *testing.T) {
	for most, want := range map[float64]float64{0: 999, 999: 700} {
		g := Governor{Budget: Budget{Cores: 0.01}}
		g.Decide(Load{Cores: 0.04, Wanted: []float64{999}, Most: most})
		for range 4 {
			g.Decide(Load{Cores: 0.001, Wanted: []float64{49}, Most: most})
		}
		if got := g.Rate(999); got > want || g.Rate(49) != 49 {
			t.Errorf("a policy that may want %g Hz has %g, at most %g", most, got, want)
		}
	}
}

func TestGovernorWithoutBudget(t *testing.T) {
	g := &Governor{}
	if d := g.Decide(Load{Cores: 3, Memory: 1 << 40, Wanted: []float64{999}}); d != (Verdict{}) || g.Rate(999) != 999 {
		t.Errorf("%+v, %g Hz", d, g.Rate(999))
	}
}

// TestGovernorOfMemory has memory run out: caches go first, then rates and the
// length of windows, then recordings; with room all comes back.
func TestGovernorOfMemory(t *testing.T) {
	g := &Governor{Budget: Budget{Memory: 100}}
	full := Load{Memory: 101, Wanted: []float64{2, 19}}
	if d := g.Decide(full); !d.Shed || d.Lowered || d.Stop || d.For != Memory {
		t.Errorf("at first: %+v", d)
	}
	if d := g.Decide(full); !d.Shed || !d.Lowered || !g.Short || g.Rate(19) >= 19 {
		t.Errorf("then: %+v, %g Hz", d, g.Rate(19))
	}
	stopped := false
	for range 10 {
		d := g.Decide(full)
		stopped = stopped || d.Stop
	}
	if !stopped || g.Rate(19) != Lowest || g.For != Memory {
		t.Errorf("at last: %v, %g Hz", stopped, g.Rate(19))
	}
	if d := g.Decide(Load{Memory: 95, Wanted: full.Wanted}); d.Raised || d.Lowered {
		t.Errorf("close to the budget: %+v", d)
	}
	for range 200 {
		g.Decide(Load{Memory: 50, Wanted: full.Wanted})
	}
	if g.Short || g.Cap != 0 {
		t.Errorf("with room: %+v", g)
	}
}

func TestDue(t *testing.T) {
	b := Budget{Cores: 0.02, Memory: 100}
	for _, c := range []struct {
		since time.Duration
		load  Load
		want  bool
	}{
		{9 * time.Second, Load{Cores: 1}, false},
		{10 * time.Second, Load{Cores: 0.05}, true},
		{10 * time.Second, Load{Cores: 0.03}, false},
		{10 * time.Second, Load{Memory: 101}, true},
		{30 * time.Second, Load{}, true},
	} {
		if got := b.Due(c.since, c.load); got != c.want {
			t.Errorf("after %v with %+v: %v", c.since, c.load, got)
		}
	}
	if (Budget{}).Due(10*time.Second, Load{Cores: 1, Memory: 1 << 40}) {
		t.Error("without a budget there is nothing that is far too much")
	}
}
