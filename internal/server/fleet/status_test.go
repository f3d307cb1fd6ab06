package fleet

import (
	"math"
	"testing"

	"atys.dev/atys/internal/wire/atysv1"
)

// TestAgentCost shows what an agent says of its budget, and no more than there is room for.
func TestAgentCost(t *testing.T) {
	c := command(t, "")
	if err := c.Fleet.connect(&atysv1.AttendRequest{Node: "n", Run: []byte("1")}); err != nil {
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
	a := c.agent(t, "n").GetState()
	if causes := a.GetCauses(); !a.GetOverBudget() || len(causes) != mostCauses || causes[0].GetCause() != "tables" || causes[0].GetNs() != 2e9 || causes[0].GetCores() != 0 {
		t.Errorf("of causes it shows %v", causes)
	}
	d := a.GetDecisions()
	if len(d) != mostDecisions || d[0].GetKnob() != "a knob of a newer agent" || d[0].GetTo() != 0 || d[0].GetWhy() != "tables took 3%" || d[0].GetUnixNano() != 1e18 || d[len(d)-1].GetWhy() != "the last" {
		t.Errorf("of decisions it shows %d: %v", len(d), d)
	}
}
