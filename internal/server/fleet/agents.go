package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// agents are the agents that are known. The lock of their Fleet guards them.
type agents struct {
	now  func() time.Time
	of   map[string]*agent // by node
	held int               // bytes of their reports and labels
}

// agent is an agent as its reports and connections describe it.
type agent struct {
	report *atysv1.ReportRequest // the last one; it is never changed
	first  time.Time             // when it was first heard of
	seen   time.Time
	runs   []string // of its connections
	run    []byte   // of the last that connected
	left   bool     // it has ended in order
	warned bool     // that two agents have its name
	labels profile.Labels

	revision uint64        // of orders that it alone is sent
	changed  chan struct{} // closed when its orders change

	reportBytes, labelBytes int // counted in agents.held
}

// States of agents.
const (
	agentHeard  = "heard"
	agentSilent = "silent" // unexpectedly
	agentLeft   = "left"   // in order
	agentGone   = "gone"   // silent for so long that it is not expected back
)

// States lists the states that Count counts agents by.
func States() []string { return []string{agentHeard, agentSilent, agentLeft, agentGone} }

// find returns an agent, and adds it if it is new.
func (s *agents) find(node string) (*agent, error) {
	if node == "" || len(node) > wire.MaxLabel {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a node is called %.40q: want a name of at most %d bytes", node, wire.MaxLabel))
	}
	a := s.of[node]
	if a == nil {
		if s.forgetSilent(); len(s.of) >= maxAgents {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d agents already", len(s.of)))
		}
		a = &agent{report: &atysv1.ReportRequest{Node: node}, first: s.now(), changed: make(chan struct{})}
		s.of[node] = a
	}
	return a, nil
}

// forgetSilent forgets agents that have been silent for long.
func (s *agents) forgetSilent() {
	for node, a := range s.of {
		if len(a.runs) == 0 && s.now().Sub(a.seen) > forgetAgent {
			s.held -= a.reportBytes + a.labelBytes
			delete(s.of, node)
		}
	}
}

// hold counts bytes that are kept of an agent in place of others. It fails if those
// of all agents would be too many.
func (s *agents) hold(before *int, bytes int) error {
	held := s.held - *before + bytes
	if held > maxHeld && bytes > *before {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("reports of agents take %d bytes: at most %d are kept", held, maxHeld))
	}
	s.held, *before = held, bytes
	return nil
}

// silent reports whether an agent has left, or has not reported recently.
func (s *agents) silent(a *agent) bool { return a.left || s.now().Sub(a.seen) > silentAfter }

// state returns an agent's state.
func (s *agents) state(a *agent) string {
	switch {
	case a.left:
		return agentLeft
	case !s.silent(a):
		return agentHeard
	case s.now().Sub(a.seen) > goneAfter:
		return agentGone
	}
	return agentSilent
}

// sorted lists agents by node.
func (s *agents) sorted() []*agent {
	return slices.SortedFunc(maps.Values(s.of), func(a, b *agent) int { return cmp.Compare(a.report.GetNode(), b.report.GetNode()) })
}

// place is where a target is.
type place struct {
	node   string
	labels profile.Labels
}

// eligible finds the targets that a profile selects, of agents that are heard of.
func (s *agents) eligible(p *spec.Profile) map[string]place {
	all := map[string]place{}
	for node, a := range s.of {
		if s.silent(a) {
			continue
		}
		for _, target := range a.report.GetTargets() {
			if labels := profile.Labels(target.GetLabels()); p.Matches(labels) {
				all[labels.String()] = place{node, labels}
			}
		}
	}
	return all
}

// ambiguous reports whether two agents are connected by the same name. An agent whose
// machine lost power is, until its old connection is found to be dead.
func (a *agent) ambiguous() bool {
	return slices.ContainsFunc(a.runs, func(run string) bool { return run != a.runs[0] })
}

// order changes the orders of one agent: others are not woken.
func (a *agent) order() {
	a.revision++
	a.wake()
}

// wake wakes an agent's connections, to be sent its orders.
func (a *agent) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func checkReport(r *atysv1.ReportRequest) error {
	if size := proto.Size(r); size > maxReport {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("a report of %d bytes: at most %d are accepted", size, maxReport))
	}
	if len(r.GetTargets()) > maxTargets || len(r.GetTasks()) > 2*maxProfiles {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d targets and %d tasks: at most %d and %d are accepted", len(r.GetTargets()), len(r.GetTasks()), maxTargets, 2*maxProfiles))
	}
	names := []string{r.GetVersion(), string(r.GetRun()), r.GetState().GetMetricsAddress()}
	for _, t := range r.GetTasks() { // their messages are truncated when they are shown
		names = append(names, t.GetId(), t.GetPhase())
	}
	if err := wire.CheckNames(names...); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	for _, t := range r.GetTargets() {
		if err := wire.CheckLabels(t.GetLabels()); err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	return nil
}

func sameTargets(a, b *atysv1.ReportRequest) bool {
	return slices.EqualFunc(a.GetTargets(), b.GetTargets(), func(a, b *atysv1.Target) bool { return proto.Equal(a, b) })
}

// watching returns which of some profiles an agent records, with the lengths of their
// windows.
func watching(r *atysv1.ReportRequest, profiles map[string]*spec.Profile) map[string]time.Duration {
	tasks := map[string]time.Duration{}
	for _, state := range r.GetTasks() {
		if p := profiles[state.GetId()]; p != nil && state.GetPhase() != "ending" && state.GetPhase() != "done" {
			tasks[p.Name] = p.Window
		}
	}
	return tasks
}
