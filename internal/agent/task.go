package agent

import (
	"slices"
	"time"

	"atys.dev/atys/internal/agent/pipeline"
	state "atys.dev/atys/internal/agent/recording"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
)

// The phases of a task.
const (
	phaseStarting = "starting"
	phaseRunning  = "running"
	phaseWaiting  = "waiting" // for a target
	phaseEnding   = "ending"  // its last windows are being shipped
	phaseDone     = "done"
	phaseFailed   = "failed"
)

const builtinID = "builtin"

// task is a profile that is being carried out.
type task struct {
	id         string
	profile    *spec.Profile
	until      int64     // when it ends by the server's clock, in ns; 0: never
	end        time.Time // when keepTime ends it; zero: never
	unsure     bool      // the clocks had not been compared when end was computed
	began      time.Time // zero: it ends at a time, however late it began
	limited    bool      // to chosen targets
	chosen     map[string]bool
	instances  profile.Instances       // in the fleet, if it is limited
	rates      map[string]profile.Rate // that the server has ordered, by service
	recordings []*recording
	phase      string
	message    string
	caveat     string // what of the profile is ignored; "": nothing
	targets    int
	missing    time.Time // since when it has had no targets; zero: it has some
	came       time.Time // when it was ordered
	over       bool      // its recordings have been told to end
	last       spool.ID  // its last bundle, once it is over
	asking     bool      // askTaken is under way
}

func newTask(id string, p *spec.Profile, end time.Time) *task {
	t := &task{id: id, profile: p, end: end, phase: phaseStarting}
	for _, r := range p.Recordings() {
		t.recordings = append(t.recordings, &recording{Recording: r, task: t, rate: p.Frequency, wanted: p.Frequency,
			line: pipeline.Line{Task: r.Task, Threads: p.Threads, Pruning: p.Pruning, Top: p.Top}})
	}
	return t
}

// understood reports whether this agent can carry out anything of the task.
func (t *task) understood() bool { return len(t.recordings) > 0 }

// everything reports whether the task selects all targets.
func (t *task) everything() bool { return t.profile.All() && !t.limited }

// means reports whether the task selects a target.
func (t *task) means(target profile.Labels) bool {
	return t.profile.Matches(target) && (!t.limited || t.chosen[target.String()])
}

// beginLate moves the end of a task that took a moment to begin.
func (t *task) beginLate() {
	if !t.end.IsZero() && !t.over {
		t.began = time.Now()
		t.end = t.lasting(t.end)
	}
}

// lasting returns when a task ends that was to end at a time, given when it began.
func (t *task) lasting(end time.Time) time.Time {
	if t.began.IsZero() || end.IsZero() {
		return end
	}
	return earlier(t.began.Add(t.profile.Duration), end.Add(lateStart))
}

// ends returns when a task ends; zero: never. A task that has not begun may end later: on a
// busy machine starting takes longer than a short recording lasts.
func (t *task) ends() time.Time {
	end := t.plausible()
	for _, r := range t.recordings {
		if !end.IsZero() && (r.late || r.instrument.State() == state.Starting && t.phase == phaseStarting) {
			return end.Add(lateStart)
		}
	}
	return end
}

// lateStart is by how much a task may end later because it began later.
const lateStart = 5 * time.Second

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// date computes when a task ends, by what is known of the server's clock.
func (t *task) date(clock reading, now time.Time) {
	if t.until == 0 {
		return
	}
	left := time.Unix(0, t.until).Add(clock.offset).Sub(now)
	t.end, t.unsure = t.lasting(time.Now().Add(left)), !clock.known
}

// unfinished reports whether a recording of the task has not ended, or has windows that are
// not spooled yet.
func (t *task) unfinished() bool {
	return slices.ContainsFunc(t.recordings, func(r *recording) bool { return r.inFlight > 0 || r.instrument.State() != state.Resting })
}

// letGo remembers which targets the task selects, before it takes over what next selects.
func (t *task) letGo(next *task) {
	now := time.Now()
	for _, r := range t.recordings {
		r.keeps = nil
		switch {
		case r.instrument.Sampler() == nil || !next.limited:
		case !t.limited:
			r.letAll = now
		default:
			for key := range t.chosen {
				if next.chosen[key] {
					continue
				}
				if r.let == nil {
					r.let = map[string]time.Time{}
				}
				r.let[key] = now
			}
		}
	}
}

// troubles returns the phase of a task and what its samplers complain about.
func (t *task) troubles() (phase, message string) {
	phase, message = t.phase, t.message
	if phase != phaseRunning {
		return phase, message
	}
	for _, r := range t.recordings {
		if r.instrument.Delayed() {
			trouble := r.instrument.Trouble()
			message = trouble.Message
			if trouble.Failed {
				phase = phaseFailed
			}
		}
	}
	return phase, message
}
