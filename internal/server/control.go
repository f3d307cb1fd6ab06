package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// The kinds of objects, as people ask for them.
const (
	kindProfiles = "profiles"
	kindAgents   = "agents"
	kindTargets  = "targets"
	kindRelays   = "relays"
)

// ProfileStatus is a profile and how it fares.
type ProfileStatus struct {
	Profile *spec.Profile `json:"profile"`
	Created time.Time     `json:"created"`
	Until   *time.Time    `json:"until,omitempty"`
	Phase   string        `json:"phase"` // waiting, running, done, failed
	Nodes   []NodeTask    `json:"nodes,omitempty"`
	// Where not all instances are recorded: so many of so many.
	Recorded *int `json:"recorded,omitempty"`
	Eligible *int `json:"eligible,omitempty"`
	// Where a policy chooses them: those of the services that have sent windows.
	Rates []ProfileRate `json:"rates,omitempty"`
}

// ProfileRate is how often a service is sampled, and why.
type ProfileRate struct {
	Service string  `json:"service"`
	Hertz   float64 `json:"hertz"`
	Reason  string  `json:"reason"`
	Why     string  `json:"why,omitempty"`
}

// NodeTask is how a profile fares on a node.
type NodeTask struct {
	Node      string  `json:"node"`
	Phase     string  `json:"phase"`
	Message   string  `json:"message,omitempty"`
	Targets   int     `json:"targets"`
	Frequency float64 `json:"frequency,omitempty"` // Hz at which it samples now
}

// AgentStatus is an agent and how it fares.
type AgentStatus struct {
	Node        string           `json:"node"`
	Version     string           `json:"version"`
	Phase       string           `json:"phase"` // connected, silent, left (in order)
	Started     time.Time        `json:"started"`
	Seen        time.Time        `json:"seen"`
	Targets     int              `json:"targets"`
	Waiting     int              `json:"waitingWindows"`
	Shipped     int              `json:"shippedWindows"`
	Lost        int              `json:"lostWindows"`
	ClockOffset string           `json:"clockOffset"`
	ClockError  string           `json:"clockError"` // or "unknown", as is the offset then
	CPU         string           `json:"cpu"`
	Memory      int              `json:"memoryBytes"`
	Cost        *AgentCost       `json:"cost,omitempty"`
	LastEnd     string           `json:"lastEnd,omitempty"`    // how its last life ended, if not by itself
	Message     string           `json:"message,omitempty"`    // what is wrong with it
	Conditions  []AgentCondition `json:"conditions,omitempty"` // that hold now, the worst first

	Labels  profile.Labels `json:"labels,omitempty"`
	ShipsTo string         `json:"shipsTo,omitempty"` // address of its group's relay
}

// AgentCost is what an agent takes of its machine, and may.
type AgentCost struct {
	User         string  `json:"user"` // CPU time of its own process since it began
	BPF          string  `json:"bpf"`  // of its programs that take samples
	Interrupt    string  `json:"interrupt"`
	Cores        float64 `json:"cores"`                  // of late
	CoresBudget  float64 `json:"coresBudget,omitempty"`  // 0: as much as it likes
	MapBytes     int     `json:"mapBytes"`               // not in memoryBytes
	MemoryBudget int     `json:"memoryBudget,omitempty"` // of both
	Cap          float64 `json:"capHertz,omitempty"`     // above which it samples nothing
	Message      string  `json:"message,omitempty"`      // what it does to keep within

	Over      bool            `json:"overBudget,omitempty"` // and nothing is left to restrain
	Causes    []AgentCause    `json:"causes,omitempty"`
	Decisions []AgentDecision `json:"decisions,omitempty"` // the latest, the oldest of them first
}

// AgentCause is the CPU time that an agent spent on one cause.
type AgentCause struct {
	Cause string  `json:"cause"`
	CPU   string  `json:"cpu"`   // since it began
	Cores float64 `json:"cores"` // of late
}

// AgentDecision is one step that an agent took to stay within its budget. From and
// To are in the knob's own terms; 0 is no limit.
type AgentDecision struct {
	At      time.Time `json:"at"`
	Cause   string    `json:"cause"`
	Knob    string    `json:"knob"`
	From    float64   `json:"from"`
	To      float64   `json:"to"`
	Why     string    `json:"why"`
	Relaxes bool      `json:"relaxes,omitempty"` // gives back what was restrained
}

// AgentCondition is a trouble that an agent reports of itself; see package health.
type AgentCondition struct {
	Kind    string    `json:"kind"`
	Since   time.Time `json:"since"`
	Value   float64   `json:"value"`
	Message string    `json:"message"`
	Fix     string    `json:"fix,omitempty"`
}

// TargetStatus is a target, as its agent sees it.
type TargetStatus struct {
	Labels    profile.Labels `json:"labels"`
	Processes int            `json:"processes"`
}

// Apply makes profiles, or changes them; see the service Control.
func (s *Server) Apply(ctx context.Context, r *atysv1.ApplyRequest) (*atysv1.ApplyResponse, error) {
	var orders []*ordered
	for _, text := range r.GetObjects() {
		p, err := spec.ParseJSON([]byte(text))
		if err == nil {
			err = p.CheckNew()
		}
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		if slices.ContainsFunc(orders, func(o *ordered) bool { return o.Profile.Name == p.Name }) {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("profile %q is there twice", p.Name))
		}
		orders = append(orders, newOrdered(p, s.now()))
	}
	f, err := s.fleet(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.apply(orders); err != nil {
		return nil, err
	}
	response := &atysv1.ApplyResponse{}
	for _, o := range orders {
		objects, err := f.objects(kindProfiles, o.Profile.Name)
		if err != nil {
			return nil, err
		}
		response.Objects = append(response.Objects, objects...)
	}
	return response, nil
}

// Get lists objects of a kind; see the service Control.
func (s *Server) Get(ctx context.Context, r *atysv1.GetRequest) (*atysv1.GetResponse, error) {
	f, err := s.fleet(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := f.objects(r.GetKind(), r.GetName())
	if err != nil {
		return nil, err
	}
	if r.GetName() != "" && len(objects) == 0 {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no %s %q", strings.TrimSuffix(r.GetKind(), "s"), r.GetName()))
	}
	return &atysv1.GetResponse{Objects: objects}, nil
}

// Delete forgets a profile; see the service Control.
func (s *Server) Delete(ctx context.Context, r *atysv1.DeleteRequest) (*atysv1.DeleteResponse, error) {
	if r.GetKind() != kindProfiles {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%.40q cannot be deleted: agents, targets and relays come and go by themselves", r.GetKind()))
	}
	f, err := s.fleet(ctx)
	if err != nil {
		return nil, err
	}
	return &atysv1.DeleteResponse{}, f.delete(r.GetName())
}

// Watch gives objects, then what changes; see the service Control.
func (s *Server) Watch(ctx context.Context, r *atysv1.GetRequest, stream *connect.ServerStream[atysv1.Change]) error {
	f, err := s.fleet(ctx)
	if err != nil {
		return err
	}
	if err := s.watches.begin(ctx); err != nil {
		return err
	}
	defer s.watches.end(ctx)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	known := map[string]*listed{}
	tell := func(what string, o *atysv1.Object) error { return stream.Send(&atysv1.Change{What: what, Object: o}) }
	for synced := false; ; synced = true {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		moved, ended := f.moves()
		if ended {
			return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: watch again"))
		}
		objects, err := f.list(r.GetKind(), r.GetName())
		if err != nil {
			return err
		}
		if err := tellChanges(known, objects, tell); err != nil {
			return err
		}
		if !synced {
			if err := tell("synced", nil); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		case <-beat.C:
		}
		select { // what comes in a burst is told once
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// watches are those that stand, of each who asks: every one of them looks through
// the whole fleet each time that something moves.
type watches struct {
	mu sync.Mutex // guards of
	of map[auth.Identity]int
}

// mostWatches are those that may stand of one who asks.
const mostWatches = 32

func (w *watches) begin(ctx context.Context) error {
	who, _ := auth.From(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[who] >= mostWatches {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("you watch %d times already: end one of them first", mostWatches))
	}
	w.of[who]++
	return nil
}

func (w *watches) end(ctx context.Context) {
	who, _ := auth.From(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[who]--; w.of[who] == 0 {
		delete(w.of, who)
	}
}

// watchPause is the least time between two looks at what changed.
const watchPause = 100 * time.Millisecond

// tellChanges tells what is not as it was, and remembers it.
func tellChanges(known map[string]*listed, objects []*listed, tell func(string, *atysv1.Object) error) error {
	there := map[string]bool{}
	for _, o := range objects {
		there[o.key] = true
		old := known[o.key]
		if old != nil && old.GetJson() == o.GetJson() {
			continue
		}
		what := "changed"
		if old == nil {
			what = "added"
		}
		known[o.key] = o
		if err := tell(what, o.Object); err != nil {
			return err
		}
	}
	for key, o := range known {
		if !there[key] {
			delete(known, key)
			if err := tell("removed", o.Object); err != nil {
				return err
			}
		}
	}
	return nil
}

// moves gives what is closed when anything changes.
func (f *fleet) moves() (moved <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved, f.ended
}

// objects lists the objects of a kind, or those of a name.
func (f *fleet) objects(kind, name string) (all []*atysv1.Object, err error) {
	there, err := f.list(kind, name)
	for _, o := range there {
		all = append(all, o.Object)
	}
	return all, err
}

// listed is an object, and what no other one of its kind has: relays choose their
// names themselves, and two may have the same.
type listed struct {
	*atysv1.Object
	key string
}

// list lists the objects of a kind, or those of a name.
func (f *fleet) list(kind, name string) (all []*listed, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	meant := func(of string) bool { return name == "" || of == name }
	add := func(key, of string, status any) {
		text, marshalErr := json.Marshal(status)
		if marshalErr != nil {
			err = fmt.Errorf("write %s %q: %w", kind, of, marshalErr)
			return
		}
		all = append(all, &listed{&atysv1.Object{Kind: kind, Name: of, Json: string(text)}, key})
	}
	switch kind {
	case kindProfiles:
		for _, t := range f.sorted() {
			if meant(t.Profile.Name) {
				add(t.Profile.Name, t.Profile.Name, f.profileStatus(t))
			}
		}
	case kindAgents:
		for _, a := range f.byNode() {
			if meant(a.report.GetNode()) {
				add(a.report.GetNode(), a.report.GetNode(), f.agentStatus(a))
			}
		}
	case kindTargets:
		targets, err := f.targets(name)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		for _, t := range targets {
			add(t.Labels.String(), t.Labels.String(), t)
		}
	case kindRelays:
		for _, r := range f.relays.sorted() {
			if meant(r.Name) {
				add(string(r.id[:]), r.Name, f.relayStatus(r))
			}
		}
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("there are no %.40q: ask for %s, %s, %s or %s", kind, kindProfiles, kindAgents, kindTargets, kindRelays))
	}
	return all, err
}

// targets lists those that are meant: by all labels of one, as a list shows them,
// by a selector or by the name of a service; all of them if nothing is said. The
// lock is held.
func (f *fleet) targets(name string) (all []TargetStatus, err error) {
	for _, a := range f.byNode() {
		for _, t := range a.report.GetTargets() {
			all = append(all, TargetStatus{Labels: t.GetLabels(), Processes: int(t.GetProcesses())})
		}
	}
	if name == "" {
		return all, nil
	}
	if i := slices.IndexFunc(all, func(t TargetStatus) bool { return t.Labels.String() == name }); i >= 0 {
		return all[i : i+1], nil
	}
	chosen := spec.Selector{{Label: "service", Op: spec.Equal, Value: name}}
	if strings.HasPrefix(name, "{") {
		if chosen, err = spec.ParseSelector(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(t TargetStatus) bool { return !chosen.Matches(t.Labels) }), nil
}

// profileStatus gathers what agents tell of a profile. The lock is held.
func (f *fleet) profileStatus(t *task) ProfileStatus {
	p := ProfileStatus{Profile: t.Profile, Created: t.Created, Phase: "waiting"}
	if !t.Until.IsZero() {
		p.Until = &t.Until
	}
	if t.Profile.Instances > 0 {
		recorded := len(chosenKeys(t.Chosen))
		p.Recorded, p.Eligible = &recorded, &t.Eligible
	}
	p.Rates = profileRates(f.rates.list(t.Profile.Name, ""))
	phases := map[string]int{}
	for _, a := range f.byNode() {
		for _, state := range a.report.GetTasks() {
			if state.GetId() == t.ID {
				phases[state.GetPhase()]++
				p.Nodes = append(p.Nodes, NodeTask{Node: a.report.GetNode(), Phase: state.GetPhase(), Message: cut(state.GetMessage()), Targets: int(state.GetTargets()), Frequency: finite(state.GetFrequency())})
			}
		}
	}
	over := !t.Until.IsZero() && !f.now().Before(t.Until)
	switch { // what tells most first
	case phases["starting"]+phases["running"]+phases["ending"] > 0:
		p.Phase = "running"
	case phases["failed"] > 0:
		p.Phase = "failed"
	case over:
		p.Phase = "done"
	}
	return p
}

// profileRates are the rates of a profile's services.
func profileRates(of map[courseKey]profile.Rate) (all []ProfileRate) {
	for _, key := range sortedKeys(of) {
		rate := of[key]
		all = append(all, ProfileRate{Service: key.service, Hertz: rate.Hertz, Reason: rate.Reason, Why: rate.Why})
	}
	return all
}

// clockError tells by how much a clock may be wrong.
func clockError(d time.Duration) string {
	if d == profile.ClockUnknown {
		return "unknown"
	}
	return d.String()
}

// cut is the beginning of what an agent says for people.
func cut(message string) string {
	if len(message) <= wire.MaxLabel {
		return message
	}
	return strings.ToValidUTF8(message[:wire.MaxLabel], "") + "..."
}

// finite is a number that JSON can hold.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// reported are the conditions of an agent, of which a hostile one may report any number.
func reported(state *atysv1.NodeState) []*atysv1.Condition {
	const most = 16
	all := state.GetConditions()
	return all[:min(len(all), most)]
}

// mostCauses and mostDecisions bound what is shown of an agent, whatever it sends.
const mostCauses, mostDecisions = 16, 32

func agentCauses(state *atysv1.NodeState) (all []AgentCause) {
	for _, c := range state.GetCauses() {
		if len(all) == mostCauses {
			break
		}
		all = append(all, AgentCause{cut(c.GetCause()), time.Duration(c.GetNs()).String(), finite(c.GetCores())})
	}
	return all
}

func agentDecisions(state *atysv1.NodeState) (all []AgentDecision) {
	sent := state.GetDecisions()
	for _, d := range sent[max(len(sent)-mostDecisions, 0):] {
		all = append(all, AgentDecision{time.Unix(0, d.GetUnixNano()).UTC(), cut(d.GetCause()), cut(d.GetKnob()), finite(d.GetFrom()), finite(d.GetTo()), cut(d.GetWhy()), d.GetRelaxes()})
	}
	return all
}

func (f *fleet) agentStatus(a *attendant) AgentStatus {
	r, state := a.report, a.report.GetState()
	status := AgentStatus{Node: r.GetNode(), Version: r.GetVersion(), Phase: "connected", Seen: a.seen, Targets: len(r.GetTargets()),
		Waiting: int(state.GetWaitingWindows()), Shipped: int(state.GetShippedWindows()), Lost: int(state.GetLostWindows()),
		ClockOffset: time.Duration(state.GetClockOffsetNs()).String(), ClockError: clockError(time.Duration(state.GetClockErrorNs())),
		CPU: time.Duration(state.GetCpuNs()).String(), Memory: int(state.GetMemoryBytes()), Labels: a.labels, ShipsTo: f.relays.address(a.labels)}
	if c := state.GetCost(); c != nil {
		status.Cost = &AgentCost{User: time.Duration(c.GetUserNs()).String(), BPF: time.Duration(c.GetBpfNs()).String(), Interrupt: time.Duration(c.GetInterruptNs()).String(),
			Cores: finite(state.GetCores()), CoresBudget: finite(state.GetCoresBudget()), MapBytes: int(state.GetMapBytes()), MemoryBudget: int(state.GetMemoryBudget()),
			Cap: finite(state.GetCapHertz()), Message: cut(state.GetBudgetMessage()),
			Over: state.GetOverBudget(), Causes: agentCauses(state), Decisions: agentDecisions(state)}
	}
	for _, c := range reported(state) {
		status.Conditions = append(status.Conditions, AgentCondition{Kind: cut(c.GetKind()), Since: time.Unix(0, c.GetSinceUnixNano()).UTC(),
			Value: finite(c.GetValue()), Message: cut(c.GetMessage()), Fix: cut(c.GetFix())})
	}
	status.LastEnd = cut(state.GetLastEnd())
	if a.twice() {
		status.Message = "two agents attend under this name, and this is what the last of them told: give each a --node of its own"
	}
	if started := state.GetStartedUnixNano(); started != 0 {
		status.Started = time.Unix(0, started).UTC()
	}
	switch {
	case a.left:
		status.Phase = agentLeft
	case len(a.runs) == 0 || f.silent(a):
		status.Phase = agentSilent
	}
	return status
}
