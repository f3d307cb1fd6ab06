package agent

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
)

// spending is what this agent takes of its machine, and what is decided by it. It
// is conduct's alone.
type spending struct {
	governor freq.Governor
	usage    Usage
	total    profile.Cost  // since the agent began
	pool     time.Duration // of its CPU time, what no window tells of yet

	look   time.Time    // when it is looked at next
	since  time.Time    // from when on the next decision counts,
	before profile.Cost // and the total then
	cores  float64      // taken before the last decision
	excess bool         // too much, with nothing left to lower
	stops  int          // of recordings
}

// startUp is left out when the agent is judged: the first tables cost what they
// cost, whatever the rates.
const startUp = 30 * time.Second

// measure adds what was used since it was called last.
func (a *Agent) measure() {
	s := &a.spending
	u := a.options.Usage()
	s.spend(u.CPU - s.usage.CPU)
	s.usage = u
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			a.account(r)
		}
	}
}

// spend adds CPU time of the process itself.
func (s *spending) spend(d time.Duration) {
	s.total.User += max(d, 0)
	s.pool += max(d, 0)
}

// account adds what a recording's samples have cost since they were counted last.
func (a *Agent) account(r *recording) {
	if r.sampler == nil {
		return
	}
	bpf, interrupts, err := r.sampler.Spent()
	if err != nil {
		a.log.Debug("ask what samples cost", "task", r.Task, "error", err)
		return
	}
	fresh := profile.Cost{BPF: bpf - r.spent.BPF, Interrupt: interrupts - r.spent.Interrupt}
	r.spent = profile.Cost{BPF: bpf, Interrupt: interrupts}
	r.cost.Add(fresh)
	a.spending.total.Add(fresh)
}

// charge is what a window that ends now has cost: its samples, and its part of
// the process's own time, by how often it samples. What is left is for the others,
// now or next time, so that all windows together tell of all.
func (a *Agent) charge(r *recording) profile.Cost {
	s := &a.spending
	cpu := a.options.Usage().CPU
	s.spend(cpu - s.usage.CPU)
	s.usage.CPU = max(cpu, s.usage.CPU)
	a.account(r)
	all := 0.0
	for _, t := range a.tasks {
		for _, o := range t.recordings {
			if o.sampler != nil {
				all += o.rate
			}
		}
	}
	cost := r.cost
	cost.User = s.pool
	if all > r.rate {
		cost.User = time.Duration(float64(s.pool) * r.rate / all)
	}
	s.pool -= cost.User
	r.cost = profile.Cost{}
	return cost
}

// apportion has parts of a window tell what each has cost: as much as it has of
// the samples.
func apportion(cost profile.Cost, parts []*profile.Window) {
	if len(parts) == 0 {
		return
	}
	counts, all, largest := make([]int64, len(parts)), int64(0), 0
	for i, p := range parts {
		counts[i] = p.N()
		if all += counts[i]; counts[i] > counts[largest] {
			largest = i
		}
	}
	rest := cost
	for i, p := range parts {
		if i == largest {
			continue
		}
		share := func(d time.Duration) time.Duration {
			return time.Duration(float64(d) * float64(counts[i]) / float64(max(all, 1)))
		}
		p.Cost = profile.Cost{User: share(cost.User), BPF: share(cost.BPF), Interrupt: share(cost.Interrupt)}
		rest.User, rest.BPF, rest.Interrupt = rest.User-p.Cost.User, rest.BPF-p.Cost.BPF, rest.Interrupt-p.Cost.Interrupt
	}
	parts[largest].Cost = rest
}

// govern looks at what the agent takes, and decides whether rates stay. It comes
// before the windows of this edge are cut, so that what it decides holds from here.
func (a *Agent) govern(now time.Time) {
	s := &a.spending
	s.look = now.Add(untilEdge(a.options.Now(), freq.Soon))
	a.measure()
	a.life.note(s.usage)
	if s.since.IsZero() {
		s.since, s.before = now.Add(startUp), s.total
	}
	if a.pending() || now.Before(s.since) { // rates that were decided on do not hold yet
		s.since, s.before = laterOf(now, s.since), s.total
		return
	}
	elapsed := now.Sub(s.since)
	spent := s.total
	l := freq.Load{Memory: s.usage.Memory}
	l.Wanted, l.Most = a.wanted()
	if elapsed > 0 {
		l.Cores = (spent.Total() - s.before.Total()).Seconds() / elapsed.Seconds()
	}
	if !s.governor.Budget.Due(elapsed, l) {
		return
	}
	s.since, s.before, s.cores = now, spent, l.Cores
	a.carryOut(s.governor.Decide(l), l)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pending tells whether a recording does not have its rate yet.
func (a *Agent) pending() bool {
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler != nil && r.rate != a.spending.governor.Rate(r.wanted) {
				return true
			}
		}
	}
	return false
}

// wanted lists the rates that recordings in progress would have without a budget, and
// the highest that one of them may have at the next edge.
func (a *Agent) wanted() (all []float64, most float64) {
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler == nil {
				continue
			}
			if all = append(all, r.wanted); r.adapts() {
				most = max(most, t.profile.Frequency)
			}
		}
	}
	return all, most
}

// carryOut does what was decided, and says so.
func (a *Agent) carryOut(d freq.Verdict, l freq.Load) {
	s := &a.spending
	took := []any{"for", string(d.For), "cores", l.Cores, "budget", s.governor.Budget.Cores, "bytes", l.Memory, "most", s.governor.Budget.Memory}
	s.excess = d.Stop
	if d.Shed {
		a.log.Warn("give up what is kept in memory: over the budget", took...)
		if a.options.Shed != nil {
			a.options.Shed()
		}
		a.shipper.shed()
		debug.FreeOSMemory()
	}
	switch {
	case d.Lowered:
		a.log.Warn("sample less: over the budget", append(took, "hertz", s.governor.Cap, "short", s.governor.Short)...)
	case d.Raised:
		a.log.Info("sample more again: there is room", append(took, "hertz", s.governor.Cap)...)
	case d.Stop:
		a.stopNewest(d, took)
	}
	if d.Lowered || d.Raised {
		for _, t := range a.tasks {
			for _, r := range t.recordings {
				if r.sampler != nil && time.Until(r.edge) > freq.Soon { // too long to wait for
					a.cut(r)
				}
			}
		}
	}
}

// stopNewest ends the task that came last, of those that are for a while.
func (a *Agent) stopNewest(d freq.Verdict, took []any) {
	var newest *task
	for _, t := range a.tasks {
		if !t.over && !t.end.IsZero() && t.records() && (newest == nil || t.came.After(newest.came)) {
			newest = t
		}
	}
	if newest == nil {
		a.log.Warn("over the budget, with nothing left to lower", took...)
		return
	}
	a.log.Warn("end a recording: over the budget at the lowest rates", append(took, "task", newest.profile.Name)...)
	a.end(newest)
	newest.phase = phaseFailed
	newest.message = fmt.Sprintf("ended early: at the lowest rates the agent is still over its budget of %s (%s)", d.For, a.budget())
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
	return fmt.Sprintf("samples at %.3g Hz in place of %.4g: the agent keeps within its budget (%s)", r.rate, r.wanted, a.budget())
}

// state says what is done to keep within the budget; "" is nothing.
func (a *Agent) state() string {
	s := &a.spending
	switch g := &s.governor; {
	case s.excess:
		return fmt.Sprintf("over the budget (%s) with nothing left to lower", a.budget())
	case g.Cap > 0 && g.Short:
		return fmt.Sprintf("at most %.3g Hz, and short windows, for want of %s", g.Cap, g.For)
	case g.Cap > 0:
		return fmt.Sprintf("at most %.3g Hz for want of %s", g.Cap, g.For)
	case g.Short:
		return fmt.Sprintf("short windows for want of %s", g.For)
	}
	return ""
}
