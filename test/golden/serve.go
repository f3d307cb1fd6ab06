package golden

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/relay"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Served is a server on a socket of this machine. Close it.
type Served struct {
	*httptest.Server
	server *server.Server
}

// Serve serves a store, by a clock. Wrap, if not nil, is put around what answers.
func Serve(s store.Store, profiles string, now func() time.Time, wrap func(http.Handler) http.Handler) (*Served, error) {
	tokens, err := auth.OpenTokens("", now, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	for _, role := range []auth.Role{auth.Agent, auth.Relay, auth.Reader, auth.Operator} {
		tokens.Add(string(role), auth.Identity{Tenant: auth.DefaultTenant, Role: role, Name: string(role)})
	}
	of, err := server.New(server.Options{Store: s, Profiles: profiles, Admission: server.Admission{Tokens: tokens, Local: true}, Now: now,
		Registry: prometheus.NewRegistry(), Version: "golden"})
	if err != nil {
		return nil, err
	}
	h := of.Handler()
	if wrap != nil {
		h = wrap(h)
	}
	return &Served{httptest.NewServer(h), of}, nil
}

// Upkeeper is the server itself, for what has no request.
func (s *Served) Upkeeper() *server.Server { return s.server }

// Close ends it.
func (s *Served) Close() {
	s.server.Close()
	s.Server.Close()
}

// As is a client that asks with the rights of a role.
func (s *Served) As(role auth.Role) *http.Client {
	return &http.Client{Transport: &auth.Bearer{Token: func() (string, error) { return string(role), nil }, Scheme: "http",
		Host: s.Listener.Addr().String(), Next: http.DefaultTransport}}
}

// Remote is the server as agents and relays see it.
func (s *Served) Remote(role auth.Role) *remote.Server { return remote.New(s.As(role), s.URL) }

// Request puts windows that were sealed into one request, which explains all stacks.
func Request(windows ...*atysv1.Spooled) (*atysv1.PushRequest, error) {
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	for _, w := range windows {
		if err := b.Add(proto.CloneOf(w)); err != nil {
			return nil, err
		}
	}
	r := b.Request()
	r.Partly = true
	return r, nil
}

// Asking has a client of connect read what this version reads.
func Asking() connect.ClientOption { return connect.WithCodec(wire.NewBinary()) }

// RelayHandler answers as a relay does to whoever may ask.
func RelayHandler(r *relay.Relay) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(atysv1connect.NewIntakeHandler(r, wire.Reading()))
	mux.Handle(atysv1connect.NewFleetHandler(r, wire.Reading(), wire.Asking()))
	return mux
}
