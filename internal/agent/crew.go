package agent

import (
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/external"
)

// Crew is a recording by other profilers, of each process that it is aimed at: to
// end its windows takes seconds, so that nothing waits for it.
type Crew interface {
	Recording
	// CutEach is Cut with a window for each profiler; after the last ones no others
	// are begun. It takes as long as they do.
	CutEach(last bool) []*profile.Window
	// Lead is how long before a window's end it has to be cut to end there.
	Lead() time.Duration
	// Trouble is what keeps it from recording all that it is aimed at.
	Trouble() external.Trouble
}

// crewCut is what a crew's cut has brought.
type crewCut struct {
	of      *recording
	crew    Crew
	windows []*profile.Window
	last    bool
	at      rates
}

// crewFarewell is how long profilers may take to write what they have when the
// agent ends. Then they are killed.
const crewFarewell = 15 * time.Second

// cutCrew has a crew cut, unless it is still at the cut before: its window is
// longer then. The last cut comes after that one.
func (a *Agent) cutCrew(r *recording, c Crew, last bool) {
	r.leaving = r.leaving || last
	if _, busy := a.crews[r]; busy {
		return
	}
	last = r.leaving
	a.crews[r], r.turned = c, time.Now()
	at := r.turn()
	go func() { a.cuts <- crewCut{r, c, c.CutEach(last), last, at} }()
}

// crewHasCut takes what a crew's cut has brought.
func (a *Agent) crewHasCut(d crewCut) {
	r, t := d.of, d.of.task
	delete(a.crews, r)
	next := a.shipper.reading()
	if len(d.windows) > 0 {
		parts := a.partsOfEach(r, d.crew, d.windows)
		r.tell(parts, d.at)
		a.keep(r, parts, next)
	}
	switch {
	case d.last:
		a.close(r)
		if t.phase == phaseEnding {
			t.last = a.spooled
		}
	case r.leaving:
		a.cutCrew(r, d.crew, true)
	case r.late: // it has only now begun
		r.late = false
		a.beginLate(t)
		r.edge = time.Now().Add(a.untilEdge(r))
	}
}

// partsOfEach are the targets of windows, of those that the task means. A window
// of one target has lost what is that target's.
func (a *Agent) partsOfEach(r *recording, crew Crew, windows []*profile.Window) []*profile.Window {
	machine := a.census.machine().String()
	var each [][]*profile.Window
	for _, w := range windows {
		parts := a.parts(r, crew, w)
		if len(parts) == 2 {
			for i, p := range parts {
				if other := parts[1-i]; p.Target.String() == machine && other.Target.String() != machine {
					for _, l := range p.Losses {
						other.AddLoss(l)
					}
					parts = []*profile.Window{other}
					break
				}
			}
		}
		each = append(each, parts)
	}
	return mergeTargets(each, nil)
}

// dismissCrews waits until the last windows of crews are there, as long as that
// may take.
func (a *Agent) dismissCrews() {
	enough := time.NewTimer(crewFarewell)
	defer enough.Stop()
	for len(a.crews) > 0 {
		select {
		case d := <-a.cuts:
			a.crewHasCut(d)
		case <-enough.C:
			for r := range a.crews {
				a.close(r)
			}
		}
	}
}

// troubles is how the crews of a task that runs fare.
func (t *task) troubles() (phase, message string) {
	phase, message = t.phase, t.message
	if phase != phaseRunning {
		return phase, message
	}
	for _, r := range t.recordings {
		if c, ok := r.sampler.(Crew); ok {
			trouble := c.Trouble()
			message = trouble.Message
			if trouble.Failed {
				phase = phaseFailed
			}
		}
	}
	return phase, message
}

// cutting tells whether a crew is still at it.
func (a *Agent) cutting(t *task) bool {
	for r := range a.crews {
		if r.task == t {
			return true
		}
	}
	return false
}
