// Package server keeps what agents send, and shows it.
//
//	Push (intake.go) -> checked -> store.Put -> acknowledged
//	Apply (control.go) -> profiles, kept (ledger.go) -> whom they choose (choice.go) -> orders of each agent (fleet.go) -> Attend
//	Offer -> the relay of each group (relays.go) -> in the orders of its agents
//	Report -> who is there, and how profiles fare (fleet.go) -> Get, Watch
//	Merge (ask.go) -> store.Merge -> a profile.Grove -> wire.SealGrove
//	Name, and debug files (debug.go), also of other servers (debuginfod.go) -> code that agents could not name (names.go)
//	an operator -> the store is counted, checked, backed up while it is open (care.go)
//	Push -> Decide (rates.go, decide.go): policies choose rates by what came -> rate_orders.go -> Attend
//	Upkeep -> windows are rolled up, and dropped by age and quota (package upkeep)
//	Prometheus -> metrics.go
//	Status -> how all this fares (status.go)
//	each request -> auth.Guard: was it meant for us? -> admit.go: who asks, of which tenant (tenants.go)?
//	a browser -> pages.go -> store.Merge -> a profile.Grove, its tree -> render.HTML
package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Options say what a server stands on. Store is needed.
type Options struct {
	Store     store.Store
	Retention upkeep.Retention     // of windows, by level
	Quotas    store.Quotas         // those that the store knows
	Profiles  string               // directory in which they are kept; "": nowhere
	GroupBy   string               // label of agents and relays that groups them; "": all are one group
	Debug     Debug                // names of code that agents could not name
	Tenant    string               // of the agent in this process, and of who need not say who they are; "": "default"
	Admission Admission            // who may ask
	Hosts     []string             // what this server is called, beside this machine's own addresses
	Registry  *prometheus.Registry // what /metrics shows; nil: there is none
	Version   string               // of this program
	Disk      string               // directory on the disk that windows are kept on; "": none is told of
	Inside    http.Handler         // what operators are told of this process, below auth.InsidePath; nil: nothing
	Now       func() time.Time
	Log       *slog.Logger
}

// Server answers agents and browsers.
type Server struct {
	options   Options
	log       *slog.Logger
	now       func() time.Time
	began     time.Time
	fleets    *fleets
	namers    *namers
	watches   watches
	unkept    complaint
	undecided complaint     // rates that could not be
	rouse     chan struct{} // there may be rates to decide on
	care      care
	classes   classes
	metrics   *metrics

	Upkeep *upkeep.Upkeep // of the store; it is to be run
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
	rouse := make(chan struct{}, 1)
	s := &Server{options: o, log: o.Log, now: o.Now, began: o.Now(), rouse: rouse, fleets: &fleets{options: o, rouse: rouse, of: map[string]*fleet{}},
		namers: &namers{options: o, of: map[string]*namer{}, wake: make(chan struct{}, 1)}, watches: watches{of: map[auth.Identity]int{}}, metrics: newMetrics()}
	s.Upkeep = upkeep.New(upkeep.Options{Store: o.Store, Retention: o.Retention, Quotas: o.Quotas, Tidy: s.fleets.tidy, Now: o.Now, Log: o.Log})
	if _, err := s.fleets.fleet(o.Tenant); err != nil {
		return nil, err
	}
	if o.Registry != nil {
		if err := o.Registry.Register(s); err != nil {
			return nil, fmt.Errorf("tell Prometheus of the server: %w", err)
		}
	}
	return s, nil
}

// Close has those go who stay connected. What is answered at once still is.
func (s *Server) Close() { s.fleets.end() }

// What is read and answered at once, of each kind: each may take many times its
// bytes in memory while it is, and what it is answered with lies there until it is
// read. Streams are not among them: they stay.
const (
	mostPushes    = 24
	mostQuestions = 24
	mostReports   = 24
)

// leastCompressed is the size from which on an answer is compressed: most are of
// some bytes, and an agent's window is answered in less time than that takes.
const leastCompressed = 1 << 10

// Handler gives all that the server answers.
func (s *Server) Handler() http.Handler {
	return auth.Patient(auth.Guard(s.options.Hosts, s.options.Admission.Local, s.admit(s.routes())))
}

// routes are what is answered to whoever may ask for it; see needs.
func (s *Server) routes() *routes {
	mux := &routes{}
	options := connect.WithHandlerOptions(wire.Reading(), connect.WithCompressMinBytes(leastCompressed), connect.WithInterceptors(s.metrics.timed()))
	bodies := &auth.Bodies{Each: wire.MaxRequest, All: wire.MaxWaiting}
	path, intake := atysv1connect.NewIntakeHandler(s, options)
	mux.Handle(path, bodies.Whole(auth.AtOnce(mostPushes, intake)))
	s.answerAsked(mux, options)
	s.expose(mux)
	mux.HandleFunc("POST "+DebugPath, auth.Flowing(s.keepDebug))
	mux.HandleFunc("GET "+DebugPath, s.listDebug)
	s.lookAfter(mux)
	if s.options.Inside != nil {
		mux.Handle("GET "+auth.InsidePath, s.ownOnly(s.options.Inside))
	}
	mux.Handle("GET /{$}", auth.AtOnce(mostQuestions, http.HandlerFunc(s.overview)))
	mux.Handle("GET /flame", auth.AtOnce(mostQuestions, http.HandlerFunc(s.flame)))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // whoever asked is gone if this fails
	})
	return mux
}

// answerAsked answers requests that hold no windows, and are small.
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
