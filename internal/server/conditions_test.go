package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestConditionsOfAgents has agents report troubles: they are shown of each agent,
// and counted.
func TestConditionsOfAgents(t *testing.T) {
	c, err := New(Options{Store: mem.New(1), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	// agent is what the server reports of one.
	agent := func(node string) *atysv1.NodeState {
		t.Helper()
		response, err := c.Get(t.Context(), &atysv1.GetRequest{Kind: "agents", Name: node})
		if err != nil {
			t.Fatal(err)
		}
		return response.GetObjects()[0].GetAgent().GetState()
	}
	report := func(node string, conditions ...*atysv1.Condition) {
		t.Helper()
		if _, err := c.Report(t.Context(), &atysv1.ReportRequest{Node: node, State: &atysv1.NodeState{Conditions: conditions}}); err != nil {
			t.Fatal(err)
		}
	}
	since := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	truncated := &atysv1.Condition{Kind: "stacks-truncated", SinceUnixNano: since.UnixNano(), Value: 0.15, Message: "15% of the stacks", Fix: "--unwind-memory"}
	report("a", truncated, &atysv1.Condition{Kind: "of a newer version"})
	report("b", truncated)
	var many []*atysv1.Condition
	for i := range 1000 {
		many = append(many, &atysv1.Condition{Kind: fmt.Sprint(i), Message: strings.Repeat("x", 10_000)})
	}
	if _, err := c.Report(t.Context(), &atysv1.ReportRequest{Node: "hostile", State: &atysv1.NodeState{Conditions: many}}); err == nil {
		if got := agent("hostile").GetConditions(); len(got) > 16 || len(got[0].GetMessage()) > 5000 {
			t.Errorf("of a hostile agent %d conditions of %d bytes are shown", len(got), len(got[0].GetMessage()))
		}
	}
	if got := agent("a").GetConditions(); len(got) != 2 || !proto.Equal(got[0], truncated) {
		t.Errorf("%v, want %v first", got, truncated)
	}
	page := httptest.NewRecorder()
	c.pages.Overview(page, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, text := range []string{"2 of 2 agents report trouble: stacks-truncated", "a, since 12:00:00 UTC: 15% of the stacks (--unwind-memory)"} {
		if !strings.Contains(page.Body.String(), text) {
			t.Errorf("the page does not say %q: %s", text, page.Body)
		}
	}
	wanted := `
# HELP atys_server_agents_in_condition Agents that report a trouble; see atys_agent_condition.
# TYPE atys_server_agents_in_condition gauge
atys_server_agents_in_condition{condition="over-budget"} 0
atys_server_agents_in_condition{condition="rate-lowered"} 0
atys_server_agents_in_condition{condition="stacks-truncated"} 2
atys_server_agents_in_condition{condition="tables-thrashing"} 0
atys_server_agents_in_condition{condition="time-not-sampled"} 0
atys_server_agents_in_condition{condition="windows-late"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(wanted), "atys_server_agents_in_condition"); err != nil {
		t.Error(err)
	}
}
