package fleet

import (
	"cmp"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// orders returns the orders of an agent that knows a revision of them, and a channel
// that is closed when they change.
func (f *Fleet) orders(node string, known uint64) (orders *atysv1.Orders, changed <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	orders, changed = &atysv1.Orders{Revision: f.revision}, f.changed
	a := f.agents.of[node]
	if a != nil {
		orders.Revision += a.revision // neither ever decreases while it is connected
		orders.ShipTo, changed = f.relays.address(a.labels), a.changed
	}
	if orders.Unchanged = orders.GetRevision() == known; orders.GetUnchanged() {
		return orders, changed, f.ended
	}
	if f.profiles.undecided() || f.rates.Resuming() { // agents keep the orders that they have
		orders.Revision, orders.Unchanged = known, true
		return orders, changed, f.ended
	}
	for _, t := range f.profiles.sorted() {
		if !t.Until.IsZero() && f.now().Sub(t.Until) > lateAgents {
			continue
		}
		text, err := t.text()
		if err != nil {
			f.log.Error("write a profile", "profile", t.Profile.Name, "error", err)
			continue
		}
		m := &atysv1.Task{Id: t.ID, Profile: text, Limited: t.Profile.Instances > 0, Eligible: uint32(t.Eligible), Recorded: uint32(len(chosenKeys(t.Chosen)))}
		if !t.Until.IsZero() {
			m.UntilUnixNano = t.Until.UnixNano()
		}
		for _, labels := range t.Chosen[node] {
			m.Chosen = append(m.Chosen, &atysv1.Series{Labels: labels})
		}
		if a != nil {
			m.Rates = f.profiles.ratesFor(t, a.report)
		}
		orders.Tasks = append(orders.Tasks, m)
	}
	return orders, changed, f.ended
}

// RatesMoved sends new orders to agents with targets of services whose rates have
// changed, by profile. There may be a thousand other agents, which are not woken.
func (f *Fleet) RatesMoved(services map[string][]string) {
	tasks := map[string][]*task{} // by service
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, moved := range services {
		for _, service := range moved {
			if t := f.profiles.of[name]; t != nil {
				tasks[service] = append(tasks[service], t)
			}
		}
	}
	for _, a := range f.agents.of {
		if concerned(a.report, tasks) {
			a.order()
		}
	}
	f.notify(false)
}

// concerned reports whether an agent has a target of a service that a task selects.
func concerned(r *atysv1.ReportRequest, tasks map[string][]*task) bool {
	return slices.ContainsFunc(r.GetTargets(), func(target *atysv1.Target) bool {
		labels := profile.Labels(target.GetLabels())
		return slices.ContainsFunc(tasks[labels[store.ServiceLabel]], func(t *task) bool { return t.Profile.Matches(labels) })
	})
}

// ratesFor lists the rates of those services of an agent's targets that a task selects.
func (p *profiles) ratesFor(t *task, r *atysv1.ReportRequest) (all []*atysv1.ServiceRate) {
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
		if rate, ok := p.rates.Of(t.Profile.Name, service); ok {
			rate.Why = "" // windows would repeat it: it is recorded
			all = append(all, &atysv1.ServiceRate{Service: service, Rate: wire.Rate(rate)})
		}
	}
	slices.SortFunc(all, func(a, b *atysv1.ServiceRate) int { return strings.Compare(a.GetService(), b.GetService()) })
	return all
}

// rated is a service that a policy has decided a rate of, for a task.
type rated struct{ task, service string }

// rated lists the services of an agent's targets that have rates. An agent that reports
// others than before is sent their rates.
func (p *profiles) rated(r *atysv1.ReportRequest) (all []rated) {
	for _, t := range p.of {
		for _, rate := range p.ratesFor(t, r) {
			all = append(all, rated{t.Profile.Name, rate.GetService()})
		}
	}
	slices.SortFunc(all, func(a, b rated) int {
		return cmp.Or(strings.Compare(a.task, b.task), strings.Compare(a.service, b.service))
	})
	return all
}

// RatesResumed sends orders to all agents: the rates of before a restart are known.
func (f *Fleet) RatesResumed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify(true)
}
