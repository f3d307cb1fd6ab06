package server

import (
	"context"
	"net/http"
	"strings"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Admission says who may ask over the network; the zero value: nobody.
type Admission struct {
	Tokens *auth.Tokens // also, certificates that TLS has verified
	Local  bool         // who asks without saying who they are may read: only where nobody but this machine can ask
	Limit  *auth.Limit
}

// needs is the role that a request needs. What is not named here readers may look
// at, and operators alone may change.
func needs(r *http.Request) auth.Role {
	path := r.URL.Path
	under := func(service string) bool { return strings.HasPrefix(path, "/"+service+"/") }
	switch {
	case path == "/healthz":
		return ""
	case path == DebugPath && r.Method == http.MethodPost:
		return auth.Agent
	case strings.HasPrefix(path, carePath):
		return auth.Operator
	case path == atysv1connect.FleetOfferProcedure, path == atysv1connect.FleetStandProcedure:
		return auth.Relay
	case under(atysv1connect.IntakeName), under(atysv1connect.FleetName):
		return auth.Agent
	case path == atysv1connect.ControlGetProcedure, path == atysv1connect.ControlWatchProcedure, path == atysv1connect.ControlStatusProcedure:
		return auth.Reader
	case under(atysv1connect.ControlName), strings.HasPrefix(path, auth.InsidePath):
		return auth.Operator
	case under(atysv1connect.QueryName), r.Method == http.MethodGet, r.Method == http.MethodHead:
		return auth.Reader
	}
	return auth.Operator
}

// admit lets those through who may.
func (s *Server) admit(next http.Handler) http.Handler {
	g := &auth.Gate{Tokens: s.options.Admission.Tokens, Needs: needs, Limit: s.options.Admission.Limit, Refuse: auth.Refusals(s.metrics.refuse)}
	if s.options.Admission.Local {
		g.Local = &auth.Identity{Tenant: s.options.Tenant, Role: auth.Reader, Name: "this machine"}
	}
	return g.Wrap(next)
}

// tenant is whose windows and profiles a request is about; an agent in this
// process asks for the server's own.
func (s *Server) tenant(ctx context.Context) string {
	if who, ok := auth.From(ctx); ok {
		return who.Tenant
	}
	return s.options.Tenant
}

// ownOnly answers those of the server's own tenant: what it shows is of all.
func (s *Server) ownOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.tenant(r.Context()) != s.options.Tenant {
			http.Error(w, "this is told to the server's own tenant alone", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
