package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// document writes the status of an object in JSON, as commands print it. Programs read
// the status itself.
func document(o *atysv1.Object) (string, error) {
	var status any
	switch s := o.GetStatus().(type) {
	case *atysv1.Object_Profile:
		status = profileDocumentOf(s.Profile)
	case *atysv1.Object_Agent:
		status = agentDocumentOf(s.Agent)
	case *atysv1.Object_Target:
		status = targetDocument{s.Target.GetLabels(), s.Target.GetProcesses()}
	case *atysv1.Object_Relay:
		r, o := s.Relay, s.Relay.GetOffer()
		status = relayDocument{o.GetName(), o.GetVersion(), o.GetAddress(), r.GetGroup(), r.GetCentral(), r.GetAgents(), moment(r.GetSinceUnixNano()), o.GetLabels()}
	default:
		return "", fmt.Errorf("no document has a %T", s)
	}
	text, err := json.Marshal(status)
	return string(text), err
}

// profileDocument is a profile with its status.
type profileDocument struct {
	Profile json.RawMessage `json:"profile"`
	Created time.Time       `json:"created"`
	Until   *time.Time      `json:"until,omitempty"`
	Phase   string          `json:"phase"` // waiting, running, done, failed
	Nodes   []nodeDocument  `json:"nodes,omitempty"`
	// Where not all instances are recorded.
	Recorded *uint32 `json:"recorded,omitempty"`
	Eligible *uint32 `json:"eligible,omitempty"`
	// Where a policy decides on them: those of services that have sent windows.
	Rates []rateDocument `json:"rates,omitempty"`
}

// rateDocument is the sampling rate of a service.
type rateDocument struct {
	Service string  `json:"service"`
	Hertz   float64 `json:"hertz"`
	Reason  string  `json:"reason"`
	Why     string  `json:"why,omitempty"`
}

// nodeDocument is the state of a profile on a node.
type nodeDocument struct {
	Node      string  `json:"node"`
	Phase     string  `json:"phase"`
	Message   string  `json:"message,omitempty"`
	Targets   uint32  `json:"targets"`
	Frequency float64 `json:"frequency,omitempty"` // Hz at which it samples now
}

// agentDocument is the status of an agent.
type agentDocument struct {
	Node        string              `json:"node"`
	Version     string              `json:"version"`
	Phase       string              `json:"phase"` // connected, silent, left (in order)
	Started     time.Time           `json:"started"`
	Seen        time.Time           `json:"seen"`
	Targets     uint32              `json:"targets"`
	Waiting     uint32              `json:"waitingWindows"`
	Shipped     uint64              `json:"shippedWindows"`
	Lost        uint64              `json:"lostWindows"`
	ClockOffset string              `json:"clockOffset"`
	ClockError  string              `json:"clockError"` // or "unknown", as is the offset then
	CPU         string              `json:"cpu"`
	Memory      uint64              `json:"memoryBytes"`
	Cost        *costDocument       `json:"cost,omitempty"`
	LastEnd     string              `json:"lastEnd,omitempty"`    // how its last run ended, if not in order
	Message     string              `json:"message,omitempty"`    // what is wrong with it
	Conditions  []conditionDocument `json:"conditions,omitempty"` // that hold now, the worst first

	Labels  profile.Labels `json:"labels,omitempty"`
	ShipsTo string         `json:"shipsTo,omitempty"` // address of its group's relay
}

// costDocument is what an agent uses of its machine, and may use.
type costDocument struct {
	User         string  `json:"user"` // CPU time of its own process since it began
	BPF          string  `json:"bpf"`  // of its BPF programs that sample
	Interrupt    string  `json:"interrupt"`
	Cores        float64 `json:"cores"`                  // of late
	CoresBudget  float64 `json:"coresBudget,omitempty"`  // 0: no limit
	MapBytes     uint64  `json:"mapBytes"`               // not in memoryBytes
	MemoryBudget uint64  `json:"memoryBudget,omitempty"` // of both
	Cap          float64 `json:"capHertz,omitempty"`     // the highest rate at which it samples
	Message      string  `json:"message,omitempty"`      // what it does to stay within its budget

	Over      bool               `json:"overBudget,omitempty"` // and nothing is left to limit
	Causes    []causeDocument    `json:"causes,omitempty"`
	Decisions []decisionDocument `json:"decisions,omitempty"` // the latest, the oldest of them first
}

// causeDocument is the CPU time of an agent by cause.
type causeDocument struct {
	Cause string  `json:"cause"`
	CPU   string  `json:"cpu"`   // since it began
	Cores float64 `json:"cores"` // of late
}

// decisionDocument is a step that an agent took to stay within its budget. From and To
// are in the unit of the knob; 0 is no limit.
type decisionDocument struct {
	At      time.Time `json:"at"`
	Cause   string    `json:"cause"`
	Knob    string    `json:"knob"`
	From    float64   `json:"from"`
	To      float64   `json:"to"`
	Why     string    `json:"why"`
	Relaxes bool      `json:"relaxes,omitempty"` // lifts a limit
}

// conditionDocument is a condition that an agent reports; see package health.
type conditionDocument struct {
	Kind    string    `json:"kind"`
	Since   time.Time `json:"since"`
	Value   float64   `json:"value"`
	Message string    `json:"message"`
	Fix     string    `json:"fix,omitempty"`
}

// targetDocument is a target.
type targetDocument struct {
	Labels    profile.Labels `json:"labels"`
	Processes uint32         `json:"processes"`
}

// relayDocument is the status of a relay.
type relayDocument struct {
	Name    string         `json:"name"`
	Version string         `json:"version"`
	Address string         `json:"address"`
	Group   string         `json:"group"`
	Central bool           `json:"central"` // the group's agents ship to it
	Agents  uint32         `json:"agents"`  // that ship to it
	Since   time.Time      `json:"since"`
	Labels  profile.Labels `json:"labels,omitempty"`
}

func profileDocumentOf(s *atysv1.ProfileStatus) profileDocument {
	d := profileDocument{Profile: json.RawMessage(s.GetProfile()), Created: moment(s.GetCreatedUnixNano()), Phase: s.GetPhase()}
	if until := moment(s.GetUntilUnixNano()); !until.IsZero() {
		d.Until = &until
	}
	if i := s.GetInstances(); i != nil {
		d.Recorded, d.Eligible = &i.Recorded, &i.Eligible
	}
	for _, n := range s.GetNodes() {
		t := n.GetState()
		d.Nodes = append(d.Nodes, nodeDocument{n.GetNode(), t.GetPhase(), t.GetMessage(), t.GetTargets(), t.GetFrequency()})
	}
	for _, r := range s.GetRates() {
		d.Rates = append(d.Rates, rateDocument{r.GetService(), r.GetRate().GetHertz(), r.GetRate().GetReason(), r.GetRate().GetWhy()})
	}
	return d
}

func agentDocumentOf(a *atysv1.AgentStatus) agentDocument {
	s := a.GetState()
	d := agentDocument{Node: a.GetNode(), Version: a.GetVersion(), Phase: a.GetPhase(), Started: moment(s.GetStartedUnixNano()), Seen: moment(a.GetSeenUnixNano()), Targets: a.GetTargets(),
		Waiting: s.GetWaitingWindows(), Shipped: s.GetShippedWindows(), Lost: s.GetLostWindows(),
		ClockOffset: time.Duration(s.GetClockOffsetNs()).String(), ClockError: clockError(time.Duration(s.GetClockErrorNs())),
		CPU: time.Duration(s.GetCpuNs()).String(), Memory: s.GetMemoryBytes(), LastEnd: s.GetLastEnd(), Message: a.GetMessage(), Labels: a.GetLabels(), ShipsTo: a.GetShipsTo()}
	if c := s.GetCost(); c != nil {
		d.Cost = &costDocument{User: time.Duration(c.GetUserNs()).String(), BPF: time.Duration(c.GetBpfNs()).String(), Interrupt: time.Duration(c.GetInterruptNs()).String(),
			Cores: s.GetCores(), CoresBudget: s.GetCoresBudget(), MapBytes: s.GetMapBytes(), MemoryBudget: s.GetMemoryBudget(),
			Cap: s.GetCapHertz(), Message: s.GetBudgetMessage(), Over: s.GetOverBudget()}
		for _, c := range s.GetCauses() {
			d.Cost.Causes = append(d.Cost.Causes, causeDocument{c.GetCause(), time.Duration(c.GetNs()).String(), c.GetCores()})
		}
		for _, t := range s.GetDecisions() {
			d.Cost.Decisions = append(d.Cost.Decisions, decisionDocument{time.Unix(0, t.GetUnixNano()).UTC(), t.GetCause(), t.GetKnob(), t.GetFrom(), t.GetTo(), t.GetWhy(), t.GetRelaxes()})
		}
	}
	for _, c := range s.GetConditions() {
		d.Conditions = append(d.Conditions, conditionDocument{c.GetKind(), time.Unix(0, c.GetSinceUnixNano()).UTC(), c.GetValue(), c.GetMessage(), c.GetFix()})
	}
	return d
}

// clockError says by how much a clock may be wrong.
func clockError(d time.Duration) string {
	if d == profile.ClockUnknown {
		return "unknown"
	}
	return d.String()
}

// finite replaces numbers that JSON has no form for by 0.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
