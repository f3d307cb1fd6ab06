package agent

import (
	"maps"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
)

// spending is what this agent takes of its machine, and what is decided by it. It
// is conduct's alone.
type spending struct {
	governor budget.Governor
	usage    Usage
	total    profile.Cost                    // since the agent began
	pool     time.Duration                   // of its CPU time, what no window tells of yet
	causes   map[cputime.Cause]time.Duration // since the agent began

	settled bool // what is due to the start is over: limits hold

	look   time.Time                       // when it is looked at next
	since  time.Time                       // from when on the next decision counts,
	before map[cputime.Cause]time.Duration // and causes then
	lately map[cputime.Cause]float64       // of a core, before the last decision

	decisions []budget.Decision      // the latest, the oldest of them first
	taken     map[budget.Knob]uint64 // decisions since the agent began
	stops     int                    // of recordings
}

// keepDecisions is how many are told of.
const keepDecisions = 32

// cores is what was taken of a core before the last decision.
func (s *spending) cores() float64 {
	l := budget.Load{Spent: s.lately}
	return l.Cores()
}

// note keeps decisions.
func (s *spending) note(all []budget.Decision) {
	if s.taken == nil {
		s.taken = map[budget.Knob]uint64{}
	}
	for _, d := range all {
		s.taken[d.Knob]++
	}
	s.decisions = append(s.decisions, all...)
	s.decisions = s.decisions[max(len(s.decisions)-keepDecisions, 0):]
}

// records encodes the decisions that were noted last.
func (s *spending) records(all []budget.Decision, series profile.Labels, run profile.Run) (records []profile.Record) {
	sequence := uint64(0)
	for _, n := range s.taken {
		sequence += n
	}
	for i := range all {
		if r, err := all[i].Record(series, run, sequence-uint64(len(all)-i-1)); err == nil { // else a number is none that JSON has
			records = append(records, r)
		}
	}
	return records
}

// measure adds what was used since it was called last.
func (a *Agent) measure() {
	s := &a.spending
	u := a.options.Usage()
	s.spend(u.CPU - s.usage.CPU)
	a.options.Account.Charge(cputime.Sampling, u.Tools-s.usage.Tools)
	s.usage = u
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			a.account(r)
		}
	}
	s.causes = a.byCause()
}

// byCause is what each cause has taken. What of the process's own time nobody has
// claimed is of others.
func (a *Agent) byCause() map[cputime.Cause]time.Duration {
	s := &a.spending
	all := a.options.Account.Spent()
	own := time.Duration(0)
	for _, d := range all {
		own += d
	}
	all[cputime.Sampling] += s.total.BPF + s.total.Interrupt
	all[cputime.Other] += max(s.usage.CPU-own, 0)
	for c, before := range s.causes { // other clocks than that of the process: what was told once stays
		all[c] = max(all[c], before)
	}
	return all
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

// load is what was taken since the last decision, and what is asked for.
func (a *Agent) load(now time.Time) budget.Load {
	s := &a.spending
	l := budget.Load{Spent: map[cputime.Cause]float64{}, Memory: s.usage.Memory}
	l.Asks, l.Most = a.asks()
	l.For = now.Sub(s.since)
	if elapsed := l.For.Seconds(); elapsed > 0 {
		for c, spent := range s.causes {
			l.Spent[c] = (spent - s.before[c]).Seconds() / elapsed
		}
	}
	return l
}

// restart has the next decision count from a time on.
func (s *spending) restart(from time.Time) {
	s.since, s.before = from, maps.Clone(s.causes)
}
