package budget

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// at is when simulated decisions begin.
var at = time.Unix(1_800_000_000, 0)

const leastHertz = 5

func asks(wanted ...float64) (all []Ask) {
	for _, w := range wanted {
		all = append(all, Ask{w, leastHertz})
	}
	return all
}

// machine is one whose agent costs something whatever the rates, and the rest in
// proportion to them.
type machine struct {
	fixed, each float64 // cores; and for each Hz
	asks        []Ask
}

func (m machine) load(g *Governor, noise float64) Load {
	l := Load{Asks: m.asks}
	l.Spent = map[cputime.Cause]float64{cputime.Shipping: m.fixed * noise, cputime.Sampling: m.each * l.rates(g.Cap) * noise}
	return l
}

func random(r *rand.Rand) (machine, *Governor) {
	m := machine{fixed: 0.015 * r.Float64(), each: math.Pow(10, -5+3*r.Float64())}
	for range 1 + r.IntN(4) {
		m.asks = append(m.asks, asks(math.Pow(10, 4*r.Float64()))...)
	}
	return m, &Governor{Budget: Budget{Cores: 0.02}}
}

func (m machine) atLeast(g *Governor) bool {
	l := Load{Asks: m.asks}
	return l.rates(g.Cap) <= l.floors()*(1+1e-9)
}

func turned(all []Decision, k Knob) (lowered, raised bool) {
	for _, d := range all {
		if d.Knob == k {
			lowered, raised = lowered || !d.Relaxes(), raised || d.Relaxes()
		}
	}
	return lowered, raised
}

// TestGovernorSettles gives it a machine that stays as it is: it comes within the
// budget, or to the least rates; from then on rates never fall again, and end where
// raising them once more would not fit.
func TestGovernorSettles(t *testing.T) {
	for seed := range uint64(600) {
		m, g := random(rand.New(rand.NewPCG(seed, 1)))
		cores := func() float64 { l := m.load(g, 1); return l.Cores() }
		for n := 0; cores() > g.Budget.Cores && !g.Over; n++ {
			if n > 60 {
				t.Fatalf("seed %d: not within the budget after %d decisions: %+v, %+v", seed, n, m, g)
			}
			g.Decide(m.load(g, 1), at)
		}
		if g.Over {
			if sampling := m.load(g, 1).Spent[cputime.Sampling]; sampling >= matters*g.Budget.Cores && !m.atLeast(g) {
				t.Errorf("seed %d: it gives up while sampling costs %.4f and could cost less", seed, sampling)
			}
			continue
		}
		for range 200 {
			if lowered, _ := turned(g.Decide(m.load(g, 1), at), Frequency); lowered {
				t.Fatalf("seed %d: lowered within the budget: %+v, %+v", seed, m, g)
			}
		}
		if l := m.load(g, 1); g.Cap != 0 && l.Cores()+0.06*l.Spent[cputime.Sampling] < fits*g.Budget.Cores {
			t.Errorf("seed %d: %.4f cores of %.4f, and there is still a cap of %g", seed, l.Cores(), g.Budget.Cores, g.Cap)
		}
	}
}

// TestGovernorIsCalm gives it loads that differ by a fifth from time to time: rates
// are seldom turned around, and never are what they may not be.
func TestGovernorIsCalm(t *testing.T) {
	const decisions = 2000
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, g := random(r)
		turns, up := 0, false
		for range decisions {
			lowered, raised := turned(g.Decide(m.load(g, 0.9+0.2*r.Float64()), at), Frequency)
			if lowered && up {
				turns++
			}
			up = raised && g.Cap != 0 || up && !lowered
			for _, a := range m.asks {
				if got := a.Rate(g.Cap); got > a.Hertz || got < min(a.Hertz, leastHertz) {
					t.Fatalf("seed %d: %g Hz in place of %g", seed, got, a.Hertz)
				}
			}
		}
		if turns > decisions/(4*mostPatience) {
			t.Errorf("seed %d: rates turned around %d times in %d decisions: %+v", seed, turns, decisions, m)
		}
	}
}

// TestGovernorRemembers has a policy want little between changes: what it could not have
// at the last one it cannot have at the next.
func TestGovernorRemembers(t *testing.T) {
	g := Governor{Budget: Budget{Cores: 0.01}}
	spent := func(cores float64) map[cputime.Cause]float64 {
		return map[cputime.Cause]float64{cputime.Sampling: cores}
	}
	g.Decide(Load{Spent: spent(0.04), Asks: asks(999), Most: 999}, at)
	for range 4 {
		g.Decide(Load{Spent: spent(0.0075), Asks: asks(49), Most: 999}, at)
	}
	if got := (Ask{Hertz: 999}).Rate(g.Cap); got > 700 || g.Cap == 0 {
		t.Errorf("a policy that may want 999 Hz has %g", got)
	}
}

func TestGovernorWithoutBudget(t *testing.T) {
	g := &Governor{}
	if d := g.Decide(Load{Spent: map[cputime.Cause]float64{cputime.Sampling: 3}, Memory: 1 << 40, Asks: asks(999)}, at); d != nil || g.Limits != (Limits{}) {
		t.Errorf("%+v, %+v", d, g)
	}
}

// TestGovernorOfMemory has memory run out: caches go first, then rates and the
// length of windows, then recordings; with room all comes back.
func TestGovernorOfMemory(t *testing.T) {
	g := &Governor{Budget: Budget{Memory: 100e6}}
	full := Load{Memory: 101e6, Asks: asks(2, 19)}
	if d := g.Decide(full, at); len(d) != 1 || d[0].Knob != Caches || g.Stop || g.Short {
		t.Errorf("at first: %+v", d)
	}
	if d := g.Decide(full, at); len(d) != 3 || !g.Short || full.Asks[1].Rate(g.Cap) >= 19 || full.Asks[0].Rate(g.Cap) != 2 {
		t.Errorf("then: %+v, %g Hz", d, g.Cap)
	}
	stopped := false
	for range 10 {
		g.Decide(full, at)
		stopped = stopped || g.Stop
	}
	if !stopped || full.Asks[1].Rate(g.Cap) != leastHertz || g.For != Memory {
		t.Errorf("at last: %v, %+v", stopped, g)
	}
	if d := g.Decide(Load{Memory: 95e6, Asks: full.Asks}, at); len(d) != 0 || g.Stop {
		t.Errorf("close to the budget: %+v", d)
	}
	for range 20 {
		g.Decide(Load{Memory: 50e6, Asks: full.Asks}, at)
	}
	if g.Limits != (Limits{}) || g.For != Nothing {
		t.Errorf("with room: %+v", g)
	}
}

func TestDue(t *testing.T) {
	b := Budget{Cores: 0.02, Memory: 100}
	load := func(cores float64, memory int64) Load {
		return Load{Spent: map[cputime.Cause]float64{cputime.Tables: cores}, Memory: memory}
	}
	for _, c := range []struct {
		since  time.Duration
		load   Load
		limits Limits
		want   bool
	}{
		{9 * time.Second, load(1, 0), Limits{}, false},
		{10 * time.Second, load(0.05, 0), Limits{}, true},
		{10 * time.Second, load(0.03, 0), Limits{}, false},
		{10 * time.Second, load(0.01, 0), Limits{}, false},
		{10 * time.Second, load(0.01, 0), Limits{Cap: 5}, true},
		{10 * time.Second, load(0.03, 0), Limits{Cap: 5}, false},
		{10 * time.Second, load(0, 101), Limits{}, true},
		{30 * time.Second, load(0, 0), Limits{}, true},
	} {
		g := Governor{Budget: b, Limits: c.limits}
		if got := g.Due(c.since, c.load); got != c.want {
			t.Errorf("after %v with %+v and %+v: %v", c.since, c.load, c.limits, got)
		}
	}
	if (&Governor{}).Due(10*time.Second, load(1, 1<<40)) {
		t.Error("without a budget there is nothing that is far too much")
	}
}

// agent is a simulated one: what each cause asks for, and what limits leave of it.
type agent struct {
	asked map[cputime.Cause]float64 // of a core, without limits and at the asked rates
	asks  []Ask
}

func (a *agent) load(g *Governor, noise func() float64) Load {
	l := Load{Spent: map[cputime.Cause]float64{}, Asks: a.asks}
	for c, cores := range a.asked {
		l.Spent[c] = cores * noise()
	}
	l.Spent[cputime.Sampling] *= l.rates(g.Cap) / l.rates(0)
	for c, limit := range map[cputime.Cause]float64{cputime.Tables: g.Tables, cputime.Naming: g.Naming} {
		if limit > 0 {
			l.Spent[c] = min(l.Spent[c], limit)
		}
	}
	if g.Heap > 0 {
		l.Spent[cputime.Other] *= 0.6
	}
	for pause := g.Events; pause >= shortEvents; pause /= stepEvents {
		l.Spent[cputime.Following] *= 0.6
	}
	return l
}

// run has an agent live for so long, and gives what it took of a core in the mean,
// all decisions, and when the rate was as asked for again.
func (a *agent) run(g *Governor, length time.Duration, noise func() float64) (mean float64, all []Decision, back time.Duration) {
	var sum float64
	since := time.Duration(0)
	spent := map[cputime.Cause]float64{}
	for now := time.Duration(0); now < length; now += Soon {
		l := a.load(g, noise)
		sum += l.Cores()
		for c, cores := range l.Spent {
			spent[c] += cores
		}
		since += Soon
		for c := range l.Spent {
			l.Spent[c] = spent[c] / (since.Seconds() / Soon.Seconds())
		}
		l.For = since
		if !g.Due(since, l) {
			continue
		}
		all = append(all, g.Decide(l, at.Add(now))...)
		since, spent = 0, map[cputime.Cause]float64{}
		if g.Cap > 0 {
			back = now + Soon
		}
	}
	return sum / (length.Seconds() / Soon.Seconds()), all, back
}

// TestHour has loads of which another cause is the largest go on for an hour: the
// knob of that cause is turned, the rate stays where sampling is not what costs, the
// budget holds, and calm brings all back within two minutes.
func TestHour(t *testing.T) {
	const budget = 0.04
	for _, c := range []struct {
		name  string
		asked map[cputime.Cause]float64
		knobs []Knob // that are turned, and no others
		over  bool   // nothing helps
	}{
		{"within", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Tables: 0.01, cputime.Shipping: 0.01, cputime.Other: 0.005}, nil, false},
		{"tables", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Tables: 0.09, cputime.Naming: 0.002, cputime.Shipping: 0.01, cputime.Other: 0.005}, []Knob{Tables}, false},
		{"naming", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Tables: 0.002, cputime.Naming: 0.06, cputime.Shipping: 0.01}, []Knob{Naming}, false},
		{"following", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Following: 0.05, cputime.Shipping: 0.005}, []Knob{Events}, false},
		{"tables and naming", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Tables: 0.04, cputime.Naming: 0.04, cputime.Following: 0.02}, []Knob{Tables, Naming}, false},
		{"sampling", map[cputime.Cause]float64{cputime.Sampling: 0.08, cputime.Tables: 0.004, cputime.Shipping: 0.003}, []Knob{Frequency}, false},
		{"garbage", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Shipping: 0.006, cputime.Other: 0.035}, []Knob{Collector}, false},
		{"the store", map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Store: 0.06}, []Knob{None}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 7))
			noise := func() float64 { return 0.9 + 0.2*r.Float64() }
			a, g := &agent{c.asked, asks(19)}, &Governor{Budget: Budget{Cores: budget}}
			mean, all, _ := a.run(g, 5*time.Minute, noise)
			if mean > budget && !c.over {
				t.Errorf("%.2f%% of a core in the mean of the first five minutes", 100*mean)
			}
			mean, more, _ := a.run(g, time.Hour, noise)
			all = append(all, more...)
			if mean > budget && !c.over {
				t.Errorf("%.2f%% of a core in the mean of an hour", 100*mean)
			}
			for _, d := range all {
				if !slices.Contains(c.knobs, d.Knob) {
					t.Errorf("turned: %s", &d)
				}
				if !strings.Contains(d.Why, "of a core") || d.At.IsZero() {
					t.Errorf("a decision without a reason: %+v", d)
				}
			}
			for _, k := range c.knobs {
				if lowered, _ := turned(all, k); !lowered {
					t.Errorf("%s was never turned: %v", k, all)
				}
			}
			if g.Over != c.over {
				t.Errorf("over the budget: %v", g.Over)
			}
			if rate := (Ask{19, leastHertz}).Rate(g.Cap); rate < leastHertz {
				t.Errorf("%g Hz", rate)
			}
			if len(all) > 120 {
				t.Errorf("%d decisions in an hour", len(all))
			}
			calm := &agent{map[cputime.Cause]float64{cputime.Sampling: 0.003, cputime.Shipping: 0.005, cputime.Other: 0.003}, a.asks}
			if _, _, back := calm.run(g, 5*time.Minute, noise); back > 2*time.Minute || g.Limits != (Limits{}) || g.Over {
				t.Errorf("after calm: back after %v, %+v", back, g)
			}
		})
	}
}

// TestRestrained has the limits of tables hold while the load goes on, though what is
// taken is within the budget then.
func TestRestrained(t *testing.T) {
	a := &agent{map[cputime.Cause]float64{cputime.Sampling: 0.004, cputime.Tables: 0.5, cputime.Shipping: 0.01}, asks(19)}
	g := &Governor{Budget: Budget{Cores: 0.04}}
	one := func() float64 { return 1 }
	a.run(g, time.Minute, one)
	if mean, all, _ := a.run(g, 10*time.Minute, one); mean > 0.04 || g.Tables == 0 || g.Cap != 0 {
		t.Errorf("%.2f%% of a core, %+v: %v", 100*mean, g, all)
	}
}

func TestDecisionString(t *testing.T) {
	for want, d := range map[string]Decision{
		"frequency 19 Hz -> 9.5 Hz: w":                     {Knob: Frequency, From: 19, To: 9.5},
		"frequency 5 Hz -> as asked for: w":                {Knob: Frequency, From: 5},
		"tables as usual -> 1.5% of a core: w":             {Knob: Tables, To: 0.015},
		"events 20ms -> 80ms: w":                           {Knob: Events, From: 0.02, To: 0.08},
		"over the budget with nothing left to restrain: w": {Knob: None},
		"caches dropped: w":                                {Knob: Caches},
		"windows 1 -> 0.5: w":                              {Knob: Windows, From: 1, To: 0.5},
		"garbage collector as usual -> 100%: w":            {Knob: Collector, To: 100},
		"naming 0.2% of a core -> as usual: w":             {Knob: Naming, From: 0.002},
		"within the budget again: w":                       {Knob: None, From: 1},
	} {
		if d.Why = "w"; d.String() != want {
			t.Errorf("%q, want %q", &d, want)
		}
	}
}
