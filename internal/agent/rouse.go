package agent

import (
	"slices"
	"time"
)

// A recording takes as much whether it has a target or not: some 23 MB of tables,
// and its time on each CPU at each sample. So one that selects targets is there
// only while it has some.

// restAfter is how long a task is without a target before its recordings end: a
// service that restarts is back by then.
const restAfter = 30 * time.Second

// catchUpPause is how often a window is cut early at most for processes that have
// become targets. Each cut lists all threads of the machine.
const catchUpPause = 10 * time.Second

// needed tells whether there is something for a task to record.
func (t *task) needed() bool { return t.everything() || t.targets > 0 }

// rouse begins the recordings of a task that selects targets when there is one,
// and has them end when there has been none for a while.
func (a *Agent) rouse(t *task, now time.Time) {
	switch {
	case t.over || t.everything() || len(t.recordings) == 0:
	case t.targets > 0:
		t.missing = time.Time{}
		a.begin(t)
	case t.missing.IsZero():
		t.missing = now
		if t.phase == phaseStarting {
			t.phase = phaseWaiting
		}
	case now.Sub(t.missing) >= restAfter:
		a.rest(t)
	}
}

// begin starts the recordings of a task, but for those that are tried again later.
func (a *Agent) begin(t *task) {
	for _, r := range t.recordings {
		if r.sampler == nil && !r.starting && r.edge.IsZero() {
			a.start(r)
		}
	}
}

// rest ends the recordings of a task until it has a target again.
func (a *Agent) rest(t *task) {
	for _, r := range t.recordings {
		a.conclude(r)
	}
	t.phase, t.message = phaseWaiting, ""
}

// records tells whether a recording of a task is open.
func (t *task) records() bool {
	return slices.ContainsFunc(t.recordings, func(r *recording) bool { return r.sampler != nil })
}

// beginning tells whether a recording of a task is about to begin.
func (t *task) beginning() bool {
	return slices.ContainsFunc(t.recordings, func(r *recording) bool { return r.starting })
}

// catchUp cuts a window early where processes have become targets since the last
// cut: they are sampled from the next one on, which in a window of an hour would
// come too late. Where it comes before the next look, it comes soon enough.
func (a *Agent) catchUp(r *recording, now time.Time) {
	if _, cutting := a.crews[r]; cutting || !r.behind || r.leaving {
		return
	}
	if r.edge.Sub(now) <= a.options.Look || now.Sub(r.caught) < catchUpPause {
		return
	}
	r.caught = now
	if crew, ok := r.sampler.(Crew); ok {
		r.behind = false
		a.cutCrew(r, crew, false)
		return
	}
	a.cutEarly(r)
}

// readied aims again where processes have become ready to be sampled. The first ones
// of a recording are not waited for until its edge, which may be its end.
func (a *Agent) readied() {
	a.aim()
	now := time.Now()
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if _, crew := r.sampler.(Crew); r.sampler != nil && !crew && r.behind && r.caught.IsZero() && !r.edge.IsZero() {
				r.caught = now
				a.cutEarly(r)
			}
		}
	}
}
