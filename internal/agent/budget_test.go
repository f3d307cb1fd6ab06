package agent

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
)

// spender is an agent at whose hand nothing goes on by itself: time, and what it
// has used, are told.
type spender struct {
	*Agent
	usage      Usage
	now        time.Time
	studio     *studio
	account    *cputime.Account
	limits     budget.Limits
	tablesWait bool
}

func newSpender(t *testing.T, b budget.Budget, tasks ...*task) *spender {
	t.Helper()
	s := &spender{now: time.Now(), studio: &studio{open: map[*take]bool{}}, account: cputime.New()}
	bench := newBench(t, 11)
	s.Agent = still(t, Options{Node: "n", Spool: bench.spool, Intake: bench.server, Record: s.studio.record, Budget: b,
		Usage: func() Usage { return s.usage }, Account: s.account, Limit: func(l budget.Limits, tablesWait bool) { s.limits, s.tablesWait = l, tablesWait }})
	for _, one := range tasks {
		s.add(t, one)
	}
	s.govern(s.now)
	s.pass(t, startUp, nil)
	return s
}

func (s *spender) add(t *testing.T, one *task) {
	t.Helper()
	one.came = s.now
	s.tasks = append(s.tasks, one)
	for _, r := range one.recordings {
		r.rate = s.spending.rateOf(one, one.profile.Frequency)
		sampler, err := s.studio.record(Wanted{Measurement: r.Measurement, Frequency: r.rate, All: true})
		if err != nil {
			t.Fatal(err)
		}
		s.put(r, sampler)
	}
}

// use is what causes take of a core; sampling, as much as all recordings sample.
type use map[cputime.Cause]float64

// pass has time go by, at such a use of the CPU; windows are cut each ten seconds.
func (s *spender) pass(t *testing.T, d time.Duration, u use) {
	for ; d > 0; d -= budget.Soon {
		s.now = s.now.Add(budget.Soon)
		took := func(cores float64) time.Duration { return time.Duration(cores * float64(budget.Soon)) }
		for cause, cores := range u {
			switch cause {
			case cputime.Sampling:
				s.studio.cost += took(cores * s.sampled() / max(float64(len(s.studio.open)), 1))
				continue
			case cputime.Other: // nobody's
			default:
				s.account.Charge(cause, took(cores))
			}
			s.usage.CPU += took(cores)
		}
		s.govern(s.now)
		for _, task := range s.tasks {
			for _, r := range task.recordings {
				if r.instrument.Sampler() != nil {
					s.cutNow(t, r, atEdge)
				}
			}
		}
		s.publish()
	}
}

// sampled is what is sampled of what was asked for, of all recordings.
func (s *spender) sampled() float64 {
	rate, wanted := 0.0, 0.0
	for _, task := range s.tasks {
		for _, r := range task.recordings {
			if r.instrument.Sampler() != nil {
				rate, wanted = rate+r.rate, wanted+r.wanted
			}
		}
	}
	return rate / max(wanted, 1)
}

func forAWhile(name string, hz float64) *task {
	p := spec.Builtin()
	p.Name, p.Frequency, p.Duration = name, hz, time.Hour
	return newTask(name, p, time.Now().Add(time.Hour))
}

// TestSamplingOverBudget has samples take too much: the fastest recording is lowered
// first, none below what its profile allows, and none is ended. All of it is told.
func TestSamplingOverBudget(t *testing.T) {
	first, last := forAWhile("first", 99), forAWhile("last", 999)
	first.profile.MinFrequency = 9
	s := newSpender(t, budget.Budget{Cores: 0.02}, newTask(builtinID, spec.Builtin(), time.Time{}), first)
	s.now = s.now.Add(time.Second)
	s.add(t, last)
	s.pass(t, budget.Period, use{cputime.Sampling: 0.019})
	if got := s.studio.takes(); got != "cpu-clock 19 all; cpu-clock 99 all; cpu-clock 999 all" {
		t.Fatalf("within the budget: %s", got)
	}
	s.pass(t, 2*budget.Period, use{cputime.Sampling: 0.03})
	if got := s.studio.takes(); !strings.HasPrefix(got, "cpu-clock 19 all; cpu-clock ") || strings.Contains(got, "999") {
		t.Fatalf("over the budget: %s", got)
	}
	state := s.report()
	if m := state.GetTasks()[2].GetMessage(); !strings.Contains(m, "instead of 999") || !strings.Contains(m, "2% of a core") {
		t.Errorf("it is told %q", m)
	}
	n := state.GetState()
	if n.GetCapHertz() == 0 || !strings.Contains(n.GetBudgetMessage(), "for want of CPU time") || n.GetCores() < 0.015 || n.GetCoresBudget() != 0.02 {
		t.Errorf("of the node it is told %v", n)
	}
	if d := n.GetDecisions(); len(d) == 0 || d[0].GetKnob() != "frequency" || d[0].GetCause() != "sampling" || !strings.Contains(d[0].GetWhy(), "sampling took 3% of a core") {
		t.Errorf("of decisions it is told %v", d)
	}
	s.pass(t, 20*budget.Period, use{cputime.Sampling: 3})
	if got := s.studio.takes(); got != "cpu-clock 5 all; cpu-clock 5 all; cpu-clock 9 all" || s.spending.stops != 0 || first.over || last.over {
		t.Errorf("at the least rates: %s, %d ended", got, s.spending.stops)
	}
	if n := s.report().GetState(); !n.GetOverBudget() || !strings.Contains(s.spending.state(), "nothing left to restrain") {
		t.Errorf("at last: %q", s.spending.state())
	}
	s.pass(t, 2*time.Minute, use{cputime.Sampling: 0.001})
	if got := s.studio.takes(); got != "cpu-clock 19 all; cpu-clock 99 all; cpu-clock 999 all" || s.spending.state() != "" {
		t.Errorf("two minutes after: %s, %q", got, s.spending.state())
	}
}

// TestTablesOverBudget has tables take too much: they are limited, and no rate is
// lowered for it, however long that goes on.
func TestTablesOverBudget(t *testing.T) {
	s := newSpender(t, budget.Budget{Cores: 0.04}, newTask(builtinID, spec.Builtin(), time.Time{}))
	s.pass(t, 10*time.Minute, use{cputime.Tables: 0.11, cputime.Sampling: 0.001, cputime.Shipping: 0.01})
	if got := s.studio.takes(); got != builtinTake || !s.tablesWait || s.limits.Tables > 0.03 {
		t.Errorf("%s, limits %+v", got, s.limits)
	}
	if !strings.Contains(s.spending.state(), "tables limited to") {
		t.Errorf("it is told %q", s.spending.state())
	}
	causes := map[string]float64{}
	for _, c := range s.report().GetState().GetCauses() {
		causes[c.GetCause()] = c.GetCores()
	}
	if causes["tables"] < 0.1 || causes["shipping"] > 0.02 || causes["other"] > 0.001 || len(causes) != len(cputime.Causes()) {
		t.Errorf("by cause it is told %v", causes)
	}
	s.pass(t, 2*time.Minute, use{cputime.Tables: 0.001})
	if s.limits != (budget.Limits{Tables: 0.04}) || s.tablesWait || s.spending.state() != "" {
		t.Errorf("two minutes after: %+v, %q", s.limits, s.spending.state())
	}
}

// TestOverMemory has caches go first, then the length of windows.
func TestOverMemory(t *testing.T) {
	s := newSpender(t, budget.Budget{Memory: 100e6}, newTask(builtinID, spec.Builtin(), time.Time{}))
	shed := 0
	s.options.Shed = func() { shed++ }
	s.usage.Memory = 101e6
	s.pass(t, budget.Soon, nil)
	if shed != 1 || s.spending.state() != "" {
		t.Errorf("shed %d times, then %q", shed, s.spending.state())
	}
	s.pass(t, 2*budget.Soon, nil)
	if s.spending.window(s.tasks[0]) != 5*time.Second || !strings.Contains(s.spending.state(), "short windows for want of memory") {
		t.Errorf("windows of %v, %q", s.spending.window(s.tasks[0]), s.spending.state())
	}
	s.usage.Memory = 50e6
	s.pass(t, 2*time.Minute, nil)
	if s.spending.window(s.tasks[0]) != 10*time.Second || s.spending.state() != "" {
		t.Errorf("windows of %v with room again, %q", s.spending.window(s.tasks[0]), s.spending.state())
	}
}

// TestCostIsTold has windows of two recordings tell all that was used, and once.
func TestCostIsTold(t *testing.T) {
	s := newSpender(t, budget.Budget{}, newTask(builtinID, spec.Builtin(), time.Time{}), forAWhile("other", 99))
	r := rand.New(rand.NewPCG(1, 1))
	var told profile.Cost
	for i := range 200 {
		s.usage.CPU += time.Duration(r.IntN(1e6))
		cost := s.spending.charge(s.tasks[i%2].recordings[0], s.tasks)
		if i%5 == 0 { // there was no window to tell it
			s.spending.refund(s.tasks[i%2].recordings[0], cost)
			continue
		}
		told.Add(cost)
	}
	if told.User+s.spending.pool != s.usage.CPU || s.spending.pool > s.usage.CPU/50 {
		t.Errorf("windows tell of %v, of %v; %v is to come", told.User, s.usage.CPU, s.spending.pool)
	}
}

// TestHeapLimit never gives Go less than a quarter, nor more than what is left.
func TestHeapLimit(t *testing.T) {
	for _, c := range []struct{ budget, used, goUses, want int64 }{
		{100, 60, 20, 55},
		{100, 20, 20, 95},
		{100, 120, 20, 25},
		{100, 10, 20, 95}, // not measured at once
	} {
		if got := heapLimit(c.budget, c.used, c.goUses); got != c.want {
			t.Errorf("of %d, %d used and %d by Go: %d, want %d", c.budget, c.used, c.goUses, got, c.want)
		}
	}
}

// TestOwnUsage measures this process.
func TestOwnUsage(t *testing.T) {
	p := process{now: time.Now}
	u := p.usage()
	if u.CPU <= 0 || u.Memory < 1e6 || u.Maps != 0 {
		t.Errorf("%+v", u)
	}
}

// TestLife tells the next life of one that did not end by itself.
func TestLife(t *testing.T) {
	name := filepath.Join(t.TempDir(), "life")
	log := slog.New(slog.DiscardHandler)
	lost := 0
	next := func() *life {
		l := newLife(name, log)
		l.settle(func(all spool.Losses) { lost += all.Unkept })
		return l
	}
	l := next()
	if l.last != "" {
		t.Errorf("the first life: %q", l.last)
	}
	l.note(Usage{Memory: 123e6}, 7)
	for range 2 { // and is killed before it has noted anything
		if l = next(); !strings.Contains(l.last, "it held 123 MB") || lost != 7 {
			t.Errorf("after one that was killed: %q, %d windows lost", l.last, lost)
		}
	}
	l.end()
	if l = next(); l.last != "" || lost != 7 {
		t.Errorf("after one that ended: %q, %d windows lost", l.last, lost)
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l = next(); l.last == "" {
		t.Error("half a note tells nothing")
	}
}
