package server

import (
	"cmp"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// order has what an agent alone is ordered be another: others hear nothing. The fleet's
// lock is held.
func (a *attendant) order() {
	a.revision++
	a.rouse()
}

// tellRates has agents hear of rates that have moved: those that have targets of the
// services, since there may be a thousand others.
func (f *fleet) tellRates(moved []courseKey) {
	tasks := map[string][]*task{} // by service
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range moved {
		if t := f.profiles[key.task]; t != nil {
			tasks[key.service] = append(tasks[key.service], t)
		}
	}
	for _, a := range f.agents {
		if concerned(a.report, tasks) {
			a.order()
		}
	}
	f.announce(false)
}

// concerned tells whether an agent has a target of a service that a task means.
func concerned(r *atysv1.ReportRequest, tasks map[string][]*task) bool {
	return slices.ContainsFunc(r.GetTargets(), func(target *atysv1.Target) bool {
		labels := profile.Labels(target.GetLabels())
		return slices.ContainsFunc(tasks[labels[store.ServiceLabel]], func(t *task) bool { return t.Profile.Matches(labels) })
	})
}

// ratesFor lists the rates of those services of an agent's targets that a task means.
// The lock is held.
func (f *fleet) ratesFor(t *task, r *atysv1.ReportRequest) (all []*atysv1.ServiceRate) {
	if t.Profile.Adaptive == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, target := range r.GetTargets() {
		labels := profile.Labels(target.GetLabels())
		service := labels[store.ServiceLabel]
		if service == "" || seen[service] || !t.Profile.Matches(labels) {
			continue
		}
		seen[service] = true
		if rate, ok := f.rates.of(t.Profile.Name, service); ok {
			all = append(all, &atysv1.ServiceRate{Service: service, Rate: wire.Rate(rate)})
		}
	}
	slices.SortFunc(all, func(a, b *atysv1.ServiceRate) int { return strings.Compare(a.GetService(), b.GetService()) })
	return all
}

// rated lists the services of an agent's targets that have rates: where a report tells
// of others than before, it is to hear of theirs. The lock is held.
func (f *fleet) rated(r *atysv1.ReportRequest) (all []courseKey) {
	for _, t := range f.profiles {
		for _, rate := range f.ratesFor(t, r) {
			all = append(all, courseKey{t.Profile.Name, rate.GetService()})
		}
	}
	slices.SortFunc(all, func(a, b courseKey) int {
		return cmp.Or(strings.Compare(a.task, b.task), strings.Compare(a.service, b.service))
	})
	return all
}

// resuming tells whether agents are to keep the rates that they have: those of before
// the server started are looked for. The lock is held.
func (f *fleet) resuming() bool {
	return f.rates.resuming() && f.now().Sub(f.began) < holdOrders
}

// resumed has orders be given again.
func (f *fleet) resumed() {
	if !f.rates.resumed() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announce(true)
}
