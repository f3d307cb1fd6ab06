package relay

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// orderly is a server that orders once it is told to.
type orderly struct {
	*keeper
	again chan bool
}

func (o *orderly) AttendTo(ctx context.Context, r *atysv1.AttendRequest, order func(*atysv1.Orders) error) error {
	for {
		if err := o.keeper.AttendTo(ctx, r, order); err != nil {
			return err
		}
		select {
		case <-o.again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// passing is a relay behind a socket, and its own server's token.
func passing(t *testing.T, to Upstream, token string, who auth.Identity) (url string, tokens *auth.Tokens, client *http.Client) {
	t.Helper()
	r := began(t, to)
	tokens, err := auth.OpenTokens("", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tokens.Add(token, who)
	h := httptest.NewServer(r.Handler(Admission{Tokens: tokens}, prometheus.NewRegistry()))
	t.Cleanup(h.Close)
	return h.URL, tokens, &http.Client{Transport: &auth.Bearer{Token: func() (string, error) { return token, nil }, Scheme: "http",
		Host: h.Listener.Addr().String(), Next: h.Client().Transport}}
}

// TestTakenBack has an agent whose token is taken back get no more orders, which
// the server goes on sending to the relay.
func TestTakenBack(t *testing.T) {
	to := &orderly{newKeeper(), make(chan bool)}
	url, tokens, client := passing(t, to, "agent", auth.Identity{Tenant: "default", Role: auth.Agent})
	stream, err := atysv1connect.NewFleetClient(client, url).Attend(t.Context(), &atysv1.AttendRequest{Node: "n"})
	if err != nil || !stream.Receive() {
		t.Fatal(err)
	}
	to.again <- true
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	tokens.Add("agent", auth.Identity{Tenant: "other", Role: auth.Agent})
	to.again <- true
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("orders %v, %v", stream.Msg(), stream.Err())
	}
}

// TestMetricsAreTheTenants has readers of another tenant told nothing.
func TestMetricsAreTheTenants(t *testing.T) {
	for tenant, want := range map[string]int{"default": http.StatusOK, "other": http.StatusForbidden} {
		url, _, client := passing(t, newKeeper(), "reader", auth.Identity{Tenant: tenant, Role: auth.Reader})
		answer, err := client.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("a reader of %s: %s", tenant, answer.Status)
		}
	}
}
