package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/goccy/go-yaml"

	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// TestChanges prints changes in each form; the node's name would steer a terminal.
func TestChanges(t *testing.T) {
	object := &atysv1.Object{Kind: "agents", Name: "n", Status: &atysv1.Object_Agent{Agent: &atysv1.AgentStatus{Node: "n\x1b[1m", Phase: "left", Version: "1.0"}},
		Json: "{\"node\": \"n\\u001b[1m\",\n \"phase\": \"left\", \"version\": \"1.0\"}"}
	changes := []*atysv1.Change{{What: "added", Object: object}, {What: "synced"}, {What: "removed", Object: object}}
	print := func(format string) string {
		t.Helper()
		var out bytes.Buffer
		show := changeWriter(&out, "agents", format)
		for _, c := range changes {
			if err := show(c); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s steers the terminal: %q", format, &out)
		}
		return out.String()
	}
	for format, version := range map[string]bool{"": false, "wide": true} {
		lines := strings.Split(strings.TrimSpace(print(format)), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "WHAT") || !strings.HasPrefix(lines[1], "added") || !strings.Contains(lines[1], "left") ||
			strings.Contains(lines[1], "1.0") != version || strings.Contains(lines[0], "VERSION") != version {
			t.Errorf("%q: %q", format, lines)
		}
	}
	type told struct {
		What   string
		Object *struct{ Node, Phase string }
	}
	check := func(format string, parts []string, read func([]byte, any) error) {
		t.Helper()
		if len(parts) != len(changes) {
			t.Fatalf("%s: %q", format, parts)
		}
		for i, part := range parts {
			var c told
			if err := read([]byte(part), &c); err != nil || c.What != changes[i].What || (c.Object != nil) != (changes[i].Object != nil) || c.Object != nil && (!strings.HasPrefix(c.Object.Node, "n") || c.Object.Phase != "left") {
				t.Errorf("%s: %v: %q", format, err, part)
			}
		}
	}
	check("json", strings.Split(strings.TrimSpace(print("json")), "\n"), json.Unmarshal)
	check("yaml", strings.Split(strings.TrimPrefix(print("yaml"), "---\n"), "---\n"), func(text []byte, to any) error { return yaml.Unmarshal(text, to) })
}

// restarting is a server that tells what there is, ends, and after a while tells what
// there is then; at last it says that who asks may not.
type restarting struct {
	atysv1connect.UnimplementedControlHandler
	mu    sync.Mutex // guards all below
	lives [][]*atysv1.Object
	asked int
}

func (s *restarting) Watch(_ context.Context, _ *atysv1.GetRequest, stream *connect.ServerStream[atysv1.Change]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch {
	case s.asked == 2:
		return connect.NewError(connect.CodeUnavailable, errors.New("not yet"))
	case len(s.lives) == 0:
		return connect.NewError(connect.CodePermissionDenied, errors.New("enough"))
	}
	for _, o := range s.lives[0] {
		if err := stream.Send(&atysv1.Change{What: "added", Object: o}); err != nil {
			return err
		}
	}
	if err := stream.Send(&atysv1.Change{What: "synced"}); err != nil {
		return err
	}
	s.lives = s.lives[1:]
	panic(http.ErrAbortHandler) // as if it was killed
}

// TestWatchAgain watches a server that is restarted twice: what changed meanwhile is
// shown, nothing twice, and each time once that it answers no more.
func TestWatchAgain(t *testing.T) {
	relay := func(name, address, version string) *atysv1.Object {
		status := &atysv1.RelayStatus{Offer: &atysv1.OfferRequest{Name: name, Address: address, Version: version}}
		return &atysv1.Object{Kind: "relays", Name: name, Status: &atysv1.Object_Relay{Relay: status}, Json: `{"name":"` + name + `","address":"` + address + `","version":"` + version + `"}`}
	}
	s := &restarting{lives: [][]*atysv1.Object{
		{relay("same", "http://a", "1"), relay("same", "http://b", "1"), relay("gone", "http://c", "1")},
		{relay("same", "http://a", "1"), relay("same", "http://b", "2"), relay("new", "http://d", "1")},
		{relay("same", "http://a", "1"), relay("same", "http://b", "2"), relay("new", "http://d", "1")},
	}}
	_, handler := atysv1connect.NewControlHandler(s)
	h := httptest.NewServer(handler)
	defer h.Close()
	printed, status := typed(t, "watch", "relays", "-o", "json", "--server", h.URL)
	var told []string
	for line := range strings.Lines(printed) {
		if m := regexp.MustCompile(`^{"what":"(\w+)"(?:.*"address":"http://(.)","version":"(.)")?`).FindStringSubmatch(line); m != nil {
			told = append(told, strings.Join(m[1:], " "))
		} else if strings.Contains(line, "answers no more") {
			told = append(told, "silent")
		}
	}
	const want = "added a 1, added b 1, added c 1, synced  , silent, changed b 2, added d 1, removed c 1, silent, silent"
	if got := strings.Join(told, ", "); got != want || status == 0 || !strings.Contains(printed, "enough") {
		t.Errorf("%d, %s\nwant %s of\n%s", status, got, want, printed)
	}
}
