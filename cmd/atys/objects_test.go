package main

import (
	"testing"
	"time"

	"atys.dev/atys/internal/server"
)

// TestAgentAge has agents tell when they began by clocks of their own.
func TestAgentAge(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, test := range []struct {
		started      time.Time
		offset, want string
	}{
		{now.Add(-8 * time.Second), "0s", "8s"},
		{now.Add(time.Hour - 8*time.Second), "1h0m0s", "8s"},
		{now.Add(-time.Hour - 8*time.Second), "-1h0m0s", "8s"},
		{now.Add(time.Hour), "0s", "0s"}, // nobody has compared its clock yet
		{time.Time{}, "1h0m0s", "-"},
		{now.Add(-8 * time.Second), "", "8s"},
	} {
		a := &server.AgentStatus{Started: test.started, ClockOffset: test.offset}
		if got := agentAge(now, a); got != test.want {
			t.Errorf("an agent that began at %v by a clock %s ahead is %s old, want %s", test.started.Sub(now), test.offset, got, test.want)
		}
	}
}

// TestAgentWithMessage has the table say that there is more to know.
func TestAgentWithMessage(t *testing.T) {
	for message, want := range map[string]string{"": "connected", "two agents": "connected, see describe"} {
		row := agentRow(&server.AgentStatus{Node: "n", Phase: "connected", Message: message}, false, time.Now())
		if row[1] != want {
			t.Errorf("an agent of which is said %q: %q", message, row)
		}
	}
}
