package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestReportsAreBounded keeps so much of what agents tell, and no more.
func TestReportsAreBounded(t *testing.T) {
	c := command(t, "")
	long := strings.Repeat("x", 257)
	for name, r := range map[string]*atysv1.ReportRequest{
		"version": {Node: "n", Version: long}, "run": {Node: "n", Run: []byte(long)}, "id": {Node: "n", Tasks: []*atysv1.TaskState{{Id: long}}},
		"phase": {Node: "n", Tasks: []*atysv1.TaskState{{Phase: long}}}, "address": {Node: "n", State: &atysv1.NodeState{MetricsAddress: long}},
	} {
		if _, err := c.Service.Report(t.Context(), r); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a long %s: %v", name, err)
		}
	}
	if err := c.Fleet.connect(&atysv1.AttendRequest{Node: "n", Version: long}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("who attends with a long version: %v", err)
	}
	if _, err := c.Fleet.addRelay(&atysv1.OfferRequest{Name: "r", Address: "http://r:1", Version: long}, nil); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a relay with a long version: %v", err)
	}
	report := func(node string, bytes int) error {
		_, err := c.Service.Report(t.Context(), &atysv1.ReportRequest{Node: node, Tasks: []*atysv1.TaskState{{Message: strings.Repeat("x", bytes)}}})
		return err
	}
	if err := report("n", maxReport); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a report of more than a megabyte: %v", err)
	}
	const each = maxReport - 100
	for i := range maxHeld / maxReport {
		if err := report(fmt.Sprint("n", i), each); err != nil {
			t.Fatalf("report %d: %v", i, err)
		}
	}
	if err := report("one more", each); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one report more than is kept: %v", err)
	}
	if err := errors.Join(report("n1", each), report("n2", 10), report("one more", each)); err != nil {
		t.Errorf("in place of another one: %v", err)
	}
	c.now = c.now.Add(2 * forgetAgent)
	c.Tidy()
	c.Fleet.mu.Lock()
	defer c.Fleet.mu.Unlock()
	if n := len(c.Fleet.agents.of); n != 0 || c.Fleet.agents.held != 0 {
		t.Errorf("%d agents are remembered that are gone, and %d bytes of them held", n, c.Fleet.agents.held)
	}
}

// TestMessagesAreCut shows the beginning of what an agent says.
func TestMessagesAreCut(t *testing.T) {
	c := command(t, "")
	c.apply(t, lasting)
	said := &atysv1.TaskState{Id: c.ids(t, "n")["lasting"], Phase: "failed", Message: strings.Repeat("é", 1000)}
	if _, err := c.Service.Report(t.Context(), &atysv1.ReportRequest{Node: "n", Tasks: []*atysv1.TaskState{said}}); err != nil {
		t.Fatal(err)
	}
	if got := c.status(t, "lasting").GetNodes()[0].GetState().GetMessage(); got != strings.Repeat("é", 128)+"..." {
		t.Errorf("%q", got)
	}
}

// TestWatchesAreBounded lets one who asks watch so many times, and another one too.
func TestWatchesAreBounded(t *testing.T) {
	w := watches{}
	one, other := auth.With(t.Context(), auth.Identity{Tenant: "default", Name: "one"}), auth.With(t.Context(), auth.Identity{Tenant: "default", Name: "other"})
	for i := range mostWatches {
		if err := w.begin(one); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	if err := w.begin(one); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	if err := w.begin(other); err != nil {
		t.Errorf("another one's: %v", err)
	}
	w.end(one)
	if err := w.begin(one); err != nil {
		t.Errorf("after another has ended: %v", err)
	}
}
