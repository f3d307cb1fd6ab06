package agent

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
)

// site is an agent with one task that selects targets, at whose hand nothing goes
// on by itself.
type site struct {
	*Agent
	*studio
	*residents
	task *task
}

// residents are who runs on a machine.
type residents struct {
	present map[string]*targets.Present

	mu     sync.Mutex             // guards all below
	known  map[int]profile.Labels // of processes that were sampled
	lately int64                  // how often noProcess was asked for
}

// know sets the target of a process.
func (r *residents) know(pid int, labels profile.Labels) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[pid] = labels
}

// asked returns how often noProcess was asked for.
func (r *residents) asked() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lately
}

func (r *residents) Look() error { return nil }

func (r *residents) Keep(time.Duration) {}

func (r *residents) Machine() profile.Labels { return profile.Labels{"node": "n"} }

func (r *residents) List() ([]*atysv1.Target, bool) { return nil, false }

func (r *residents) Choose(means func(profile.Labels) bool) (meant []*targets.Present, others []int) {
	for _, p := range r.present {
		if means(p.Labels) {
			meant = append(meant, p)
		} else {
			others = append(others, p.PIDs...)
		}
	}
	return meant, others
}

func (r *residents) Of(threads []profile.Thread, _ targets.Commands) (all []profile.Labels, brief int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range threads {
		if t.PID == noProcess {
			r.lately++
		}
		labels, ok := r.known[t.PID]
		if !ok {
			labels = profile.Labels{"node": "n", "service": t.Process}
		}
		all = append(all, labels)
	}
	return all, 0
}

func newSite(t *testing.T, window time.Duration) *site {
	t.Helper()
	return newSiteOf(t, fmt.Sprintf(`{"kind":"Profile","name":"x","select":"{service=\"shop\"}","window":"%v"}`, window))
}

// newSiteOf is one whose task is such a profile.
func newSiteOf(t *testing.T, text string) *site {
	t.Helper()
	b := newBench(t, 12)
	s := &site{studio: &studio{open: map[*take]bool{}}, residents: &residents{known: map[int]profile.Labels{}, present: map[string]*targets.Present{}}}
	s.Agent = still(t, Options{Node: "n", Spool: b.spool, Intake: b.server, Record: s.record})
	s.census = s.residents
	p, err := spec.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.task = newTask("1", p, time.Time{})
	s.follow([]*task{s.task, newTask("2", spec.Builtin(), time.Time{})})
	s.settle(t)
	return s
}

// have makes these the processes of the service, and has recordings that begin begin.
func (s *site) have(t *testing.T, pids ...int) {
	t.Helper()
	clear(s.residents.present)
	if len(pids) > 0 {
		s.residents.present["shop"] = &targets.Present{Labels: profile.Labels{"service": "shop"}, PIDs: pids}
	}
	s.aim()
	s.settle(t)
}

func (s *site) settle(t *testing.T) {
	t.Helper()
	s.conductor.settle(t)
	s.publish()
}

func (s *site) phase() string { return s.status[0].GetPhase() }

// TestRest has the targets of a task come and go: it records while there are some,
// and a little longer.
func TestRest(t *testing.T) {
	s := newSite(t, 10*time.Second)
	check := func(phase, takes string) {
		t.Helper()
		if s.phase() != phase || s.takes() != takes {
			t.Errorf("%s, recording %s; want %s and %s", s.phase(), s.takes(), phase, takes)
		}
	}
	const others = builtinTake
	check(phaseWaiting, others)
	s.have(t, 11)
	check(phaseRunning, others+"; cpu-clock 19 at [11]")
	s.have(t)
	check(phaseWaiting, others+"; cpu-clock 19 at [11]") // it restarts, maybe
	s.have(t, 12)
	check(phaseRunning, others+"; cpu-clock 19 at [11 12]")
	r := s.task.recordings[0]
	s.have(t)
	s.task.missing = time.Now().Add(-restAfter)
	s.have(t)
	check(phaseWaiting, others)
	if s.keepTime(); !r.edge.IsZero() || r.instrument.Sampler() != nil || len(s.busy) > 0 {
		t.Error("it is not left alone where it has nothing to record")
	}
	s.have(t, 13)
	check(phaseRunning, others+"; cpu-clock 19 at [13]")

	s.fail(r, errors.New("no rights")) // and has nothing to record when it is tried again
	s.have(t)
	r.edge = time.Now()
	s.keepTime()
	s.settle(t)
	check(phaseFailed, others)
	s.have(t, 14)
	check(phaseRunning, others+"; cpu-clock 19 at [14]")
}

// TestRestMeanwhile has the last target leave while the recording begins.
func TestRestMeanwhile(t *testing.T) {
	s := newSite(t, 10*time.Second)
	s.residents.present["shop"] = &targets.Present{Labels: profile.Labels{"service": "shop"}, PIDs: []int{11}}
	s.aim()
	if s.publish(); s.phase() != phaseStarting {
		t.Errorf("%s while it begins", s.phase())
	}
	clear(s.residents.present)
	s.task.missing = time.Now().Add(-restAfter)
	s.settle(t)
	if s.phase() != phaseWaiting || s.takes() != builtinTake || !s.task.recordings[0].edge.IsZero() {
		t.Errorf("%s, recording %s", s.phase(), s.takes())
	}
}

// TestCatchUp has processes become targets within a window of an hour: they are not
// waited for until its edge, but it is not cut for each of them either.
func TestCatchUp(t *testing.T) {
	s := newSite(t, time.Hour)
	s.have(t, 11)
	r := s.task.recordings[0]
	takes := r.instrument.Sampler().(*take)
	takes.cuts, r.edge = 0, time.Now().Add(time.Hour)
	for _, step := range []struct {
		name  string
		pids  []int
		later time.Duration // since the last one that was cut for
		edge  time.Duration // until it comes
		parts int
	}{
		{"nobody new", []int{11}, time.Hour, time.Hour, 0},
		{"one", []int{11, 12}, 0, time.Hour, 1},
		{"soon another", []int{11, 12, 13}, 0, time.Hour, 1},
		{"which has waited", []int{11, 12, 13}, catchUpPause, time.Hour, 2},
		{"nobody waits", []int{11, 12, 13}, catchUpPause, time.Hour, 2},
		{"the edge is near", []int{11, 12, 14}, catchUpPause, s.options.Look, 2},
	} {
		r.caught, r.edge = r.caught.Add(-step.later), time.Now().Add(step.edge)
		if s.have(t, step.pids...); takes.cuts != step.parts {
			t.Errorf("%s: %d parts of the window, want %d", step.name, takes.cuts, step.parts)
		}
	}
	s.cutNow(t, r, atEdge)
	takes.cuts, r.edge = 0, time.Now().Add(time.Hour)
	if s.have(t, 11, 12, 14); takes.cuts != 0 || r.behind {
		t.Error("it is cut for processes that the window's edge has brought in")
	}
	if others := s.tasks[1].recordings[0]; others.instrument.Sampler().(*take).cuts != 0 || others.behind {
		t.Error("a recording of everything is cut for new processes")
	}
}

// slowTake is a recording whose targets take a while to be ready.
type slowTake struct {
	*take
	ready bool
}

func (s *slowTake) Aim(add, drop []int) (fresh bool) {
	s.take.Aim(add, drop)
	fresh, s.ready = s.ready, false
	return fresh
}

// TestReadied has the first target of a recording be ready only after it was aimed
// at: it is sampled from then on, not from the edge. Others wait as those that are new.
func TestReadied(t *testing.T) {
	s := newSite(t, 10*time.Second)
	s.have(t, 11)
	r := s.task.recordings[0]
	slow := &slowTake{take: r.instrument.Sampler().(*take)}
	s.put(r, slow)
	slow.cuts, r.edge = 0, time.Now().Add(s.options.Look)
	for i, want := range []int{0, 1, 1} {
		s.readied()
		if s.settle(t); slow.cuts != want {
			t.Errorf("%d parts of the window, want %d", slow.cuts, want)
		}
		slow.ready = i < 2
	}
	if !r.behind {
		t.Error("those that are ready later are forgotten")
	}
}

// TestReadiedMeanwhile has the first target of a recording become ready while a window is
// cut: it is sampled from another cut on, right after that one.
func TestReadiedMeanwhile(t *testing.T) {
	s := newSite(t, time.Hour)
	s.have(t, 11)
	r := s.task.recordings[0]
	slow := &slowTake{take: r.instrument.Sampler().(*take), ready: true}
	s.put(r, slow)
	r.behind, slow.cuts, r.edge = false, 0, time.Now().Add(time.Hour)
	s.cut(r, early)
	s.readied()
	if s.settle(t); slow.cuts != 2 || r.behind {
		t.Errorf("%d cuts, behind: %v", slow.cuts, r.behind)
	}
}
