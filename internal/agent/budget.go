package agent

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/agent/pipeline"
	state "atys.dev/atys/internal/agent/recording"
	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/spec"
)

// startUp is not part of any decision: building the first tables costs the same at any
// rate.
const startUp = 30 * time.Second

// govern compares usage with the budget and decides on limits. It runs before the windows
// of this edge are cut, so that its decisions apply from here on.
func (c *conductor) govern(now time.Time) {
	s := &c.spending
	s.look = now.Add(untilEdge(c.options.Now(), budget.Soon))
	s.measure(c.tasks)
	c.life.noteSoon(s.usage, open(c.tasks))
	if s.since.IsZero() {
		s.restart(now.Add(startUp))
	}
	if s.pending(c.tasks) || now.Before(s.since) { // rates that were decided on have not been adopted yet
		s.restart(laterOf(now, s.since))
		return
	}
	if !s.settled {
		s.settled = true
		s.limit()
	}
	l := s.load(c.tasks, now)
	if !s.governor.Due(now.Sub(s.since), l) {
		return
	}
	s.lately = l.Spent
	s.restart(now)
	c.carryOut(s.governor.Decide(l, c.options.Now()))
}

// open counts windows of tiny targets that go on.
func open(tasks []*task) (n int) {
	for _, t := range tasks {
		for _, r := range t.recordings {
			n += r.open
		}
	}
	return n
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ask returns a rate that was asked for, as the governor needs it.
func (t *task) ask(hertz float64) budget.Ask {
	return budget.Ask{Hertz: hertz, Least: cmp.Or(t.profile.MinFrequency, spec.DefaultMinFrequency)}
}

// rateOf applies the budget to a rate that was asked for.
func (s *spending) rateOf(t *task, hertz float64) float64 {
	return t.ask(hertz).Rate(s.governor.Cap)
}

// pending reports whether a recording has not adopted its rate yet.
func (s *spending) pending(tasks []*task) bool {
	for _, t := range tasks {
		for _, r := range t.recordings {
			if r.instrument.Sampler() != nil && r.instrument.Paced() != nil && r.rate != s.rateOf(t, r.wanted) {
				return true
			}
		}
	}
	return false
}

// asks lists the rates that open recordings would have without a budget, and the highest
// that any of them may have from the next edge on.
func asks(tasks []*task) (all []budget.Ask, most float64) {
	for _, t := range tasks {
		for _, r := range t.recordings {
			if r.instrument.Sampler() == nil || r.instrument.Paced() == nil { // without a rate
				continue
			}
			if all = append(all, t.ask(r.wanted)); r.adapts() {
				most = max(most, t.profile.Frequency)
			}
		}
	}
	return all, most
}

// dropCaches drops what can be read again. It may wait for names that are being read.
func dropCaches(o *Options, s *shipper) {
	if o.Shed != nil {
		o.Shed()
	}
	s.shed()
	debug.FreeOSMemory()
}

// carryOut carries out decisions and logs them.
func (c *conductor) carryOut(all []budget.Decision) {
	s := &c.spending
	s.note(all)
	if records := s.records(all, c.census.Machine(), c.run); len(records) > 0 {
		c.closing.Go(func() { c.records.Add(records...) }) // a disk may be waited for
	}
	rates := false
	for _, d := range all {
		log := c.log.Warn
		if d.Relaxes() {
			log = c.log.Info
		}
		log("budget", "decision", d.Setting(), "cause", d.Cause, "why", d.Why)
		switch d.Knob {
		case budget.Caches:
			c.closing.Go(func() { dropCaches(c.options, c.shipper) })
		case budget.Frequency, budget.Windows:
			rates = true
		case budget.Collector:
			c.own.collect(int(d.To))
		}
	}
	if len(all) > 0 {
		s.limit()
		c.wakeReport()
	}
	if s.governor.Stop {
		c.stopNewest()
	}
	if !rates {
		return
	}
	for _, t := range c.tasks {
		for _, r := range t.recordings {
			if r.instrument.State() == state.Running && time.Until(r.edge) > budget.Soon { // too long to wait
				c.turn(r)
			}
		}
	}
}

// limit passes on the limits of tables and naming.
func (s *spending) limit() {
	if s.options.Limit != nil {
		s.options.Limit(s.governor.Held())
	}
}

// stopNewest ends the newest task of limited duration: memory has run out, and an agent
// that is killed records nothing.
func (c *conductor) stopNewest() {
	var newest *task
	for _, t := range c.tasks {
		if !t.over && !t.end.IsZero() && t.records() && (newest == nil || t.came.After(newest.came)) {
			newest = t
		}
	}
	if newest == nil {
		c.log.Warn("more memory is held than the budget allows, with nothing left to restrain", "bytes", c.spending.usage.Memory, "budget", c.spending.budget())
		return
	}
	c.log.Warn("end a recording: over the budget of memory at the least rates", "task", newest.profile.Name, "bytes", c.spending.usage.Memory)
	c.end(newest)
	newest.phase = phaseFailed
	newest.message = fmt.Sprintf("ended early: at the least rates the agent is still over its budget of memory (%s)", c.spending.budget())
	c.spending.stops++
	c.wakeReport()
}

// budget describes the budget.
func (s *spending) budget() string { return words(s.governor.Budget) }

func words(b budget.Budget) string {
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

// window returns how long a task's windows are now.
func (s *spending) window(t *task) time.Duration {
	if s.governor.Short {
		return max(t.profile.Window/2, time.Second)
	}
	return t.profile.Window
}

// commands returns what becomes of the short-lived commands of a recording. Only a recording that
// keeps the samples of all targets, at one rate, may merge them: tasks that select targets and
// rates that adapt go by the labels that merging would remove.
func (s *spending) commands(r *recording, all bool) targets.Commands {
	if !all || r.aims() {
		return targets.Commands{}
	}
	return targets.Commands{Within: s.window(r.task), Together: s.governor.Together}
}

// long returns how long windows of the recording's tiny targets may be. They stay as they are if
// a policy decides on rates window by window, or if another profiler cuts them.
func (s *spending) long(r *recording) pipeline.Long {
	l := pipeline.Long{Every: s.window(r.task), Times: budget.Longest}
	if r.adapts() || r.instrument.Delayed() || !l.Longer() {
		return pipeline.Long{}
	}
	l.Times = s.governor.Long
	return l
}

// shortest returns the length of the shortest windows that are being filled, or wait to be
// shipped; 0: none are.
func (s *spending) shortest(tasks []*task) (shortest time.Duration) {
	for _, t := range tasks {
		for _, r := range t.recordings {
			if r.instrument.Sampler() == nil && t.phase != phaseEnding {
				continue
			}
			if length := s.window(t); shortest == 0 || length < shortest {
				shortest = length
			}
		}
	}
	return shortest
}

// restraint explains why a recording samples less often than it was asked to.
func (s *spending) restraint(r *recording) string {
	if r.instrument.Sampler() == nil || r.rate >= r.wanted {
		return ""
	}
	return fmt.Sprintf("samples at %.3g Hz instead of %.4g: the agent stays within its budget (%s)", r.rate, r.wanted, s.budget())
}

// state describes what is limited to stay within the budget; "": nothing.
func (s *spending) state() string {
	g := &s.governor
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
	add(g.Together, "short-lived commands as one target")
	add(g.Long > 0, "windows of tiny targets up to %d times as long", g.Long)
	restrained := strings.Join(parts, ", ")
	if g.Exceeded() {
		return strings.TrimSuffix(fmt.Sprintf("over the budget (%s) with nothing left to restrain; %s", s.budget(), restrained), "; ")
	}
	return restrained
}
