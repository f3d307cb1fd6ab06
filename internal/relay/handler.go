package relay

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Admission says who may ask over the network; the zero value: nobody.
type Admission struct {
	Tokens *auth.Tokens // also, certificates that TLS has verified
	Limit  *auth.Limit
}

// Handler gives all that the relay answers: inside is what operators are told of
// this process, below auth.InsidePath.
func (r *Relay) Handler(a Admission, registry *prometheus.Registry, inside http.Handler) http.Handler {
	mux := http.NewServeMux()
	pushed := &auth.Bodies{Each: wire.MaxRequest, All: wire.MaxWaiting}
	path, intake := atysv1connect.NewIntakeHandler(r, wire.Reading())
	mux.Handle(path, pushed.Whole(readInTurn(intake)))
	told := &auth.Bodies{Each: wire.MaxBody, All: wire.MaxAsking}
	path, fleet := atysv1connect.NewFleetHandler(r, wire.Reading(), wire.Asking())
	mux.Handle(path, told.Whole(fleet))
	for _, procedure := range []string{atysv1connect.FleetReportProcedure, atysv1connect.FleetStandProcedure} {
		mux.Handle(procedure, told.Whole(auth.AtOnce(mostReports, fleet)))
	}
	mux.Handle("GET /metrics", r.ownOnly(promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})))
	mux.Handle("GET "+auth.InsidePath, r.ownOnly(inside))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // whoever asked is gone if this fails
	})
	gate := &auth.Gate{Tokens: a.Tokens, Limit: a.Limit, Needs: needs, Refuse: auth.Refusals(func(connect.Code) {})}
	return auth.Patient(auth.Guard(nil, false, gate.Wrap(mux)))
}

// mostReports are passed on at once: most of the time they wait for the server.
const mostReports = 100

// mostRead are pushes that are read at once: each may take many times its bytes in
// memory while it is.
const mostRead = 24

// readInTurn has no more pushes be read at once. Once one is, it counts by its bytes
// (Options.Held), and waits for others and for the server: in auth.AtOnce it would
// hold up the next for seconds.
func readInTurn(next http.Handler) http.Handler {
	slots := make(chan struct{}, mostRead)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case slots <- struct{}{}:
		case <-q.Context().Done():
			auth.GaveUp(w)
			return
		}
		leave := sync.OnceFunc(func() { <-slots })
		defer leave()
		next.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), turnKey{}, leave)))
	})
}

type turnKey struct{}

// turnOver has the next push be read.
func turnOver(ctx context.Context) {
	if leave, ok := ctx.Value(turnKey{}).(func()); ok {
		leave()
	}
}

// ItsOwn stands for the relay's own tenant, before the server has told which that
// is, and after: whoever runs the relay is of it.
const ItsOwn = ""

// ownOnly answers those of the relay's own tenant. Before the server has told
// which that is, it is the one that there is where nobody has made any.
func (r *Relay) ownOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		own := cmp.Or(r.standing.GetTenant(), auth.DefaultTenant)
		r.mu.Unlock()
		if who, ok := auth.From(q.Context()); ok && who.Tenant != own && who.Tenant != ItsOwn {
			http.Error(w, "this is told to the relay's own tenant alone", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, q)
	})
}

// needs is the role that a request needs.
func needs(r *http.Request) auth.Role {
	under := func(service string) bool { return strings.HasPrefix(r.URL.Path, "/"+service+"/") }
	switch {
	case r.URL.Path == "/healthz":
		return ""
	case r.URL.Path == atysv1connect.FleetOfferProcedure, r.URL.Path == atysv1connect.FleetStandProcedure:
		return auth.Relay
	case under(atysv1connect.IntakeName), under(atysv1connect.FleetName):
		return auth.Agent
	case strings.HasPrefix(r.URL.Path, auth.InsidePath):
		return auth.Operator
	}
	return auth.Reader
}
