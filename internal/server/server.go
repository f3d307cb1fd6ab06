// Package server composes a server: it stores the windows that agents send, answers
// queries, and holds the parts that do the rest.
//
//	each request -> auth.Guard -> admit.go: who asks, and of which tenant (tenants.go)?
//	Push (intake.go) -> checked -> store.Put -> acknowledged
//	Apply, Get, Attend, Report, Offer -> package fleet
//	Push -> package rates: policies decide on sampling rates -> orders of package fleet
//	package upkeep: windows are rolled up, and dropped by age and quota
//	Merge, Top, ... (queries.go) -> package query -> a profile.Grove -> wire.SealGrove
//	debug files (debug.go), also of debuginfod (debuginfod.go) -> names of code that agents could not name (names.go)
//	a browser -> package ui
//	an operator -> statistics, checks and backups of the store (care.go)
//	Prometheus -> metrics.go; Status -> status.go
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/server/fleet"
	"atys.dev/atys/internal/server/rates"
	"atys.dev/atys/internal/server/ui"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Options configure a Server. Store is required.
type Options struct {
	Store     store.Store
	Retention upkeep.Retention     // of windows, by level
	Quotas    store.Quotas         // those that the store has
	Profiles  string               // directory that profiles are kept in; "": they are lost on restart
	GroupBy   string               // label of agents and relays that groups them; "": all are one group
	Debug     Debug                // names of code that agents could not name
	Tenant    string               // of the agent in this process, and of clients that need no identity; "": "default"
	Admission Admission            // who may ask
	Hosts     []string             // names of the server, beside the addresses of this machine
	Registry  *prometheus.Registry // what /metrics serves; nil: it is not served
	Version   string               // of this program
	Disk      string               // directory on the disk that windows are stored on; "": Status does not include the disk
	Inside    http.Handler         // debug pages for operators, below auth.InsidePath; nil: none
	Now       func() time.Time
	Log       *slog.Logger
}

// Server answers agents, relays, commands and browsers.
type Server struct {
	*fleet.Service // Attend, Report, Offer, Stand; Apply, Get, Delete, Watch
	*intake        // Push
	*queries       // Merge, Top, ...

	// These run until their context ends; a caller runs them.
	Upkeep  *upkeep.Upkeep
	Decider *rates.Decider // on sampling rates
	Names   *namers        // of code that agents could not name

	options   Options
	began     time.Time
	tenants   *tenants
	undecided complaint // decisions on rates that failed
	care      care
	metrics   *metrics
	pages     *ui.Pages
}

// New prepares a server.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Tenant == "" {
		o.Tenant = auth.DefaultTenant
	}
	if err := auth.CheckTenant(o.Tenant); err != nil {
		return nil, err
	}
	wake := make(chan struct{}, 1)
	t := &tenants{own: o.Tenant, profiles: o.Profiles, groupBy: o.GroupBy, wake: wake, now: o.Now, log: o.Log, of: map[string]*tenant{}}
	if _, err := t.get(o.Tenant); err != nil {
		return nil, err
	}
	s := &Server{options: o, began: o.Now(), tenants: t, metrics: newMetrics(), care: care{store: o.Store, profiles: o.Profiles, now: o.Now, log: o.Log},
		Service: &fleet.Service{Of: t.fleet, Now: o.Now},
		Upkeep:  upkeep.New(upkeep.Options{Store: o.Store, Retention: o.Retention, Quotas: o.Quotas, Tidy: t.tidy, Now: o.Now, Log: o.Log}),
		Names:   &namers{options: o, tenant: t.name, of: map[string]*namer{}, wake: make(chan struct{}, 1)}}
	s.queries = &queries{store: o.Store, tenants: t, now: o.Now, log: o.Log}
	s.intake = &intake{store: o.Store, tenants: t, retention: o.Retention, crowded: s.Upkeep.Crowded, metrics: s.metrics, now: o.Now, log: o.Log}
	s.Decider = rates.NewDecider(rates.Options{Store: o.Store, Tenants: t.deciding, Wake: wake, Now: o.Now, Log: o.Log,
		Failed: func(what string, err error) { s.undecided.log(o.Log, o.Now(), what, err) }})
	s.pages = &ui.Pages{Asker: s.asker, Tenant: func(ctx context.Context) (ui.Tenant, error) { return t.asking(ctx) }, Now: o.Now, Log: o.Log}
	if o.Registry != nil {
		if err := o.Registry.Register(s); err != nil {
			return nil, fmt.Errorf("register the metrics of the server: %w", err)
		}
	}
	return s, nil
}

// Close ends open streams. Calls in flight finish.
func (s *Server) Close() { s.tenants.end() }

// How many requests of each kind are answered at a time, streams aside: a request may
// take many times its size in memory, and its answer stays in memory until it is read.
const (
	mostPushes    = 24
	mostQuestions = 24
	mostReports   = 24
)

// leastCompressed is the least size of answers that are compressed: most have a few
// bytes, and compressing would take longer than answering a push.
const leastCompressed = 1 << 10

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	return auth.Patient(auth.Guard(s.options.Hosts, s.options.Admission.Local, s.admit(s.routes())))
}

// routes returns the handlers of all requests; see needs for the roles.
func (s *Server) routes() *routes {
	mux := &routes{}
	options := connect.WithHandlerOptions(wire.Reading(), connect.WithCompressMinBytes(leastCompressed), connect.WithInterceptors(s.metrics.timed()))
	bodies := &auth.Bodies{Each: wire.MaxRequest, All: wire.MaxWaiting}
	path, intake := atysv1connect.NewIntakeHandler(s, options)
	mux.Handle(path, bodies.Whole(auth.AtOnce(mostPushes, intake)))
	s.answerAsked(mux, options)
	s.expose(mux)
	mux.HandleFunc("POST "+DebugPath, auth.Flowing(s.Names.keepDebug))
	mux.HandleFunc("GET "+DebugPath, s.Names.listDebug)
	s.care.route(mux, s.ownOnly)
	if s.options.Inside != nil {
		mux.Handle("GET "+auth.InsidePath, s.ownOnly(s.options.Inside))
	}
	mux.Handle("GET /{$}", auth.AtOnce(mostQuestions, http.HandlerFunc(s.pages.Overview)))
	mux.Handle("GET /flame", auth.AtOnce(mostQuestions, http.HandlerFunc(s.pages.Flame)))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // the client is gone if this fails
	})
	return mux
}

// answerAsked routes requests without windows, which are small.
func (s *Server) answerAsked(mux *routes, options connect.HandlerOption) {
	options = connect.WithHandlerOptions(options, wire.Asking())
	bodies := &auth.Bodies{Each: wire.MaxBody, All: wire.MaxAsking}
	handle := func(path string, h http.Handler) { mux.Handle(path, bodies.Whole(h)) }
	path, query := atysv1connect.NewQueryHandler(s, options)
	handle(path, auth.AtOnce(mostQuestions, query))
	path, control := atysv1connect.NewControlHandler(s, options)
	handle(path, control)
	for _, procedure := range []string{atysv1connect.ControlApplyProcedure, atysv1connect.ControlGetProcedure, atysv1connect.ControlDeleteProcedure, atysv1connect.ControlStatusProcedure} {
		handle(procedure, auth.AtOnce(mostQuestions, control))
	}
	path, fleet := atysv1connect.NewFleetHandler(s, options)
	handle(path, fleet)
	for _, procedure := range []string{atysv1connect.FleetReportProcedure, atysv1connect.FleetStandProcedure} {
		handle(procedure, auth.AtOnce(mostReports, fleet))
	}
}
