package agent

import (
	"fmt"
	"maps"
	"time"

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
//	   -> told to the sampler (pace), and to who reads their windows (tell)

// rates are those of a recording's targets in one window.
type rates struct {
	all pace            // of all of them, where no policy decides, and of a sampler without any
	of  map[string]pace // by target; nil: no policy does
}

// pace is the rate of a target, and how many Hz were decided before the budget.
type pace struct {
	profile.Rate
	wanted float64
}

// adapts tells whether a policy decides on a recording's rates. What is no clock is
// not sampled by time.
func (r *recording) adapts() bool { return r.task.profile.Adaptive != nil && isClock(r.Event) }

// aims tells whether a recording is one of the processes that it is aimed at, since
// not all are meant, or not all at one rate: else it is one of the machine.
func (r *recording) aims() bool { return !r.task.everything() || r.adapts() }

// orderedRates are the rates that a task is ordered with, by service. They never
// leave what its profile allows.
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

// intended is the rate of a target, whatever the budget leaves of it.
func (r *recording) intended(target *present) profile.Rate {
	if s := r.soloists[target.key()]; s != nil {
		return s.rate
	}
	if ordered, ok := r.task.rates[target.labels[store.ServiceLabel]]; ok {
		return ordered
	}
	p := r.task.profile
	return profile.Rate{Hertz: p.Frequency, Policy: p.Adaptive.Policy, Reason: string(freq.Began), Why: "the highest, until something is decided"}
}

// allowed is what the budget leaves of a rate.
func (a *Agent) allowed(t *task, rate profile.Rate) pace {
	p := pace{rate, rate.Hertz}
	if p.Hertz = a.rateOf(t, rate.Hertz); p.Hertz < p.wanted {
		p.By, p.Why = profile.ByBudget, fmt.Sprintf("less than the %.4g Hz that were decided: the agent stays within its budget (%s)", p.wanted, a.budget())
	}
	return p
}

// setOut gives a recording that is about to begin the rates it begins with.
func (a *Agent) setOut(r *recording) {
	r.rates, r.next, r.soloists = rates{all: a.asked(r)}, nil, nil
	if r.adapts() {
		r.rates.of = map[string]pace{}
	}
	r.rate, r.wanted = r.rates.highest()
}

// asked is the rate that a profile names, or the highest that it does.
func (a *Agent) asked(r *recording) pace {
	return a.allowed(r.task, profile.Rate{Hertz: r.task.profile.Frequency})
}

// adopt has a recording sample as often as it may, from the edge on that comes now.
func (a *Agent) adopt(r *recording) {
	next := rates{all: a.asked(r)}
	var err error
	switch {
	case r.adapts():
		meant, _ := a.census.choose(r.task.means)
		a.keepSoloists(r, meant)
		next, err = a.pace(r, meant, nil)
	case next.all.Hertz == r.rate:
		return
	default:
		err = r.sampler.SetFrequency(next.all.Hertz)
	}
	if err != nil {
		a.log.Error("change the frequency", "task", r.Task, "hertz", next.all.Hertz, "error", err)
		return
	}
	r.next = &next
	r.rate, r.wanted = next.highest()
}

// welcome gives targets that have come the rates that they begin with. Others keep
// theirs until the edge.
func (a *Agent) welcome(r *recording, meant []*present) {
	coming := &r.rates
	if r.next != nil {
		coming = r.next
	}
	all, err := a.pace(r, meant, coming.of)
	if err != nil {
		a.log.Error("give new targets their rates", "task", r.Task, "error", err)
		return
	}
	*coming = all
	r.rate, r.wanted = all.highest()
}

// pace has a sampler give each target its rate: what it has, or else what it is to
// have. A target's processes that are new have it like the others; one that has ended
// is remembered for its last window.
func (a *Agent) pace(r *recording, meant []*present, has map[string]pace) (rates, error) {
	all, hertz := rates{a.asked(r), make(map[string]pace, len(meant))}, map[int]float64{}
	maps.Copy(all.of, has)
	for _, target := range meant {
		key := target.key()
		p, ok := all.of[key]
		if !ok {
			p = a.allowed(r.task, r.intended(target))
			all.of[key] = p
		}
		for _, pid := range target.pids {
			hertz[pid] = p.Hertz
		}
	}
	return all, r.sampler.SetRates(hertz)
}

// highest is the largest rate, which is what costs, and what it would be without a
// budget.
func (s rates) highest() (hertz, wanted float64) {
	if len(s.of) == 0 {
		return s.all.Hertz, s.all.wanted
	}
	for _, p := range s.of {
		hertz, wanted = max(hertz, p.Hertz), max(wanted, p.wanted)
	}
	return hertz, wanted
}

// turn begins the next window, and gives the rates of the one that has ended.
func (r *recording) turn() (ended rates) {
	ended = r.rates
	if r.next != nil {
		r.rates, r.next = *r.next, nil
	}
	return ended
}

// tell has windows of targets say how often they were sampled, and why. Another
// profiler has said by itself how often, which may not be what it was asked for. Of
// what was not aimed at, as a child that lived for less than a second, nobody knows.
func (r *recording) tell(parts []*profile.Window, at rates) {
	if !isClock(r.Event) {
		return
	}
	for _, part := range parts {
		p, itself := at.all, part.Rate.Hertz
		if at.of != nil {
			p = at.of[part.Target.String()]
		}
		part.Rate = p.Rate
		switch {
		case itself > 0:
			part.Rate.Hertz = itself
		case at.of != nil && p.Hertz > 0: // the sampler says what the fastest target has
			part.Types[0].Period = int64(float64(time.Second) / p.Hertz)
		}
	}
}
