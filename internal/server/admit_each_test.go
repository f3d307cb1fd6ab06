package server

import (
	"cmp"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire/atysv1"
)

// admittedRole is what each request needs; "": nothing, not even a name.
var admittedRole = map[string]auth.Role{
	"POST /atys.v1.Intake/Push":    auth.Agent,
	"POST /atys.v1.Fleet/Attend":   auth.Agent,
	"POST /atys.v1.Fleet/Report":   auth.Agent,
	"POST /atys.v1.Fleet/Offer":    auth.Relay,
	"POST /atys.v1.Fleet/Stand":    auth.Relay,
	"POST /atys.v1.Control/Apply":  auth.Operator,
	"POST /atys.v1.Control/Delete": auth.Operator,
	"POST /atys.v1.Control/Get":    auth.Reader,
	"POST /atys.v1.Control/Watch":  auth.Reader,
	"POST /atys.v1.Control/Status": auth.Reader,
	"POST /atys.v1.Query/Merge":    auth.Reader,
	"POST /atys.v1.Query/Top":      auth.Reader,
	"POST /atys.v1.Query/Series":   auth.Reader,
	"POST /atys.v1.Query/Flame":    auth.Reader,
	"POST /atys.v1.Query/Split":    auth.Reader,
	"POST /atys.v1.Query/Labels":   auth.Reader,
	"POST /atys.v1.Query/Kinds":    auth.Reader,
	"POST /atys.v1.Query/Records":  auth.Reader,
	"POST /atys.v1.Query/Windows":  auth.Reader,
	"POST /atys.v1.Query/Rates":    auth.Reader,
	"POST /debug/files":            auth.Agent,
	"GET /debug/files":             auth.Reader,
	"GET /debug/pprof/":            auth.Operator,
	"GET /store/stat":              auth.Operator,
	"GET /store/check":             auth.Operator,
	"GET /store/backup":            auth.Operator,
	"GET /metrics":                 auth.Reader,
	"GET /sd/agents":               auth.Reader,
	"GET /":                        auth.Reader,
	"GET /flame":                   auth.Reader,
	"GET /healthz":                 "",
	// What nothing answers:
	"GET /nonsense":               auth.Reader,
	"POST /nonsense":              auth.Operator,
	"DELETE /debug/files":         auth.Operator,
	"PUT /debug/files":            auth.Operator,
	"POST /debug/files/":          auth.Operator,
	"POST /atys.v1.Control/Other": auth.Operator,
	"POST /atys.v1.Nobody/Asks":   auth.Operator,
}

// ofOwnTenant are about all tenants, and told to the server's own alone.
var ofOwnTenant = []string{"GET /metrics", "GET /store/stat", "GET /store/check", "GET /store/backup", "GET /debug/pprof/"}

// answered lists the requests that a server answers.
func answered(t *testing.T, s *Server) (requests []string) {
	t.Helper()
	below := map[string]bool{}
	services := atysv1.File_atys_proto.Services()
	for i := range services.Len() {
		of := services.Get(i)
		below["/"+string(of.FullName())+"/"] = true
		for methods, j := of.Methods(), 0; j < methods.Len(); j++ {
			requests = append(requests, "POST /"+string(of.FullName())+"/"+string(methods.Get(j).Name()))
		}
	}
	for _, pattern := range s.routes().patterns {
		switch _, path, _ := strings.Cut(pattern, " "); {
		case below[pattern] || slices.Contains(requests, "POST "+pattern): // a service, or a method of one
		case path == "":
			t.Errorf("%q is answered whatever the method is", pattern)
		default:
			requests = append(requests, strings.TrimSuffix(pattern, "{$}"))
		}
	}
	return requests
}

// holds tells whether a role is enough for what needs one.
func holds(has, needs auth.Role) bool {
	return has == needs || has == auth.Operator || has == auth.Relay && needs == auth.Agent
}

func guarded(t *testing.T, local bool) (*Server, *httptest.Server, func(*httptest.Server, string) *http.Client) {
	t.Helper()
	admission, as := admitted(t)
	admission.Local = local
	s, err := New(Options{Store: mem.New(1), Admission: admission, Registry: prometheus.NewRegistry(),
		Inside: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	return s, h, as
}

// TestEachRequestAsEachRole asks for all that is answered as everybody: what is
// new has to be said here who may ask for it.
func TestEachRequestAsEachRole(t *testing.T) {
	for _, who := range []struct {
		token string
		local bool
		role  auth.Role // "": none
	}{
		{"default/agent", true, auth.Agent},
		{"default/relay", true, auth.Relay},
		{"default/reader", true, auth.Reader},
		{"default/operator", true, auth.Operator},
		{"other/operator", true, auth.Operator},
		{"other/reader", true, auth.Reader},
		{"", true, auth.Reader}, // whoever asks on its own machine
		{"", false, ""},
		{"guessed", true, ""},
	} {
		t.Run(cmp.Or(who.token, "nobody"), func(t *testing.T) {
			s, h, as := guarded(t, who.local)
			for _, request := range answered(t, s) {
				if _, ok := admittedRole[request]; !ok {
					t.Errorf("%s: nobody has said who may ask for it", request)
				}
			}
			client := as(h, who.token)
			for _, request := range slices.Sorted(maps.Keys(admittedRole)) {
				needs := admittedRole[request]
				may := needs == "" || who.role != "" && holds(who.role, needs)
				if strings.HasPrefix(who.token, "other/") && slices.Contains(ofOwnTenant, request) {
					may = false
				}
				if status, refused := tried(t, client, h.URL, request); refused == may {
					t.Errorf("%s, which needs %q: status %d", request, needs, status)
				}
			}
		})
	}
}

// tried asks for something, with nothing in it, and tells whether it is refused.
func tried(t *testing.T, c *http.Client, url, request string) (status int, refused bool) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	q, err := http.NewRequestWithContext(t.Context(), method, url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json") // streams want another: they answer that, and end
	answer, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	status = answer.StatusCode
	return status, status == http.StatusUnauthorized || status == http.StatusForbidden
}

// TestAnswersNothingElse has what the table names beside all that is answered be
// answered by nothing.
func TestAnswersNothingElse(t *testing.T) {
	s, h, as := guarded(t, true)
	all := answered(t, s)
	for request := range admittedRole {
		if slices.Contains(all, request) {
			continue
		}
		if status, _ := tried(t, as(h, "default/operator"), h.URL, request); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", request, status)
		}
	}
}
