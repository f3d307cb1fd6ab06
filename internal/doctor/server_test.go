package doctor

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// well is a server of which all is well.
func well() ServerFacts {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	return ServerFacts{Address: "https://profiles.example:4300", Now: now,
		Health: Health{Code: http.StatusOK, Body: "ok", Took: time.Millisecond, Expiry: now.AddDate(0, 3, 0)},
		Status: &atysv1.StatusResponse{Version: "v1", Protocol: wire.Protocol, StartedUnixNano: now.Add(-time.Hour).UnixNano(), Tenant: "default", Role: "reader", Name: "grafana",
			Quotas:  []*atysv1.Quota{{What: "profiles", Used: 3, Most: 1000}},
			Machine: &atysv1.Machine{DiskBytes: 100e9, DiskFreeBytes: 50e9, Pushes: map[string]uint64{"ok": 100, "unknown_stacks": 3}}},
		Agents:   []AgentFacts{{Node: "n1", Phase: "connected", Version: "v1", Shipped: 10, ClockOffset: "1ms"}, {Node: "n2", Phase: "connected", Version: "v1", ClockOffset: "-3ms"}},
		Relays:   []RelayFacts{{Name: "r1", Group: "a", Central: true, Agents: 2}, {Name: "r2", Group: "a"}},
		Coverage: &atysv1.Coverage{Windows: 42, Nodes: []*atysv1.NodeCoverage{{Node: "n1"}}}}
}

// asked is an error as a client has it.
func asked(err error) error { return &url.Error{Op: "Get", URL: "https://x", Err: err} }

func TestEvaluateServer(t *testing.T) {
	unanswered := func(err error) func(*ServerFacts) {
		return func(f *ServerFacts) { f.Health, f.HealthErr = Health{}, asked(err) }
	}
	refused := func(code connect.Code) func(*ServerFacts) {
		return func(f *ServerFacts) {
			f.Status, f.StatusErr, f.AgentsErr = nil, connect.NewError(code, errors.New("your role is agent")), connect.NewError(code, errors.New("no such page"))
		}
	}
	for _, c := range []struct {
		name   string
		change func(*ServerFacts)
		check  string // whose
		state  State  // is this,
		found  string // finding and cost hold this,
		mend   string // and remedy this
		works  bool
	}{
		{"well", func(*ServerFacts) {}, "reachable", OK, "answers within 1ms", "", true},
		{"dead", unanswered(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), "reachable", Missing, "connection refused", "systemctl start atys-server", false},
		{"no name", unanswered(&net.DNSError{Name: "x", Err: "no such host"}), "reachable", Missing, "name is not known", "mend the name", false},
		{"slow", unanswered(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), "reachable", Missing, "not known", "", false},
		{"no TLS there", unanswered(http.ErrSchemeMismatch), "reachable", Missing, "without TLS", "--server http://profiles.example:4300", false},
		{"TLS there", func(f *ServerFacts) {
			f.Address, f.Health = "http://x:1", Health{Code: 400, Body: "Client sent an HTTP request to an HTTPS server."}
		}, "reachable", Missing, "wants TLS", "--server https://x:1", false},
		{"unknown authority", unanswered(x509.UnknownAuthorityError{}), "reachable", Missing, "signed by nobody", "--tls-ca", false},
		{"other name", unanswered(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}), "reachable", Missing, "another name", "--tls-cert", false},
		{"run out", unanswered(x509.CertificateInvalidError{Reason: x509.Expired}), "reachable", Missing, "does not hold", "read again", false},
		{"other name of host", func(f *ServerFacts) { f.Health = Health{Code: 421, Body: "this server is not called x"} }, "reachable", Missing, "not called x", "--host", false},
		{"proxy", func(f *ServerFacts) { f.Health = Health{Code: 403, Body: "a proxy"} }, "reachable", Missing, "a proxy", "HTTP_PROXY", false},
		{"something else", func(f *ServerFacts) { f.Health = Health{Code: 200, Body: "<html>"} }, "reachable", Missing, "something else", "printed", false},
		{"plain elsewhere", func(f *ServerFacts) { f.Health.Expiry = time.Time{} }, "TLS", Limited, "reads tokens", "--tls-cert", true},
		{"plain here", func(f *ServerFacts) { f.Health.Expiry, f.Local = time.Time{}, true }, "TLS", OK, "this machine alone", "", true},
		{"soon over", func(f *ServerFacts) { f.Health.Expiry = f.Now.AddDate(0, 0, 3) }, "TLS", Limited, "until 2026-11-27", "read again", true},
		{"known", func(*ServerFacts) {}, "token", OK, "reader of tenant default, called grafana", "", true},
		{"no token", refused(connect.CodeUnauthenticated), "token", Missing, "cannot be asked", "--role reader", false},
		{"an agent's", refused(connect.CodePermissionDenied), "token", Missing, "your role is agent", "--role reader", false},
		{"relay", refused(connect.CodeUnimplemented), "protocol", Missing, "it is a relay", "the server's own address", false},
		{"older", func(f *ServerFacts) { f.Status, f.StatusErr = nil, connect.NewError(connect.CodeUnimplemented, nil) }, "protocol", Limited, "older", "on the server", true},
		{"newer", func(f *ServerFacts) { f.Status.Protocol++ }, "protocol", Limited, "not understood here", "(v1) on this machine", true},
		{"same", func(*ServerFacts) {}, "protocol", OK, "version v1, for 1h0m0s", "", true},
		{"behind", func(f *ServerFacts) { f.Offset, f.Uncertain = -3*time.Second, time.Millisecond }, "clock", Limited, "3s behind the server's ±1ms", "timesyncd", true},
		{"unsure", func(f *ServerFacts) { f.Offset, f.Uncertain = 3*time.Second, 3*time.Second }, "clock", OK, "3s ahead", "", true},
		{"all there", func(*ServerFacts) {}, "connected", OK, "2 of 2", "", true},
		{"one left", func(f *ServerFacts) { f.Agents[1].Phase = "left" }, "connected", OK, "1 of 1", "", true},
		{"one silent", func(f *ServerFacts) { f.Agents[1].Phase = "silent" }, "connected", Limited, "1 of 2; silent: n2", "restart atys-agent", true},
		{"nobody", func(f *ServerFacts) { f.Agents = nil }, "connected", Limited, "no machine is profiled", "sudo atys agent --server https://profiles.example:4300", true},
		{"lost", func(f *ServerFacts) { f.Agents[0].Lost = 7 }, "windows lost", Limited, "7, and 10 were shipped, since agents began; of n1", "--spool", true},
		{"late", func(f *ServerFacts) { f.Agents[0].Waiting = 301 }, "windows late", Limited, "301 wait to be shipped; late on n1", "journalctl", true},
		{"many targets", func(f *ServerFacts) { f.Agents[0].Waiting, f.Agents[0].Targets = 301, 100 }, "windows late", OK, "301 wait", "", true},
		{"an agent's clock", func(f *ServerFacts) { f.Agents[1].ClockOffset = "1h0m0s" }, "clocks", Limited, "further than 1s from the server's: n2", "timesyncd", true},
		{"other version", func(f *ServerFacts) { f.Agents[1].Version = "v0" }, "versions", OK, "v0, v1", "", true},
		{"refused windows", func(f *ServerFacts) { f.Status.Machine.Pushes["invalid_argument"] = 2 }, "taken", Limited, "100 uploads since it began; not taken: 2 invalid_argument", "--retention", true},
		{"refused people", func(f *ServerFacts) { f.Status.Machine.Refused = map[string]uint64{"unauthenticated": 9} }, "not let in", Limited, "9 unauthenticated", "atys token", true},
		{"tokens", func(f *ServerFacts) { f.Status.Machine.TokenFailures = 1 }, "file of tokens", Limited, "1 times", "journalctl", true},
		{"other tenant", func(f *ServerFacts) { f.Status.Machine = nil }, "taken", OK, "own tenant alone", "", true},
		{"gaps", func(f *ServerFacts) {
			f.Coverage.Nodes[0].Missing = []*atysv1.Span{{FromUnixNano: 1e9, ToUnixNano: 31e9}}
		}, "last hour", Limited, "n1 (30s)", "atys query windows", true},
		{"no answers", func(f *ServerFacts) { f.Coverage, f.CoverageErr = nil, errors.New("too slow") }, "last hour", Limited, "too slow", "journalctl", true},
		{"damaged", func(f *ServerFacts) { f.Coverage.Damaged = 2 }, "damage", Limited, "2 parts", "atys store check", true},
		{"little disk", func(f *ServerFacts) { f.Status.Machine.DiskFreeBytes = 5e9 }, "disk", Limited, "5.0 of 100.0 GB", "--retention", true},
		{"behind with sums", func(f *ServerFacts) { f.Status.Machine.OverdueSteps = 12 }, "added up", Limited, "12 steps", "CPU", true},
		{"near a quota", func(f *ServerFacts) { f.Status.Quotas[0].Used = 950 }, "quotas", Limited, "950 of 1000 profiles", "atys delete", true},
		{"relays", func(*ServerFacts) {}, "relays", OK, "r1 for a (2 agents); 1 stand by", "", true},
		{"relay without agents", func(f *ServerFacts) { f.Relays[0].Agents = 0 }, "without agents", Limited, "r1", "--group-by", true},
		{"no relays", func(f *ServerFacts) { f.Relays = nil }, "relays", OK, "the server itself", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := well()
			c.change(&f)
			r := EvaluateServer(f)
			if r.Works != c.works {
				t.Errorf("works: %v, want %v", r.Works, c.works)
			}
			seen := false
			for _, got := range r.Checks {
				if got.State != OK && (got.Mend == "" || got.Cost == "") {
					t.Errorf("%s: no cost or no remedy: %+v", got.Name, got)
				}
				if got.Name != c.check {
					continue
				}
				seen = true
				if got.State != c.state || !strings.Contains(got.Found+" "+got.Cost, c.found) || !strings.Contains(got.Mend, c.mend) || c.mend == "" && got.Mend != "" && got.State == OK {
					t.Errorf("%+v; want %s, %q, %q", got, c.state, c.found, c.mend)
				}
			}
			if !seen {
				t.Errorf("nothing is said of %s: %+v", c.check, r.Checks)
			}
		})
	}
}
