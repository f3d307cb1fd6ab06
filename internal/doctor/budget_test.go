package doctor

import (
	"strings"
	"testing"
)

// TestBudget names the agents that restrain something or are over their budget, and
// what costs most there.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name  string
		costs [2]*AgentCost // of the agents n1 and n2; nil: it does not say
		state State
		found string
		mend  string
	}{
		{"older agents", [2]*AgentCost{}, OK, "limits nothing", ""},
		{"within", [2]*AgentCost{{Cores: 0.01, CoresBudget: 0.04}, nil}, OK, "limits nothing", ""},
		{"tables wait", [2]*AgentCost{{Cores: 0.03, CoresBudget: 0.04, Message: "tables limited to 0.2% of a core", Causes: []AgentCause{{"naming", 0.001}, {"tables", 0.02}}}, nil},
			Limited, "limits hold on n1; n1 takes 3% of a core, of 4%, most of it for tables (2%), tables limited to 0.2% of a core", "atys describe agent n1"},
		{"over", [2]*AgentCost{{Cores: 0.5, CoresBudget: 1, Message: "at most 9 Hz"}, {Cores: 0.09, CoresBudget: 0.04, Over: true, Message: "over the budget", Causes: []AgentCause{{"store", 0.08}}}},
			Limited, "over the budget, with nothing left to limit: n2; n2 takes 9% of a core, of 4%, most of it for store (8%)", "--max-cpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := well()
			f.Agents[0].Cost, f.Agents[1].Cost = c.costs[0], c.costs[1]
			got := f.budget()
			if got.State != c.state || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Mend, c.mend) || (got.State == OK) != (got.Cost == "") {
				t.Errorf("%+v", got)
			}
		})
	}
}
