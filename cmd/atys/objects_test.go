package main

import (
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestAgentAge has agents tell when they began by clocks of their own.
func TestAgentAge(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, test := range []struct {
		started       time.Time
		offset, error time.Duration
		want          string
	}{
		{now.Add(-8 * time.Second), 0, 0, "8s"},
		{now.Add(time.Hour - 8*time.Second), time.Hour, 0, "8s"},
		{now.Add(-time.Hour - 8*time.Second), -time.Hour, 0, "8s"},
		{now.Add(time.Hour), 0, 0, "0s"},
		{time.Time{}, time.Hour, 0, "-"},
		{now.Add(-8 * time.Second), time.Hour, profile.ClockUnknown, "8s"}, // nobody has compared its clock yet
	} {
		a := &atysv1.NodeState{ClockOffsetNs: int64(test.offset), ClockErrorNs: int64(test.error)}
		if !test.started.IsZero() {
			a.StartedUnixNano = test.started.UnixNano()
		}
		if got := agentAge(now, a); got != test.want {
			t.Errorf("an agent that began at %v by a clock %v ahead is %s old, want %s", test.started.Sub(now), test.offset, got, test.want)
		}
	}
}

// TestAgentWithMessage has the table say that there is more to know.
func TestAgentWithMessage(t *testing.T) {
	for message, want := range map[string]string{"": "connected", "two agents": "connected, see describe"} {
		row := agentRow(&atysv1.AgentStatus{Node: "n", Phase: "connected", Message: message}, false, time.Now())
		if row[1] != want {
			t.Errorf("an agent of which is said %q: %q", message, row)
		}
	}
}

// TestObjectsOfEarlierServers refuses tables of objects without a status, and says what
// to do.
func TestObjectsOfEarlierServers(t *testing.T) {
	if _, err := objectRow(&atysv1.Object{Kind: "agents", Name: "n", Json: `{"node":"n"}`}, false, time.Now()); err == nil || !strings.Contains(err.Error(), "use -o json") {
		t.Errorf("%v", err)
	}
}
