package server

import (
	"math"
	"testing"

	"atys.dev/atys/internal/wire/atysv1"
)

// TestAgentCost shows what an agent says of its budget, and no more than there is room for.
func TestAgentCost(t *testing.T) {
	c := command(t, "")
	if err := c.own(t).arrive(&atysv1.AttendRequest{Node: "n", Run: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	state := &atysv1.NodeState{Cost: &atysv1.Cost{UserNs: 1}, OverBudget: true}
	for range 100 {
		state.Causes = append(state.Causes, &atysv1.CauseTime{Cause: "tables", Ns: 2e9, Cores: math.NaN()})
		state.Decisions = append(state.Decisions, &atysv1.BudgetDecision{UnixNano: 1e18, Cause: "tables", Knob: "a knob of a newer agent", From: 1, To: math.Inf(1), Why: "tables took 3%", Relaxes: true})
	}
	state.Decisions[99].Why = "the last"
	if _, err := c.fleet.Report(t.Context(), &atysv1.ReportRequest{Node: "n", Run: []byte("1"), State: state}); err != nil {
		t.Fatal(err)
	}
	f := c.own(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	cost := f.agentStatus(f.agents["n"]).Cost
	if !cost.Over || len(cost.Causes) != mostCauses || cost.Causes[0] != (AgentCause{"tables", "2s", 0}) {
		t.Errorf("of causes it shows %+v", cost)
	}
	d := cost.Decisions
	if len(d) != mostDecisions || d[0].Knob != "a knob of a newer agent" || d[0].To != 0 || d[0].Why != "tables took 3%" || d[0].At.Year() != 2001 || d[len(d)-1].Why != "the last" {
		t.Errorf("of decisions it shows %d: %+v", len(d), d)
	}
}
