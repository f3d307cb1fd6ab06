package server

import (
	"net/http"
	"strings"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Admission says who may ask over the network. The zero value admits nobody.
type Admission struct {
	Tokens *auth.Tokens // beside certificates that TLS has verified
	Local  bool         // clients without an identity may read: only if the server listens on this machine alone
	Limit  *auth.Limit
}

// needs returns the role that a request needs. Requests that are not listed need a
// reader to read, and an operator to change anything.
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

// admit refuses requests of clients that lack the role.
func (s *Server) admit(next http.Handler) http.Handler {
	g := &auth.Gate{Tokens: s.options.Admission.Tokens, Needs: needs, Limit: s.options.Admission.Limit, Refuse: auth.Refusals(s.metrics.refuse)}
	if s.options.Admission.Local {
		g.Local = &auth.Identity{Tenant: s.options.Tenant, Role: auth.Reader, Name: "this machine"}
	}
	return g.Wrap(next)
}

// ownOnly admits the server's own tenant alone, to what is about all tenants.
func (s *Server) ownOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.tenants.name(r.Context()) != s.options.Tenant {
			http.Error(w, "only the server's own tenant may see this", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
