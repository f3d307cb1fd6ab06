package query

import (
	"maps"
	"slices"
	"time"
)

// NodeCoverage is when the agent of a node, for a task, watched.
type NodeCoverage struct {
	Node, Task string
	// What it watched lies between. Where it watched nothing of the time asked for,
	// First is zero, and Last when it did before.
	First, Last time.Time
	Watched     time.Duration // of that
	Missing     []Span        // it was killed, or what it cut was lost or has not come yet
	Stopped     []Span        // it had been told to end
	Silent      bool          // it had said nothing more by the end of the time asked for, and should have
}

// Span is a time from and to.
type Span struct{ From, To time.Time }

// timeline tells of one agent at one task when it watched, from the windows
// that were seen. What is known of the agent may be nothing.
func (q *question) timeline(key watcher, sights map[int64]sight, agent Agent, unknown []Span) NodeCoverage {
	c := NodeCoverage{Node: key.node, Task: key.task}
	last, length := sight{}, agent.Tasks[key.task]
	for _, at := range slices.Sorted(maps.Keys(sights)) {
		s := sights[at]
		start := time.Unix(0, at)
		end := start.Add(s.length)
		if !c.Last.IsZero() {
			q.gap(&c, Span{c.Last, start}, last.slack(s), last.last, unknown)
		}
		if !start.Before(q.From) {
			c.watch(start, end, last.slack(s))
		}
		if s.step == 0 {
			length = max(length, s.length)
		}
		if !end.Before(c.Last) {
			c.Last, last = end, s
		}
	}
	due := q.due(length)
	since, heard := c.Last, later(c.Last, agent.Heard)
	if since.IsZero() {
		since = agent.First
	}
	until := earlier(due, heard.Add(Gone))
	missing := q.gap(&c, Span{since, until}, slack, last.last, unknown)
	c.Silent = missing && !last.last && until.Equal(due)
	if agent.Node != "" && !last.last && !q.To.Before(q.now().Add(-underway)) {
		c.Silent = agent.Silent // it may be heard of all the same, or its last windows be under way
	}
	return c
}

// watch counts a window that begins in the time asked for, and within the slack
// after the one before it if none is missing.
func (c *NodeCoverage) watch(start, end time.Time, slack time.Duration) {
	from := start
	switch {
	case c.First.IsZero():
		c.First = start
	case start.Sub(c.Last) <= slack:
		from = c.Last
	}
	c.Watched += max(0, end.Sub(from))
}

// gap notes that there were no windows, and tells whether that is in the time
// asked for. Less than the slack is nothing, of what lies there too.
func (q *question) gap(c *NodeCoverage, s Span, slack time.Duration, meant bool, unknown []Span) (noted bool) {
	if s.To.Sub(s.From) <= slack {
		return false
	}
	into := &c.Missing
	if meant {
		into = &c.Stopped
	}
	for _, part := range without(Span{later(s.From, q.From), earlier(s.To, q.To)}, unknown) {
		if part.To.Sub(part.From) > slack {
			*into = append(*into, part)
			noted = true
		}
	}
	return noted
}

// without takes spans, which are in the order of time, out of one.
func without(s Span, holes []Span) (rest []Span) {
	for _, hole := range holes {
		if end := earlier(s.To, hole.From); s.From.Before(end) {
			rest = append(rest, Span{s.From, end})
		}
		s.From = later(s.From, hole.To)
	}
	if s.From.Before(s.To) {
		rest = append(rest, s)
	}
	return rest
}
