package freq

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func filled(o Options) Options {
	o.Fill()
	return o
}

// follow has a policy choose the rates of a program's windows. A rate that was decided
// by a window holds from the next but one on: the server has the window only once the
// next has begun.
func follow(rng *rand.Rand, o Options, p program, windows int, cpus float64) (seen []Window, decided []Decision) {
	policy := New(o)
	now, next := o.Max, o.Max
	for i := range windows {
		w := sample(rng, p, i, now, cpus)
		d := policy.Next(w)
		seen, decided = append(seen, w), append(decided, d)
		now, next = next, d.Hertz
	}
	return seen, decided
}

func isChange(d Decision) bool { return d.Reason == Changed || d.Reason == Returned }

// TestFalseAlarms has windows that differ by chance, and as programs' do, be no change.
func TestFalseAlarms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	alarms, windows := 0, 0
	for _, equivalent := range []float64{1000, 20_000, 1e9} {
		for _, hertz := range []float64{19, 99, 499} {
			policy := New(filled(Options{Policy: Auto, Min: 1, Max: 999}))
			p := wandering(rng, equivalent, steady(zipf(100)...))
			for i := range 1500 {
				if d := policy.Next(sample(rng, p, i, hertz, 2)); isChange(d) {
					alarms++
				}
				windows++
			}
		}
	}
	if rate := float64(alarms) / float64(windows); rate > 0.002 {
		t.Errorf("%d of %d windows that differ by chance are taken for a change", alarms, windows)
	}
}

// TestReaction has a fifth of the time move from one function to another, anywhere in
// a window: the rate is raised from the third window on at the latest.
func TestReaction(t *testing.T) {
	const at = 60
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		before := zipf(100)
		after := moved(before, 0.2, 0, int(3+seed))
		part := rng.Float64() // of the window that is as before
		p := func(i int) []float64 {
			switch {
			case i < at:
				return before
			case i > at:
				return after
			}
			mixed := make([]float64, len(before))
			for j := range mixed {
				mixed[j] = part*before[j] + (1-part)*after[j]
			}
			return mixed
		}
		o := filled(Options{Policy: Auto, Min: 19, Max: 999, Width: 0.01})
		seen, decided := follow(rng, o, p, at+6, 2)
		raised := at
		for raised < len(seen)-1 && seen[raised].Hertz <= seen[at].Hertz {
			raised++
		}
		if late := raised - at; late > 3 {
			t.Errorf("seed %d, %.2f of the window before: raised %d windows late", seed, part, late)
			for i := at - 1; i < len(seen); i++ {
				t.Log(i, seen[i].Hertz, decided[i])
			}
		}
	}
}

// TestFallsAndReturns has a program do two things in turns: of each the policy learns
// once, and then samples little.
func TestFallsAndReturns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	one := zipf(100)
	other := moved(one, 0.15, 0, 5)
	p := func(i int) []float64 {
		if i/20%2 == 1 {
			return other
		}
		return one
	}
	seen, decided := follow(rng, filled(Options{Policy: Auto, Min: 19, Max: 999}), p, 160, 2)
	found := map[Reason]int{}
	low := 0
	for i, d := range decided {
		found[d.Reason]++
		if i >= 40 && isChange(d) != (i%20 == 0) {
			t.Errorf("window %d: %v", i, d)
		}
		if seen[i].Hertz < 100 {
			low++
		}
	}
	if found[Changed] != 1 || found[Returned] != 6 {
		t.Errorf("%d changes and %d returns of 1 and 6", found[Changed], found[Returned])
	}
	if low < 100 {
		t.Errorf("%d of 160 windows are at a low rate", low)
	}
}

// TestWindowsThatDiffer has each window stand for itself where they do.
func TestWindowsThatDiffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	p := wandering(rng, 300, steady(zipf(100)...))
	_, decided := follow(rng, filled(Options{Policy: Auto, Min: 19, Max: 4999, Width: 0.01}), p, 60, 2)
	last := decided[len(decided)-1]
	if !strings.Contains(last.Why, "differ by themselves") || last.Hertz < 200 {
		t.Errorf("%v", last)
	}
}

// TestFewSamples has services that hardly run, or do one thing only.
func TestFewSamples(t *testing.T) {
	for _, policy := range Policies() {
		o := filled(Options{Policy: policy, Min: 19, Max: 99})
		for name, w := range map[string]Window{
			"nothing":      {Length: time.Second, Hertz: 99},
			"one sample":   {Length: time.Second, Hertz: 99, Functions: []Function{{"f", 1}}},
			"one function": {Length: time.Second, Hertz: 99, Functions: []Function{{"f", 5000}}},
			"no rate":      {Functions: []Function{{"f", 5000}, {"g", 10}}},
		} {
			p := New(o)
			for range 100 {
				if d := p.Next(w); !(d.Hertz >= o.Min && d.Hertz <= o.Max) || isChange(d) || d.Why == "" {
					t.Fatalf("%s, %s: %+v", policy, name, d)
				}
			}
		}
	}
}

// TestSleeps has a program sleep for minutes: it is the same when it wakes up.
func TestSleeps(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, policy := range Policies() {
		p := New(filled(Options{Policy: policy, Min: 19, Max: 499}))
		for i := range 120 {
			w := sample(rng, steady(zipf(50)...), i, 99, 2)
			if i/30%2 == 1 {
				w.Functions = nil
			}
			if d := p.Next(w); isChange(d) {
				t.Errorf("%s, window %d: %+v", policy, i, d)
			}
		}
	}
}

// TestNewFunctions has all functions be others, as after a deployment.
func TestNewFunctions(t *testing.T) {
	for _, policy := range Policies() {
		p := New(filled(Options{Policy: policy, Min: 19, Max: 499}))
		for i := range 20 {
			w := Window{Hertz: 99, Functions: []Function{{fmt.Sprint("f", i/10), 600}, {fmt.Sprint("g", i/10), 400}}}
			if d := p.Next(w); isChange(d) != (i == 10) {
				t.Errorf("%s, window %d: %+v", policy, i, d)
			}
		}
	}
}

// BenchmarkNext is a window of a thousand functions.
func BenchmarkNext(b *testing.B) {
	for _, policy := range Policies() {
		b.Run(policy, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(6, 6))
			var windows []Window
			for i := range 64 {
				windows = append(windows, sample(rng, steady(zipf(1000)...), i, 999, 2))
			}
			p := New(filled(Options{Policy: policy, Min: 19, Max: 999}))
			for i := 0; b.Loop(); i++ {
				p.Next(windows[i%len(windows)])
			}
		})
	}
}
