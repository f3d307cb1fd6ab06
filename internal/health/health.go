// Package health decides which problems of an agent to report to operators.
//
//	windows, as they are cut    -> Summary -> Monitor.Observe
//	rates, budget, tables, spool           -> State
//	                             Monitor.Evaluate -> Conditions -> report, metric, page, doctor
//
// A Condition holds or does not, like those of a Kubernetes node; what alerts
// wait for (five minutes, by the rules that are shipped) is not decided here.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind names a condition in reports and in the label of a metric.
type Kind string

// The conditions, worst first: those that make a profile wrong come before those
// that make it coarse or late.
const (
	Unsampled  Kind = "time-not-sampled"
	StacksCut  Kind = "stacks-truncated"
	Thrashing  Kind = "tables-thrashing"
	OverBudget Kind = "over-budget"
	RateLow    Kind = "rate-lowered"
	Late       Kind = "windows-late"
)

// Kinds are all of them, in the order in which they are shown.
func Kinds() []Kind {
	return []Kind{Unsampled, StacksCut, Thrashing, OverBudget, RateLow, Late}
}

// Condition is one trouble that holds now.
type Condition struct {
	Kind    Kind
	Since   time.Time
	Value   float64 // a share, a rate in Hz, a number of windows: see Message
	Message string  // for people: what, how much, and why
	Fix     string  // the way out
}

// State is what the agent knows of itself beside its windows.
type State struct {
	Rates   []Rate
	Budget  string  // the budget, in words; empty: there is none
	Excess  bool    // over it, with nothing left to restrain
	Cores   float64 // that it takes
	Bytes   int64   // of memory, BPF maps included
	Tables  Tables
	Waiting int // windows in the spool
	// Unspooled is the number of windows that are only in memory: neither the disk nor the
	// server takes them.
	Unspooled int
	Targets   int
}

// Rate is how often a recording samples.
type Rate struct {
	Task, Event   string
	Hertz, Wanted float64
}

// Tables are counters of the unwinding tables, since the agent began.
type Tables struct {
	Evicted uint64 // parts of them, of 255 rows, that left to make room
	Again   uint64 // of these, so many were needed again soon after
	Used    uint64 // bytes of rows in the kernel now
	Most    uint64 // and how many there may be
}

const (
	// recent is how far back windows count.
	recent = time.Minute
	// oldest bounds how long samples are gathered where there are few of them.
	oldest = 10 * time.Minute
	// enough samples make a share of 2% worth telling: with fewer a handful decides.
	enough = 300
	// cutShare and unsampledShare are from where on an operator hears of it.
	cutShare       = 0.02
	unsampledShare = 0.02
	// thrashAgain is how many evicted parts of tables, of 255 rows, may be needed again
	// a minute: each cuts the stacks that meet it until it is loaded.
	thrashAgain = 600
	// rateSlack forgives a rate that is a little below what was asked for.
	rateSlack = 0.01
)

// Monitor keeps what the windows of the last minutes say. The zero value is ready.
// It belongs to one goroutine.
type Monitor struct {
	windows []Summary
	tables  []tablesAt
	since   map[Kind]time.Time
}

type tablesAt struct {
	at time.Time
	Tables
}

// Observe adds a window that was cut.
func (m *Monitor) Observe(s Summary) { m.windows = append(m.windows, s) }

// Evaluate gives the conditions that hold now, worst first.
func (m *Monitor) Evaluate(now time.Time, s State) []Condition {
	m.forget(now)
	m.tables = append(m.tables, tablesAt{now, s.Tables})
	var all []Condition
	add := func(c Condition, holds bool) {
		if holds {
			all = append(all, c)
		}
	}
	add(m.unsampled())
	add(m.truncated(now))
	add(m.thrashing())
	add(overBudget(s))
	add(rateLow(s))
	add(m.late(now, s))
	m.date(now, all)
	return all
}

// forget drops what is too old to count.
func (m *Monitor) forget(now time.Time) {
	m.windows = slices.DeleteFunc(m.windows, func(s Summary) bool { return now.Sub(s.End) > oldest })
	keep := slices.IndexFunc(m.tables, func(t tablesAt) bool { return now.Sub(t.at) <= recent })
	if keep < 0 {
		keep = len(m.tables)
	}
	m.tables = slices.Delete(m.tables, 0, keep)
}

// date sets since when each condition has held.
func (m *Monitor) date(now time.Time, all []Condition) {
	before := m.since
	m.since = make(map[Kind]time.Time, len(all))
	for i, c := range all {
		since, held := before[c.Kind]
		if !held {
			since = now
		}
		m.since[c.Kind], all[i].Since = since, since
	}
}

// pooled adds up the newest windows: those of the last minute, and older ones
// until there are enough samples.
func (m *Monitor) pooled(now time.Time) (sum Summary) {
	byEnd := slices.SortedFunc(slices.Values(m.windows), func(a, b Summary) int { return b.End.Compare(a.End) })
	for _, s := range byEnd {
		if sum.Samples >= enough && now.Sub(s.End) > recent {
			break
		}
		sum.add(s)
	}
	return sum
}

func (m *Monitor) truncated(now time.Time) (Condition, bool) {
	sum := m.pooled(now)
	cut := sum.truncated()
	if sum.Samples < enough || float64(cut) <= cutShare*float64(sum.Samples) {
		return Condition{}, false
	}
	share := float64(cut) / float64(sum.Samples)
	return Condition{Kind: StacksCut, Value: share, Message: fmt.Sprintf("%s of the stacks were truncated: %s%s", percent(share), reasons(sum.Truncated, sum.Samples), sum.worst()),
		Fix: fixFor(sum.Truncated)}, true
}

// unsampled judges all windows that are kept: the one in which it becomes certain that
// time is missing tells it of up to ten minutes.
func (m *Monitor) unsampled() (Condition, bool) {
	var sum Summary
	for _, w := range m.windows {
		sum.add(w)
	}
	if sum.Exact <= 0 || float64(sum.Unsampled) <= unsampledShare*float64(sum.Exact) {
		return Condition{}, false
	}
	share := min(float64(sum.Unsampled)/float64(sum.Exact), 1)
	return Condition{Kind: Unsampled, Value: share, Message: fmt.Sprintf("%s of the CPU time was not sampled", percent(share)),
		Fix: "record with a higher frequency, or all processes (-a, a profile without selector)"}, true
}

func (m *Monitor) thrashing() (Condition, bool) {
	first, last := m.tables[0], m.tables[len(m.tables)-1]
	if last.Again <= first.Again+thrashAgain {
		return Condition{}, false
	}
	again := last.Again - first.Again
	return Condition{Kind: Thrashing, Value: float64(again),
		Message: fmt.Sprintf("unwinding tables do not fit: %d parts of them were evicted and needed again within a minute (%s of %s used)", again, megabytes(last.Used), megabytes(last.Most)),
		Fix:     "give them more room: --unwind-memory, or a larger --max-memory"}, true
}

func overBudget(s State) (Condition, bool) {
	return Condition{Kind: OverBudget, Value: s.Cores,
		Message: fmt.Sprintf("over the budget (%s) with nothing left to restrain: it takes %.3g%% of a core and %s", s.Budget, 100*s.Cores, megabytes(uint64(s.Bytes))),
		Fix:     "raise --max-cpu or --max-memory, or record fewer targets"}, s.Excess
}

func rateLow(s State) (Condition, bool) {
	var low []string
	lowest := Rate{}
	for _, r := range s.Rates {
		if r.Wanted <= 0 || r.Hertz >= (1-rateSlack)*r.Wanted {
			continue
		}
		if len(low) == 0 || r.Hertz/r.Wanted < lowest.Hertz/lowest.Wanted {
			lowest = r
		}
		low = append(low, fmt.Sprintf("%s at %.3g of %.4g Hz", r.Task, r.Hertz, r.Wanted))
	}
	return Condition{Kind: RateLow, Value: lowest.Hertz, Message: "sampled less often than asked for, to keep within the budget: " + listed(low),
		Fix: "raise --max-cpu, or ask for a lower frequency"}, len(low) > 0
}

// late tells of windows that were sealed long after their end, and of a spool that
// does not drain.
func (m *Monitor) late(now time.Time, s State) (Condition, bool) {
	late, longest := 0, time.Duration(0)
	for _, w := range m.windows {
		if now.Sub(w.End) <= recent && w.late() {
			late, longest = late+1, max(longest, w.Delay)
		}
	}
	c := Condition{Kind: Late, Value: float64(late), Fix: "the agent's log says what takes long; \"atys describe agent\" shows its CPU time by cause"}
	switch {
	case s.Unspooled > 0:
		c.Value, c.Message = float64(s.Unspooled), fmt.Sprintf("%d windows are only in memory: the disk does not take them", s.Unspooled)
		c.Fix = "free space on the disk of the agent's data directory: windows are lost once there are too many, and when the agent ends"
		return c, true
	case late > 0:
		c.Message = fmt.Sprintf("%d windows of the last minute were late, by up to %v", late, longest.Round(100*time.Millisecond))
		return c, true
	case Backlog(s.Waiting, s.Targets):
		c.Value, c.Message = float64(s.Waiting), fmt.Sprintf("%d windows wait to be shipped", s.Waiting)
		c.Fix = "the agent's log says why the server does not accept them"
		return c, true
	}
	return c, false
}

// Backlog tells whether more windows wait than an agent has between two uploads. It
// cuts a window of each target every ten seconds, and ships it within five: a minute
// of them, or of fifty targets where there are few, is too much.
func Backlog(waiting, targets int) bool { return waiting > 6*max(targets, 50) }

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

func megabytes(bytes uint64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) }

// listed joins the first of many.
func listed(all []string) string {
	const most = 3
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// Find gives the condition of a kind; nil where it does not hold.
func Find(all []Condition, kind Kind) *Condition {
	i := slices.IndexFunc(all, func(c Condition) bool { return c.Kind == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}
