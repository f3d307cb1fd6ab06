package server

import (
	"bytes"
	"context"
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
	offers, err := atysv1connect.NewFleetClient(taken, h.URL).Offer(t.Context(), &atysv1.OfferRequest{Name: "r", Address: "http://r:4310"})
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
		for stream.Receive() && time.Since(began) < 15*time.Second {
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
