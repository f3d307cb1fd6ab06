package agent

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/spec"
)

// startUp is left out when the agent is judged: the first tables cost what they
// cost, whatever the rates.
const startUp = 30 * time.Second

// govern looks at what the agent takes, and decides what it may. It comes before the
// windows of this edge are cut, so that what it decides holds from here.
func (a *Agent) govern(now time.Time) {
	s := &a.spending
	s.look = now.Add(untilEdge(a.options.Now(), budget.Soon))
	a.measure()
	a.life.note(s.usage)
	if s.since.IsZero() {
		s.restart(now.Add(startUp))
	}
	if a.pending() || now.Before(s.since) { // rates that were decided on do not hold yet
		s.restart(laterOf(now, s.since))
		return
	}
	if !s.settled {
		s.settled = true
		a.limit()
	}
	l := a.load(now)
	if !s.governor.Due(now.Sub(s.since), l) {
		return
	}
	s.lately = l.Spent
	s.restart(now)
	a.carryOut(s.governor.Decide(l, a.options.Now()))
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ask is the rate that a task's recordings were asked for, or one of their targets was.
func (t *task) ask(hertz float64) budget.Ask {
	return budget.Ask{Hertz: hertz, Least: cmp.Or(t.profile.MinFrequency, spec.DefaultMinFrequency)}
}

// rateOf is what the budget leaves of a rate that was asked for.
func (a *Agent) rateOf(t *task, hertz float64) float64 {
	return t.ask(hertz).Rate(a.spending.governor.Cap)
}

// pending tells whether a recording does not have its rate yet.
func (a *Agent) pending() bool {
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler != nil && r.rate != a.rateOf(t, r.wanted) {
				return true
			}
		}
	}
	return false
}

// asks lists the rates that recordings in progress would have without a budget, and
// the highest that one of them may have at the next edge.
func (a *Agent) asks() (all []budget.Ask, most float64) {
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler == nil {
				continue
			}
			if all = append(all, t.ask(r.wanted)); r.adapts() {
				most = max(most, t.profile.Frequency)
			}
		}
	}
	return all, most
}

// carryOut does what was decided, and says so.
func (a *Agent) carryOut(all []budget.Decision) {
	s := &a.spending
	s.note(all)
	a.records.Add(s.records(all, a.census.machine(), a.run)...)
	rates := false
	for _, d := range all {
		log := a.log.Warn
		if d.Relaxes() {
			log = a.log.Info
		}
		log("budget", "decision", d.Setting(), "cause", d.Cause, "why", d.Why)
		switch d.Knob {
		case budget.Caches:
			a.dropCaches()
		case budget.Frequency, budget.Windows:
			rates = true
		case budget.Collector:
			a.own.collect(int(d.To))
		}
	}
	if len(all) > 0 {
		a.limit()
		a.wakeReport()
	}
	if s.governor.Stop {
		a.stopNewest()
	}
	if !rates {
		return
	}
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler != nil && time.Until(r.edge) > budget.Soon { // too long to wait for
				a.cut(r)
			}
		}
	}
}

// limit has who records and names keep within what holds now.
func (a *Agent) limit() {
	if a.options.Limit != nil {
		a.options.Limit(a.spending.governor.Held())
	}
}

// dropCaches gives up what is kept in memory and can be had again.
func (a *Agent) dropCaches() {
	if a.options.Shed != nil {
		a.options.Shed()
	}
	a.shipper.shed()
	debug.FreeOSMemory()
}

// stopNewest ends the task that came last, of those that are for a while: memory has
// run out, and an agent that is killed records nothing at all.
func (a *Agent) stopNewest() {
	var newest *task
	for _, t := range a.tasks {
		if !t.over && !t.end.IsZero() && t.records() && (newest == nil || t.came.After(newest.came)) {
			newest = t
		}
	}
	if newest == nil {
		a.log.Warn("more memory is held than the budget allows, with nothing left to restrain", "bytes", a.spending.usage.Memory, "budget", a.budget())
		return
	}
	a.log.Warn("end a recording: over the budget of memory at the least rates", "task", newest.profile.Name, "bytes", a.spending.usage.Memory)
	a.end(newest)
	newest.phase = phaseFailed
	newest.message = fmt.Sprintf("ended early: at the least rates the agent is still over its budget of memory (%s)", a.budget())
	a.spending.stops++
	a.wakeReport()
}

// budget is what may be taken, in words.
func (a *Agent) budget() string {
	b := a.spending.governor.Budget
	var parts []string
	if b.Cores > 0 {
		parts = append(parts, fmt.Sprintf("%.3g%% of a core", 100*b.Cores))
	}
	if b.Memory > 0 {
		parts = append(parts, megabytes(b.Memory))
	}
	return strings.Join(parts, ", ")
}

func megabytes(bytes int64) string {
	return fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
}

// window is how long a task's windows are now.
func (a *Agent) window(t *task) time.Duration {
	if a.spending.governor.Short {
		return max(t.profile.Window/2, time.Second)
	}
	return t.profile.Window
}

// shortest is how long the shortest windows are that are cut now, or have been and
// are waited for; 0: none are.
func (a *Agent) shortest() (shortest time.Duration) {
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler == nil && t.phase != phaseEnding {
				continue
			}
			if length := a.window(t); shortest == 0 || length < shortest {
				shortest = length
			}
		}
	}
	return shortest
}

// restraint says of a recording that samples less than it was asked to, why.
func (a *Agent) restraint(r *recording) string {
	if r.sampler == nil || r.rate >= r.wanted {
		return ""
	}
	return fmt.Sprintf("samples at %.3g Hz instead of %.4g: the agent stays within its budget (%s)", r.rate, r.wanted, a.budget())
}

// state says what is done to stay within the budget; "" is nothing.
func (a *Agent) state() string {
	g := &a.spending.governor
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(g.Cap > 0, "at most %.3g Hz for want of %s", g.Cap, cmp.Or(g.For, budget.CPU))
	add(g.Short, "short windows for want of %s", g.For)
	add(g.Tables > 0, "tables limited to %.2g%% of a core", 100*g.Tables)
	add(g.Naming > 0, "naming limited to %.2g%% of a core", 100*g.Naming)
	add(g.Events > 0, "process events read every %v", g.Events)
	add(g.Heap > 0, "garbage collected less often")
	restrained := strings.Join(parts, ", ")
	if g.Exceeded() {
		return strings.TrimSuffix(fmt.Sprintf("over the budget (%s) with nothing left to restrain; %s", a.budget(), restrained), "; ")
	}
	return restrained
}
