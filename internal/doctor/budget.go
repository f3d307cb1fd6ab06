package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// budget tells which agents do less than they were asked for to stay within their
// budgets, and on what the worst of them spends its time.
func (f ServerFacts) budget() Check {
	c := Check{Name: "budget", State: OK, Found: "every agent is within its budget, and limits nothing"}
	over := f.which(func(a AgentFacts) bool { return a.Cost != nil && a.Cost.Over })
	limited := f.which(func(a AgentFacts) bool { return a.Cost != nil && !a.Cost.Over && a.Cost.Message != "" })
	if len(over)+len(limited) == 0 {
		return c
	}
	worst := slices.MaxFunc(f.Agents, func(a, b AgentFacts) int { return cmp.Compare(a.strain(), b.strain()) })
	c.State, c.Found = Limited, fmt.Sprintf("limits hold on %s", names(limited))
	c.Cost = "less is sampled, or some stacks and names are missing, as windows say"
	if len(over) > 0 {
		c.Found = fmt.Sprintf("over the budget, with nothing left to limit: %s", names(over))
		c.Cost = "profiling takes more CPU time there than it may"
	}
	c.Found += "; " + worst.spending()
	c.Mend = fmt.Sprintf("atys describe agent %s shows each decision and why; give it a larger --max-cpu, or less to record", quote(worst.Node))
	return c
}

// strain is how hard it is for an agent to stay within its budget.
func (a *AgentFacts) strain() float64 {
	switch {
	case a.Cost == nil || a.Cost.Message == "" && !a.Cost.Over:
		return 0
	case a.Cost.Over:
		return 1000 + a.Cost.Cores
	}
	return 1 + a.Cost.Cores
}

// spending says what an agent takes, on what most, and what it did last.
func (a *AgentFacts) spending() string {
	parts := []string{fmt.Sprintf("%s takes %.2g%% of a core, of %.2g%%", a.Node, 100*a.Cost.Cores, 100*a.Cost.CoresBudget)}
	if causes := a.Cost.Causes; len(causes) > 0 {
		most := slices.MaxFunc(causes, func(a, b AgentCause) int { return cmp.Compare(a.Cores, b.Cores) })
		parts = append(parts, fmt.Sprintf("most of it for %s (%.2g%%)", most.Cause, 100*most.Cores))
	}
	if a.Cost.Message != "" {
		parts = append(parts, a.Cost.Message)
	}
	return strings.Join(parts, ", ")
}
