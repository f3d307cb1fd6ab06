package agent

import (
	"maps"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
)

// spending accounts for what this agent uses, and holds what the governor decided. Only
// conduct uses it.
type spending struct {
	options  *Options
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

	shipped budget.Shipped // since then

	decisions []budget.Decision      // the latest, the oldest of them first
	taken     map[budget.Knob]uint64 // decisions since the agent began
	stops     int                    // of recordings
}

// keepDecisions is how many decisions are reported.
const keepDecisions = 32

// cores returns the usage before the last decision, in cores.
func (s *spending) cores() float64 {
	l := budget.Load{Spent: s.lately}
	return l.Cores()
}

// note keeps decisions for reports.
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

// measure adds what was used since the last call.
func (s *spending) measure(tasks []*task) {
	u := s.options.Usage()
	s.spend(u.CPU - s.usage.CPU)
	s.options.Account.Charge(cputime.Sampling, u.Tools-s.usage.Tools)
	s.usage = u
	for _, t := range tasks {
		for _, r := range t.recordings {
			s.account(r)
		}
	}
	s.causes = s.byCause()
}

// byCause divides usage by cause. CPU time of the process that no cause was charged with
// goes to Other.
func (s *spending) byCause() map[cputime.Cause]time.Duration {
	all := s.options.Account.Spent()
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

// account adds what a recording's samples have cost since the last call.
func (s *spending) account(r *recording) {
	if r.instrument.Sampler() == nil {
		return
	}
	bpf, interrupts, err := r.instrument.Spent()
	if err != nil {
		s.options.Log.Debug("ask what samples cost", "task", r.Task, "error", err)
		return
	}
	fresh := profile.Cost{BPF: bpf - r.spent.BPF, Interrupt: interrupts - r.spent.Interrupt}
	r.spent = profile.Cost{BPF: bpf, Interrupt: interrupts}
	r.cost.Add(fresh)
	s.total.Add(fresh)
}

// charge returns the cost of a window that ends now: that of its samples, and a share of
// the process's CPU time in proportion to its rate. The rest stays for other windows, now
// or later, so that all windows together carry all costs.
func (s *spending) charge(r *recording, tasks []*task) profile.Cost {
	cpu := s.options.Usage().CPU
	s.spend(cpu - s.usage.CPU)
	s.usage.CPU = max(cpu, s.usage.CPU)
	s.account(r)
	all := r.rate
	for _, t := range tasks {
		for _, o := range t.recordings {
			if o != r && o.instrument.Sampler() != nil {
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

// refund takes back a cost that no window carries.
func (s *spending) refund(r *recording, cost profile.Cost) {
	s.pool += cost.User
	cost.User = 0
	r.cost.Add(cost)
}

// load returns what was used since the last decision, and what rates were asked for.
func (s *spending) load(tasks []*task, now time.Time) budget.Load {
	l := budget.Load{Spent: map[cputime.Cause]float64{}, Memory: s.usage.Memory, Shipped: s.shipped}
	l.Asks, l.Most = asks(tasks)
	l.For = now.Sub(s.since)
	if elapsed := l.For.Seconds(); elapsed > 0 {
		for c, spent := range s.causes {
			l.Spent[c] = (spent - s.before[c]).Seconds() / elapsed
		}
	}
	return l
}

// restart begins the interval of the next decision.
func (s *spending) restart(from time.Time) {
	s.since, s.before, s.shipped = from, maps.Clone(s.causes), budget.Shipped{}
}
