package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// earlier is a relay of the version before sums could have several types.
type earlier struct{ Upstream }

func (e earlier) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	if slices.ContainsFunc(r.GetWindows(), earlierRefuses) {
		return newKeeper().Push(ctx, r)
	}
	response, err := e.Upstream.Push(ctx, r)
	if response != nil {
		response.TakesDivided = false // it passes nothing on that it does not know
	}
	return response, err
}

// traced is a window of one type without contexts. Earlier servers take sums of such windows
// without a word, but know nothing of their peers, slots and exemplars.
func traced(instance int, at time.Time) *profile.Window {
	w := divided(instance, at)
	w.Task = "traced"
	w.Types, w.Rows, w.Contexts = []profile.ValueType{profile.CPUTime(1)}, w.Rows.Only(0), nil
	w.Rows.Context = nil
	for i := range w.Exemplars {
		w.Exemplars[i].Context = 0
	}
	return w
}

// TestTakesDivided runs a relay in front of servers and relays of this and of an earlier version, some
// of which are upgraded or downgraded: it adds up what all of them accept, and no window is refused.
func TestTakesDivided(t *testing.T) {
	for name, test := range map[string]struct {
		takes, becomes bool // the server, before and after some windows
		between        func(Upstream) Upstream
		adds           bool // in the end
	}{
		"a server":                  {true, true, nil, true},
		"an earlier server":         {false, false, nil, false},
		"a server that is upgraded": {false, true, nil, true},
		"one that is downgraded":    {true, false, nil, false},
		"behind a relay":            {true, true, func(u Upstream) Upstream { return relayed{beganAs(t, adding(u))} }, true},
		"downgraded behind a relay": {true, false, func(u Upstream) Upstream { return relayed{beganAs(t, adding(u))} }, false},
		"behind one that forwards":  {true, true, func(u Upstream) Upstream { return relayed{began(t, u)} }, true},
		"behind an earlier relay":   {true, true, func(u Upstream) Upstream { return earlier{u} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newKeeper()
			server.takes = test.takes
			var to Upstream = server
			if test.between != nil {
				to = test.between(to)
			}
			r := beganAs(t, adding(to))
			at := time.Unix(1_700_000_000, 0)
			send := func(seconds ...int) {
				var windows []*atysv1.Spooled
				for _, second := range seconds {
					for instance := range 3 {
						start := at.Add(time.Duration(second) * time.Second)
						windows = append(windows, wire.Seal(divided(instance, start), profile.Run{byte(instance)}), wire.Seal(traced(instance, start), profile.Run{byte(instance)}))
					}
				}
				shipAll(t, r, false, windows)
			}
			send(0)
			send(10)
			server.mu.Lock()
			server.takes = test.becomes
			server.mu.Unlock()
			send(20)
			server.mu.Lock()
			server.sums = 0
			server.mu.Unlock()
			send(30)
			if adds := server.sums > 0; adds != test.adds {
				t.Errorf("sums go on: %v", adds)
			}
			if contained := containedIn(server); contained != 24 {
				t.Errorf("%d windows are kept, want 24", contained)
			}
		})
	}
}

// TestRefusedSums checks which requests that a server refuses are sent again without sums of several
// types, and which show that the server has been downgraded.
func TestRefusedSums(t *testing.T) {
	for name, test := range map[string]struct {
		window   func(instance int, at time.Time) *profile.Window
		code     connect.Code
		requests int
		takes    bool // afterwards
	}{
		"plain windows, malformed":     {summable, connect.CodeInvalidArgument, 1, true},
		"plain windows, no room":       {summable, connect.CodeResourceExhausted, 1, true},
		"several types, malformed":     {divided, connect.CodeInvalidArgument, 2, false},
		"several types, no room":       {divided, connect.CodeResourceExhausted, 2, true},
		"several types, not reachable": {divided, connect.CodeUnavailable, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := newKeeper()
			server.takes = true
			r := beganAs(t, adding(server))
			at := time.Unix(1_700_000_000, 0)
			ship := func(second int) error {
				w := test.window(1, at.Add(time.Duration(second)*time.Second))
				_, err := shipRecords(r, []*atysv1.Spooled{wire.Seal(w, profile.Run{1})})
				return err
			}
			if err := ship(0); err != nil { // its answer says what the server takes
				t.Fatal(err)
			}
			server.mu.Lock()
			server.failing, server.requests = connect.NewError(test.code, errors.New("refused")), 0
			server.mu.Unlock()
			if err := ship(10); connect.CodeOf(err) != test.code {
				t.Errorf("the agent is told: %v", err)
			}
			if server.requests != test.requests {
				t.Errorf("%d requests, want %d", server.requests, test.requests)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.divided != test.takes {
				t.Errorf("the server takes sums of several types: %v", r.divided)
			}
		})
	}
}

// adding is a relay that adds up.
func adding(to Upstream) Options {
	return Options{Upstream: to, Gather: 20 * time.Millisecond, Keep: []string{"service"}}
}

// containedIn counts the windows that a keeper has, by themselves or in sums.
func containedIn(k *keeper) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, contained := range k.contained {
		n += max(contained, 1)
	}
	return n
}
