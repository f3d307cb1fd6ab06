package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// The kinds of objects.
const (
	kindProfiles = "profiles"
	kindAgents   = "agents"
	kindTargets  = "targets"
	kindRelays   = "relays"
)

// listed is an object with a key that no other of its kind has: two relays may have
// the same name.
type listed struct {
	*atysv1.Object
	key string
}

// list lists the objects of a kind; those of a name, if it is not empty.
func (f *Fleet) list(kind, name string) (all []*listed, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	meant := func(of string) bool { return name == "" || of == name }
	switch kind {
	case kindProfiles:
		for _, t := range f.profiles.sorted() {
			if meant(t.Profile.Name) {
				status, err := f.profiles.status(t, &f.agents)
				if err != nil {
					return nil, err
				}
				all = append(all, &listed{&atysv1.Object{Name: t.Profile.Name, Status: &atysv1.Object_Profile{Profile: status}}, t.Profile.Name})
			}
		}
	case kindAgents:
		for _, a := range f.agents.sorted() {
			if node := a.report.GetNode(); meant(node) {
				all = append(all, &listed{&atysv1.Object{Name: node, Status: &atysv1.Object_Agent{Agent: f.agents.status(a, f.relays.address(a.labels))}}, node})
			}
		}
	case kindTargets:
		targets, err := f.agents.targets(name)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		for _, t := range targets {
			labels := profile.Labels(t.GetLabels()).String()
			all = append(all, &listed{&atysv1.Object{Name: labels, Status: &atysv1.Object_Target{Target: t}}, labels})
		}
	case kindRelays:
		for _, o := range f.relays.sorted() {
			if meant(o.GetName()) {
				all = append(all, &listed{&atysv1.Object{Name: o.GetName(), Status: &atysv1.Object_Relay{Relay: f.relays.status(o, &f.agents)}}, string(o.id[:])})
			}
		}
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("there are no %.40q: ask for %s, %s, %s or %s", kind, kindProfiles, kindAgents, kindTargets, kindRelays))
	}
	for _, o := range all {
		o.Kind = kind
		if o.Json, err = document(o.Object); err != nil {
			return nil, fmt.Errorf("write %s %q: %w", kind, o.GetName(), err)
		}
	}
	return all, nil
}

// status returns the status of a profile, as agents report it.
func (p *profiles) status(t *task, agents *agents) (*atysv1.ProfileStatus, error) {
	text, err := t.text()
	if err != nil {
		return nil, fmt.Errorf("write profile %q: %w", t.Profile.Name, err)
	}
	s := &atysv1.ProfileStatus{Profile: text, CreatedUnixNano: t.Created.UnixNano(), Phase: "waiting"}
	if !t.Until.IsZero() {
		s.UntilUnixNano = t.Until.UnixNano()
	}
	if t.Profile.Instances > 0 {
		s.Instances = &atysv1.Instances{Recorded: uint32(len(chosenKeys(t.Chosen))), Eligible: uint32(t.Eligible)}
	}
	rates := p.rates.OfProfile(t.Profile.Name)
	for _, service := range slices.Sorted(maps.Keys(rates)) {
		s.Rates = append(s.Rates, &atysv1.ServiceRate{Service: service, Rate: wire.Rate(rates[service])})
	}
	phases := map[string]int{}
	for _, a := range agents.sorted() {
		for _, state := range a.report.GetTasks() {
			if state.GetId() == t.ID {
				phases[state.GetPhase()]++
				s.Nodes = append(s.Nodes, &atysv1.NodeTask{Node: a.report.GetNode(), State: &atysv1.TaskState{Id: t.ID, Phase: state.GetPhase(),
					Message: truncate(state.GetMessage()), Targets: state.GetTargets(), Frequency: finite(state.GetFrequency())}})
			}
		}
	}
	over := !t.Until.IsZero() && !p.now().Before(t.Until)
	switch { // the most significant phase first
	case phases["starting"]+phases["running"]+phases["ending"] > 0:
		s.Phase = "running"
	case phases["failed"] > 0:
		s.Phase = "failed"
	case over:
		s.Phase = "done"
	}
	return s, nil
}

// status returns the status of an agent, which ships to a relay or to the server.
func (s *agents) status(a *agent, shipsTo string) *atysv1.AgentStatus {
	r := a.report
	status := &atysv1.AgentStatus{Node: r.GetNode(), Version: r.GetVersion(), Phase: "connected", SeenUnixNano: a.seen.UnixNano(),
		Targets: uint32(len(r.GetTargets())), State: bounded(r.GetState()), Labels: a.labels, ShipsTo: shipsTo}
	if a.ambiguous() {
		status.Message = "two agents have this name, and this is the last report of either: give each a --node of its own"
	}
	switch {
	case a.left:
		status.Phase = agentLeft
	case len(a.runs) == 0 || s.silent(a):
		status.Phase = agentSilent
	}
	return status
}

// targets lists the targets of a name: all labels of one, as lists print them, a
// selector, or a service; all targets if it is empty.
func (s *agents) targets(name string) (all []*atysv1.Target, err error) {
	for _, a := range s.sorted() {
		all = append(all, a.report.GetTargets()...)
	}
	if name == "" {
		return all, nil
	}
	if i := slices.IndexFunc(all, func(t *atysv1.Target) bool { return profile.Labels(t.GetLabels()).String() == name }); i >= 0 {
		return all[i : i+1], nil
	}
	chosen := spec.Selector{{Label: "service", Op: spec.Equal, Value: name}}
	if strings.HasPrefix(name, "{") {
		if chosen, err = spec.ParseSelector(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(t *atysv1.Target) bool { return !chosen.Matches(t.GetLabels()) }), nil
}

// status returns the status of a relay.
func (r *relays) status(o *offer, agents *agents) *atysv1.RelayStatus {
	s := &atysv1.RelayStatus{Offer: o.OfferRequest, Group: o.group, Central: r.central[o.group] == o, SinceUnixNano: o.since.UnixNano()}
	if s.GetCentral() {
		for _, a := range agents.of {
			if len(a.runs) > 0 && r.group(a.labels) == o.group {
				s.Agents++
			}
		}
	}
	return s
}

// Bounds of what is shown of an agent, whatever it reports.
const mostConditions, mostCauses, mostDecisions = 16, 16, 32

// bounded copies what is shown of an agent's state, with its lists and texts truncated,
// and without numbers that JSON has no form for.
func bounded(s *atysv1.NodeState) *atysv1.NodeState {
	b := &atysv1.NodeState{WaitingWindows: s.GetWaitingWindows(), ShippedWindows: s.GetShippedWindows(), LostWindows: s.GetLostWindows(),
		ClockOffsetNs: s.GetClockOffsetNs(), ClockErrorNs: s.GetClockErrorNs(), CpuNs: s.GetCpuNs(), MemoryBytes: s.GetMemoryBytes(), StartedUnixNano: s.GetStartedUnixNano(),
		Cost: s.GetCost(), Cores: finite(s.GetCores()), CoresBudget: finite(s.GetCoresBudget()), MemoryBudget: s.GetMemoryBudget(), MapBytes: s.GetMapBytes(),
		BudgetMessage: truncate(s.GetBudgetMessage()), CapHertz: finite(s.GetCapHertz()), LastEnd: truncate(s.GetLastEnd()), OverBudget: s.GetOverBudget()}
	conditions, causes, decisions := s.GetConditions(), s.GetCauses(), s.GetDecisions()
	for _, c := range conditions[:min(len(conditions), mostConditions)] {
		b.Conditions = append(b.Conditions, &atysv1.Condition{Kind: truncate(c.GetKind()), SinceUnixNano: c.GetSinceUnixNano(), Value: finite(c.GetValue()),
			Message: truncate(c.GetMessage()), Fix: truncate(c.GetFix())})
	}
	for _, c := range causes[:min(len(causes), mostCauses)] {
		b.Causes = append(b.Causes, &atysv1.CauseTime{Cause: truncate(c.GetCause()), Ns: c.GetNs(), Cores: finite(c.GetCores())})
	}
	for _, d := range decisions[max(len(decisions)-mostDecisions, 0):] {
		b.Decisions = append(b.Decisions, &atysv1.BudgetDecision{UnixNano: d.GetUnixNano(), Cause: truncate(d.GetCause()), Knob: truncate(d.GetKnob()),
			From: finite(d.GetFrom()), To: finite(d.GetTo()), Why: truncate(d.GetWhy()), Relaxes: d.GetRelaxes()})
	}
	return b
}

// truncate returns the beginning of a text for people.
func truncate(text string) string {
	if len(text) <= wire.MaxLabel {
		return text
	}
	return strings.ToValidUTF8(text[:wire.MaxLabel], "") + "..."
}

// moment converts a time of a message; 0 is the zero time.
func moment(unixNano int64) time.Time {
	if unixNano == 0 {
		return time.Time{}
	}
	return time.Unix(0, unixNano).UTC()
}
