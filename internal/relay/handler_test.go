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
	h := httptest.NewServer(r.Handler(Admission{Tokens: tokens}, prometheus.NewRegistry(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
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

// TestOwnIsTheTenants has others than those of the relay's tenant told nothing of
// it, and what goes on inside told to its operators alone.
func TestOwnIsTheTenants(t *testing.T) {
	for who, want := range map[auth.Identity][2]int{
		{Tenant: "default", Role: auth.Reader}:   {http.StatusOK, http.StatusForbidden},
		{Tenant: "default", Role: auth.Operator}: {http.StatusOK, http.StatusOK},
		{Tenant: "default", Role: auth.Relay}:    {http.StatusForbidden, http.StatusForbidden},
		{Tenant: ItsOwn, Role: auth.Operator}:    {http.StatusOK, http.StatusOK},
		{Tenant: "other", Role: auth.Reader}:     {http.StatusForbidden, http.StatusForbidden},
		{Tenant: "other", Role: auth.Operator}:   {http.StatusForbidden, http.StatusForbidden},
	} {
		url, _, client := passing(t, newKeeper(), "token", who)
		for i, path := range []string{"/metrics", auth.InsidePath + "heap"} {
			answer, err := client.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != want[i] {
				t.Errorf("%s for %v: %s", path, who, answer.Status)
			}
		}
	}
}
