package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"atys.dev/atys/internal/health"
)

// troubles are the conditions that agents report, as the page shows them.
type troubles struct {
	Line  string // sums them up; empty: there are none
	Items []string
}

// mostTroubles bounds the list: a whole fleet may be over its budget.
const mostTroubles = 20

// troubles lists the conditions that connected agents report, by node.
func (s *Server) troubles(ctx context.Context) (t troubles) {
	f, err := s.fleet(ctx)
	if err != nil {
		return troubles{} // it is in the log
	}
	agents, of := f.ailing()
	if len(agents) == 0 {
		return troubles{}
	}
	var kinds []string
	for _, kind := range health.Kinds() {
		if n := of[string(kind)]; n > 0 {
			kinds = append(kinds, string(kind))
		}
	}
	t.Line = fmt.Sprintf("%d of %d agents report trouble", len(agents), of[""])
	if len(kinds) > 0 {
		t.Line += ": " + strings.Join(kinds, ", ")
	}
	for _, a := range agents {
		for _, c := range a.Conditions {
			if len(t.Items) == mostTroubles {
				t.Items = append(t.Items, "and more: atys get agents")
				return t
			}
			t.Items = append(t.Items, fmt.Sprintf("%s, since %s: %s (%s)", a.Node, c.Since.Format("15:04:05 MST"), c.Message, cmp.Or(c.Fix, "atys describe agent "+a.Node)))
		}
	}
	return t
}

// ailing gives the agents that are heard of and report conditions, by node, and how
// many report which; under "" how many agents are heard of.
func (f *fleet) ailing() (agents []AgentStatus, of map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of = map[string]int{}
	for _, a := range f.agents {
		if f.state(a) != agentHeard {
			continue
		}
		of[""]++
		if len(a.report.GetState().GetConditions()) == 0 {
			continue
		}
		status := f.agentStatus(a)
		agents = append(agents, status)
		for _, c := range status.Conditions {
			of[c.Kind]++
		}
	}
	slices.SortFunc(agents, func(a, b AgentStatus) int { return cmp.Compare(a.Node, b.Node) })
	return agents, of
}
