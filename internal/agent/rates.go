package agent

import (
	"fmt"
	"maps"

	"atys.dev/atys/internal/agent/pipeline"
	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// How often targets are sampled, from the next edge of their window on:
//
//	ordered by the server for their service, or decided alone (alone.go): intended
//	   -> as much of it as the budget leaves: allowed
//	   -> told to the sampler (pace), and to who reads their windows (sampledAt)

// rates are those of a recording's targets in one window.
type rates struct {
	all pace            // of all of them, where no policy decides, and of a sampler without any
	of  map[string]pace // by target; nil: no policy does
}

// pace is the rate of a target, and how many Hz were decided before the budget was
// applied.
type pace struct {
	profile.Rate
	wanted float64
}

// adapts reports whether a policy decides on a recording's rates. Only time is sampled at
// a rate.
func (r *recording) adapts() bool { return r.task.profile.Adaptive != nil && r.Rate > 0 }

// aims reports whether a recording samples only the processes it is aimed at: its task
// does not select all targets, or they differ in rate.
func (r *recording) aims() bool { return !r.task.everything() || r.adapts() }

// orderedRates returns the rates that the server has ordered with a task, by service,
// within the range of its profile.
func orderedRates(m *atysv1.Task, p *spec.Profile) map[string]profile.Rate {
	if p.Adaptive == nil {
		return nil
	}
	ordered := make(map[string]profile.Rate, len(m.GetRates()))
	for _, s := range m.GetRates() {
		if rate := wire.RateOf(s.GetRate()); rate.Hertz > 0 {
			rate.Hertz, rate.By = min(max(rate.Hertz, p.Adaptive.Min), p.Adaptive.Max), profile.ByServer
			ordered[s.GetService()] = rate
		}
	}
	return ordered
}

// intended returns the rate of a target before the budget is applied.
func (r *recording) intended(target *targets.Present) profile.Rate {
	if s := r.soloists[target.Key()]; s != nil {
		return s.rate
	}
	if ordered, ok := r.task.rates[target.Labels[store.ServiceLabel]]; ok {
		return ordered
	}
	p := r.task.profile
	return profile.Rate{Hertz: p.Frequency, Policy: p.Adaptive.Policy, Reason: string(freq.Began), Why: "the highest, until something is decided"}
}

// allowed applies the budget to a rate.
func (s *spending) allowed(t *task, rate profile.Rate) pace {
	p := pace{rate, rate.Hertz}
	if p.Hertz = s.rateOf(t, rate.Hertz); p.Hertz < p.wanted {
		p.By, p.Why = profile.ByBudget, fmt.Sprintf("less than the %.4g Hz that were decided: the agent stays within its budget (%s)", p.wanted, s.budget())
	}
	return p
}

// setOut sets the rates with which a recording begins.
func (r *recording) setOut(s *spending) {
	r.rates, r.next, r.soloists = rates{all: r.asked(s)}, nil, nil
	if r.adapts() {
		r.rates.of = map[string]pace{}
	}
	r.rate, r.wanted = r.rates.highest()
}

// asked returns the rate that a profile names, or the highest of its range.
func (r *recording) asked(s *spending) pace {
	return s.allowed(r.task, profile.Rate{Hertz: r.task.profile.Frequency})
}

// adopt sets the rates from the edge on that comes now. meant are the targets, if their
// rates adapt.
func (r *recording) adopt(s *spending, meant []*targets.Present) error {
	next := rates{all: r.asked(s)}
	var err error
	switch {
	case r.instrument.Paced() == nil:
		return nil
	case r.adapts():
		next, err = r.pace(s, meant, nil)
	case next.all.Hertz == r.rate:
		return nil
	default:
		err = r.instrument.Paced().SetFrequency(next.all.Hertz)
	}
	if err != nil {
		return fmt.Errorf("%g Hz: %w", next.all.Hertz, err)
	}
	r.next = &next
	r.rate, r.wanted = next.highest()
	return nil
}

// welcome sets the rates of new targets. Others keep theirs until the edge.
func (r *recording) welcome(s *spending, meant []*targets.Present) error {
	coming := &r.rates
	if r.next != nil {
		coming = r.next
	}
	all, err := r.pace(s, meant, coming.of)
	if err != nil {
		return err
	}
	*coming = all
	r.rate, r.wanted = all.highest()
	return nil
}

// pace tells the sampler the rate of each target: what it has, or else what is intended.
// New processes of a target get its rate. Targets that have ended are remembered for their
// last window.
func (r *recording) pace(s *spending, meant []*targets.Present, has map[string]pace) (rates, error) {
	all, hertz := rates{r.asked(s), make(map[string]pace, len(meant))}, map[int]float64{}
	maps.Copy(all.of, has)
	for _, target := range meant {
		key := target.Key()
		p, ok := all.of[key]
		if !ok {
			p = s.allowed(r.task, r.intended(target))
			all.of[key] = p
		}
		for _, pid := range target.PIDs {
			hertz[pid] = p.Hertz
		}
	}
	if r.instrument.Paced() == nil {
		return all, nil
	}
	return all, r.instrument.Paced().SetRates(hertz)
}

// highest returns the largest rate, which determines the cost, and the largest before the
// budget was applied.
func (s rates) highest() (hertz, wanted float64) {
	if len(s.of) == 0 {
		return s.all.Hertz, s.all.wanted
	}
	for _, p := range s.of {
		hertz, wanted = max(hertz, p.Hertz), max(wanted, p.wanted)
	}
	return hertz, wanted
}

// swap begins the rates of the next window, and returns those of the last.
func (r *recording) swap() (ended rates) {
	ended = r.rates
	if r.next != nil {
		r.rates, r.next = *r.next, nil
	}
	return ended
}

// sampledAt returns what windows say about their rates; nil: nothing, since time was not
// sampled.
func (r *recording) sampledAt(at rates) *pipeline.Rates {
	if r.Rate == 0 {
		return nil
	}
	told := &pipeline.Rates{All: at.all.Rate}
	if at.of != nil {
		told.Of = make(map[string]profile.Rate, len(at.of))
		for key, p := range at.of {
			told.Of[key] = p.Rate
		}
	}
	return told
}
