package agent

import (
	"slices"
	"time"

	state "atys.dev/atys/internal/agent/recording"
)

// A recording costs the same whether it has targets or not: some 23 MB of tables, and time
// on each CPU for each sample. So a task that selects targets records only while it has some.

// restAfter is how long a task has no target before its recordings end: a service that
// restarts is back by then.
const restAfter = 30 * time.Second

// catchUpPause is the shortest time between windows that are cut early for new targets.
// Each cut lists all threads of the machine.
const catchUpPause = 10 * time.Second

// needed reports whether there is something for a task to record.
func (t *task) needed() bool { return t.everything() || t.targets > 0 }

// rouse starts the recordings of a task that selects targets when it has one, and ends them
// when it has had none for a while.
func (c *conductor) rouse(t *task, now time.Time) {
	switch {
	case t.over || t.everything() || len(t.recordings) == 0:
	case t.targets > 0:
		t.missing = time.Time{}
		c.begin(t)
	case t.missing.IsZero():
		t.missing = now
		if t.phase == phaseStarting {
			t.phase = phaseWaiting
		}
	case now.Sub(t.missing) >= restAfter:
		c.rest(t)
	}
}

// begin starts the recordings of a task, except those that failed and are started later.
func (c *conductor) begin(t *task) {
	for _, r := range t.recordings {
		if r.instrument.State() == state.Resting && r.edge.IsZero() {
			c.start(r)
		}
	}
}

// rest ends the recordings of a task until it has a target again.
func (c *conductor) rest(t *task) {
	for _, r := range t.recordings {
		c.conclude(r)
	}
	t.phase, t.message = phaseWaiting, ""
}

// records reports whether a sampler of a task is open.
func (t *task) records() bool {
	return slices.ContainsFunc(t.recordings, func(r *recording) bool { return r.instrument.Sampler() != nil })
}

// beginning reports whether a recording of a task is about to begin.
func (t *task) beginning() bool {
	return slices.ContainsFunc(t.recordings, func(r *recording) bool { return r.instrument.State() == state.Starting })
}

// lags reports whether the window should be cut early for processes that have become targets
// since the last cut. They are sampled from the next cut on, and a window can last an hour.
// An edge before the next look comes soon enough.
func (r *recording) lags(now time.Time, look time.Duration) bool {
	return r.instrument.State() == state.Running && r.behind && r.edge.Sub(now) > look && now.Sub(r.caught) >= catchUpPause
}

// readied aims again when processes have become ready to be sampled. The first of them in a
// recording do not wait for its edge, which may be its end.
func (c *conductor) readied() {
	c.aim()
	for _, t := range c.tasks {
		for _, r := range t.recordings {
			c.admit(r)
		}
	}
}

// admit cuts a window early for the first processes of a recording that have become ready
// since its last cut.
func (c *conductor) admit(r *recording) {
	if r.instrument.State() == state.Running && !r.instrument.Delayed() && r.behind && r.caught.IsZero() {
		r.caught = time.Now()
		c.cut(r, early)
	}
}
