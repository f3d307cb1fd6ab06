package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"atys.dev/atys/internal/health"
)

// checked are the conditions that doctor looks for, as its checks are called, and
// what each costs. Late windows and the budget have checks of their own.
var checked = []struct {
	kind       health.Kind
	name, cost string
}{
	{health.Unsampled, "sampled time", "profiles show less CPU time than was used, and of some threads none"},
	{health.StacksCut, "stacks", "callers of truncated stacks are missing: flame graphs show them beside the others"},
	{health.Thrashing, "unwinding tables", "tables are loaded again and again, which costs CPU time and truncates stacks"},
	{health.RateLow, "rate", "profiles are coarser than was asked for"},
}

// conditions tell what agents report of themselves. A kind of a newer agent has a
// check of its own name.
func (f ServerFacts) conditions() (checks []Check) {
	known := []string{string(health.Late), string(health.OverBudget)}
	for _, c := range checked {
		known = append(known, string(c.kind))
		checks = append(checks, f.condition(string(c.kind), c.name, c.cost))
	}
	for _, a := range f.Agents {
		for _, c := range a.Conditions {
			if !slices.Contains(known, c.Kind) {
				known = append(known, c.Kind)
				checks = append(checks, f.condition(c.Kind, c.Kind, "not known here: the agent is of a newer version than this command"))
			}
		}
	}
	return checks
}

// condition judges one kind: it says what the first agent reports, and which others do.
func (f ServerFacts) condition(kind, name, cost string) Check {
	var first *Condition
	nodes := f.which(func(a AgentFacts) bool {
		c := a.condition(kind)
		if c != nil && first == nil {
			first = c
		}
		return c != nil
	})
	if first == nil {
		return Check{Name: name, State: OK, Found: "no agent reports trouble"}
	}
	found := fmt.Sprintf("%s, for %v: %s", nodes[0], f.Now.Sub(first.Since).Round(time.Second), first.Message)
	if len(nodes) > 1 {
		found += fmt.Sprintf("; also %s", names(nodes[1:]))
	}
	return Check{Name: name, State: Limited, Found: found, Cost: cost, Mend: cmp.Or(first.Fix, "journalctl -u atys-agent, on that machine, says more")}
}

// condition gives the condition of a kind that an agent reports; nil: it does not
// hold, or nothing is heard of the agent now.
func (a *AgentFacts) condition(kind string) *Condition {
	i := slices.IndexFunc(a.Conditions, func(c Condition) bool { return c.Kind == kind })
	if i < 0 || a.Phase == "silent" || a.Phase == "left" {
		return nil
	}
	return &a.Conditions[i]
}
