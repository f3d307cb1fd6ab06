package server

import (
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// When a rate is decided.
const (
	mostJitter    = 20 * time.Second // agents ship windows within half of one, and within this
	decideAfter   = 2 * time.Second  // after that
	forgetService = 10 * time.Minute // in which nothing came of it, and ten windows
)

// leastMove is the part of a rate by which it has to move for agents to be told. A
// policy that follows what it measures moves a little with each window, and a thousand
// agents would be woken for less than what chance adds.
const leastMove = 0.02

// adaptive is a profile whose rates a policy chooses.
type adaptive struct {
	id, name string
	options  freq.Options
	window   time.Duration
	since    time.Time // when it was asked for: older windows are of another one
}

// adaptiveOf tells what a policy needs of a profile; nil: it has none, or records
// nothing that is sampled by time.
func adaptiveOf(o *ordered) *adaptive {
	p := o.Profile
	if p.Adaptive == nil || !slices.Contains(p.Kinds, spec.KindCPU) {
		return nil
	}
	return &adaptive{id: o.ID, name: p.Name, options: *p.Adaptive, window: p.Window, since: o.Created}
}

// courseKey is a service that a task records.
type courseKey struct{ task, service string }

// course is how a service's rate goes on, from one interval to the next: the times
// between the edges at which agents cut.
type course struct {
	*adaptive
	service string
	policy  freq.Policy // nil: there is none yet. Only who decides looks at it.
	rate    profile.Rate
	moved   bool      // agents have not been told of it yet
	next    time.Time // the interval to decide by next
	heard   time.Time // when a window of it came last
	came    map[time.Time]*arrivals
}

// arrivals are those of one interval.
type arrivals struct {
	series map[uint64]bool // whose windows reach to its end
	again  int             // of them, as many sent one of the interval before
}

// arrivals finds or begins those of an interval.
func (c *course) arrivals(at time.Time) *arrivals {
	a := c.came[at]
	if a == nil {
		a = &arrivals{series: map[uint64]bool{}}
		c.came[at] = a
	}
	return a
}

// add notes that a series has sent its window of an interval.
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

// complete tells whether all that sent a window of the interval before have sent one of
// the next to decide by. Who was silent then is not waited for again.
func (c *course) complete() bool {
	before, a := c.came[c.next.Add(-c.window)], c.came[c.next]
	return before != nil && len(before.series) > 0 && a != nil && a.again == len(before.series)
}

// take has a decision be the rate of a service, unless it leaves that as it is. So the
// reason that agents are told, and that stands in their windows, is the one for which
// the rate is what it is, with the figures of that time: not that of each window, in
// words that would have to be sent to all.
func (c *course) take(d freq.Decision) {
	stays := c.rate.Hertz > 0 && math.Abs(d.Hertz-c.rate.Hertz) < leastMove*c.rate.Hertz
	if stays && (string(d.Reason) == c.rate.Reason || d.Reason == freq.Stays || d.Reason == freq.Few) {
		return
	}
	c.rate = profile.Rate{Hertz: math.Round(1000*d.Hertz) / 1000, Policy: c.options.Policy, Reason: string(d.Reason), Why: d.Why, By: profile.ByServer}
	c.moved = true
}

// deadline is until when windows of an interval are waited for. What comes later is
// kept, and not decided by.
func (a *adaptive) deadline(at time.Time) time.Time {
	return at.Add(a.window + min(a.window/2, mostJitter) + decideAfter)
}
