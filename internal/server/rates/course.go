package rates

import (
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// When rates are decided on.
const (
	mostJitter    = 20 * time.Second // agents ship windows within half of one, and within this
	decideAfter   = 2 * time.Second  // after that
	forgetService = 10 * time.Minute // without windows, and at least ten of them
)

// leastMove is the relative change of a rate below which agents are not sent it. A
// policy that follows its measurements changes it a little with each window, and a
// thousand agents would be woken for less than random error.
const leastMove = 0.02

// adaptive is a profile whose rates a policy decides on.
type adaptive struct {
	id, name string
	options  freq.Options
	window   time.Duration
	since    time.Time // when it was applied: older windows are of another profile
}

// adaptiveOf returns what a policy needs of a profile; nil if the profile has no policy,
// or records nothing that is sampled by time.
func adaptiveOf(id string, created time.Time, p *spec.Profile) *adaptive {
	if p.Adaptive == nil || !slices.Contains(p.Kinds, spec.KindCPU) {
		return nil
	}
	return &adaptive{id: id, name: p.Name, options: *p.Adaptive, window: p.Window, since: created}
}

// serviceKey is a service that a task records.
type serviceKey struct{ task, service string }

// course is the rate of a service from interval to interval. Intervals lie between the
// times at which agents cut windows.
type course struct {
	*adaptive
	service string
	policy  freq.Policy // nil: none yet. Only the Decider uses it.
	rate    profile.Rate
	moved   bool      // agents have not been sent it yet
	next    time.Time // the interval to decide by next
	heard   time.Time // when a window of it last arrived
	came    map[time.Time]*arrivals

	recorded time.Time // when the rate was last recorded. Only the Decider uses it.
}

// arrivals are the windows of one interval that have arrived.
type arrivals struct {
	series map[uint64]bool // whose windows last until its end
	again  int             // how many of them also sent one of the interval before
}

// arrivals returns those of an interval.
func (c *course) arrivals(at time.Time) *arrivals {
	a := c.came[at]
	if a == nil {
		a = &arrivals{series: map[uint64]bool{}}
		c.came[at] = a
	}
	return a
}

// add adds a series to the arrivals of an interval, and reports whether it is new.
func (c *course) add(at time.Time, series uint64) (fresh bool) {
	a := c.came[at]
	if a.series[series] {
		return false
	}
	a.series[series] = true
	if before := c.came[at.Add(-c.window)]; before != nil && before.series[series] {
		a.again++
	}
	if after := c.came[at.Add(c.window)]; after != nil && after.series[series] {
		after.again++
	}
	return true
}

// complete reports whether all series that sent a window of the previous interval have
// sent one of the next to decide by. Those that were silent are not waited for again.
func (c *course) complete() bool {
	before, a := c.came[c.next.Add(-c.window)], c.came[c.next]
	return before != nil && len(before.series) > 0 && a != nil && a.again == len(before.series)
}

// take applies a decision, unless it leaves the rate as it is. So the reason that agents
// are sent and write into windows, in a word, is the one for which the rate last changed, and
// not a new one with each window, which would have to be sent to all.
func (c *course) take(d freq.Decision) {
	stays := c.rate.Hertz > 0 && math.Abs(d.Hertz-c.rate.Hertz) < leastMove*c.rate.Hertz
	if stays && (string(d.Reason) == c.rate.Reason || d.Reason == freq.Stays || d.Reason == freq.Few) {
		return
	}
	c.rate = profile.Rate{Hertz: math.Round(1000*d.Hertz) / 1000, Policy: c.options.Policy, Reason: string(d.Reason), Why: d.Why, By: profile.ByServer}
	c.moved = true
}

// deadline is until when windows of an interval are waited for. Later ones are stored,
// but not decided by.
func (a *adaptive) deadline(at time.Time) time.Time {
	return at.Add(a.window + min(a.window/2, mostJitter) + decideAfter)
}
