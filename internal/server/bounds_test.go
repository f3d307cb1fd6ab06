package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// TestReportsAreBounded keeps so much of what agents tell, and no more.
func TestReportsAreBounded(t *testing.T) {
	c := command(t, "")
	long := strings.Repeat("x", 257)
	for name, r := range map[string]*atysv1.ReportRequest{
		"version": {Node: "n", Version: long}, "run": {Node: "n", Run: []byte(long)}, "id": {Node: "n", Tasks: []*atysv1.TaskState{{Id: long}}},
		"phase": {Node: "n", Tasks: []*atysv1.TaskState{{Phase: long}}}, "address": {Node: "n", State: &atysv1.NodeState{MetricsAddress: long}},
	} {
		if _, err := c.Report(t.Context(), r); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a long %s: %v", name, err)
		}
	}
	if err := c.own(t).arrive(&atysv1.AttendRequest{Node: "n", Version: long}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("who attends with a long version: %v", err)
	}
	if _, err := c.own(t).welcome(&atysv1.OfferRequest{Name: "r", Address: "http://r:1", Version: long}, nil); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a relay with a long version: %v", err)
	}
	report := func(node string, bytes int) error {
		_, err := c.Report(t.Context(), &atysv1.ReportRequest{Node: node, Tasks: []*atysv1.TaskState{{Message: strings.Repeat("x", bytes)}}})
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
	if _, err := c.Upkeep.Round(t.Context()); err != nil {
		t.Error(err)
	}
	c.own(t).mu.Lock()
	defer c.own(t).mu.Unlock()
	if n := len(c.own(t).agents); n != 0 || c.own(t).held != 0 {
		t.Errorf("%d agents are remembered that are gone, and %d bytes of them held", n, c.own(t).held)
	}
}

// TestMessagesAreCut shows the beginning of what an agent says.
func TestMessagesAreCut(t *testing.T) {
	c := command(t, "")
	c.apply(t, lasting)
	said := &atysv1.TaskState{Id: c.ids(t, "n")["lasting"], Phase: "failed", Message: strings.Repeat("é", 1000)}
	if _, err := c.Report(t.Context(), &atysv1.ReportRequest{Node: "n", Tasks: []*atysv1.TaskState{said}}); err != nil {
		t.Fatal(err)
	}
	if got := c.status(t, "lasting").Nodes[0].Message; got != strings.Repeat("é", 128)+"..." {
		t.Errorf("%q", got)
	}
}

// TestWatchesAreBounded lets one who asks watch so many times, and another one too.
func TestWatchesAreBounded(t *testing.T) {
	w := watches{of: map[auth.Identity]int{}}
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

// TestTakenBack ends the answers that stand of those whose token is taken back.
func TestTakenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	line := func(token string, role auth.Role) string {
		l, err := auth.Line(token, auth.Identity{Tenant: "default", Role: role})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	kept := line("kept", auth.Operator)
	if err := os.WriteFile(path, []byte(kept+line("back", auth.Operator)), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.OpenTokens(path, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Store: mem.New(1), Admission: Admission{Tokens: tokens}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	t.Cleanup(s.Close)
	_, as := admitted(t)
	taken := as(h, "back")
	attends, err := atysv1connect.NewFleetClient(taken, h.URL).Attend(t.Context(), &atysv1.AttendRequest{Node: "n"})
	if err != nil || !attends.Receive() {
		t.Fatal(err)
	}
	offers, err := atysv1connect.NewFleetClient(taken, h.URL).Offer(t.Context(), offerOf("r", "a"))
	if err != nil || !offers.Receive() {
		t.Fatal(err)
	}
	looks, err := atysv1connect.NewControlClient(taken, h.URL).Watch(t.Context(), &atysv1.GetRequest{Kind: "agents"})
	if err != nil || !looks.Receive() {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for name, stream := range map[string]interface {
		Receive() bool
		Err() error
	}{"attend": attends, "offer": offers, "watch": looks} {
		for stream.Receive() && time.Since(began) < 3*heartbeat {
		}
		if err := stream.Err(); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s, %v after its token was taken back: %v", name, time.Since(began), err)
		}
	}
}

// TestTimes refuses windows of times that are not kept.
func TestTimes(t *testing.T) {
	s, err := New(Options{Store: mem.New(1), Retention: upkeep.Retention{store.Raw: 24 * time.Hour}, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	for at, taken := range map[time.Duration]bool{-25 * time.Hour: false, -23 * time.Hour: true, 2 * time.Hour: true, 4 * time.Hour: false} {
		p, _ := request(t, false, "shop", noon, noon.Add(at))
		_, err := s.Push(t.Context(), p)
		if taken && err != nil || !taken && (connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "window 1")) {
			t.Errorf("%v from now: %v", at, err)
		}
	}
}

// TestComplaint logs an error that comes with each request once in a while.
func TestComplaint(t *testing.T) {
	var logged bytes.Buffer
	now := noon
	s, err := New(Options{Store: full{mem.New(1)}, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := request(t, false, "shop", noon)
	for range 100 {
		_, _ = s.Push(context.Background(), p) // it fails
	}
	now = now.Add(complainEvery)
	_, _ = s.Push(context.Background(), p)
	if got := logged.String(); strings.Count(got, "keep windows") != 2 || !strings.Contains(got, "times=1 ") || !strings.Contains(got, "times=100 ") {
		t.Errorf("logged is:\n%s", got)
	}
}
