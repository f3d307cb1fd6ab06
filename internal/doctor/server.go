package doctor

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire"
)

// EvaluateServer judges facts of a server. What cannot be known because the server
// does not answer, or does not let us ask, is left out.
func EvaluateServer(f ServerFacts) Report {
	var r Report
	r.add("server", f.reachable())
	if r.Checks[0].State == Missing {
		return r
	}
	r.add("server", f.tls(), f.token())
	if connect.CodeOf(f.StatusErr) != connect.CodeUnimplemented && f.StatusErr != nil {
		return r
	}
	protocol := f.protocol()
	r.add("server", protocol)
	if r.Works = protocol.State != Missing && f.AgentsErr == nil; !r.Works {
		return r
	}
	if f.Status != nil {
		r.add("server", f.clock())
	}
	r.add("agents", f.heard(), f.lost(), f.waiting(), f.budget(), f.clocks(), f.versions())
	r.add("profiles", f.conditions()...)
	r.add("windows", f.refused()...)
	r.add("windows", f.gaps(), f.damaged())
	r.add("store", f.store()...)
	r.add("relays", f.relays()...)
	return r
}

// reachable tells whether a server of ours answers at all.
func (f ServerFacts) reachable() Check {
	c := Check{Name: "reachable", State: Missing, Cost: "nothing can be asked, and agents keep what they cut in their spools"}
	switch h := f.Health; {
	case f.HealthErr != nil:
		c.Found, c.Mend = f.unreachable(f.HealthErr)
	case h.Code == http.StatusBadRequest && strings.Contains(h.Body, "HTTP request to an HTTPS server"):
		c.Found, c.Mend = "it wants TLS, and was asked without", "atys doctor --server "+quote("https"+strings.TrimPrefix(f.Address, "http"))
	case h.Code == http.StatusMisdirectedRequest:
		c.Found, c.Mend = h.Body, "ask it by 127.0.0.1 or localhost, or start it with --host and the name"
	case h.Code == http.StatusForbidden:
		c.Found, c.Mend = h.Body, "ask it without the proxy (unset HTTP_PROXY), or start it with --tokens"
	case h.Code != http.StatusOK || h.Body != "ok":
		c.Found, c.Mend = fmt.Sprintf("something else answers there: %d %.60q", h.Code, h.Body), "atys doctor --server with the address that the server printed when it began"
	default:
		return Check{Name: c.Name, State: OK, Found: fmt.Sprintf("%s answers within %v", f.Address, h.Took.Round(100*time.Microsecond))}
	}
	return c
}

// unreachable says why nobody answers, and what is to be done.
func (f ServerFacts) unreachable(err error) (found, mend string) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it answers without TLS, and was asked with it", "atys doctor --server " + quote("http"+strings.TrimPrefix(f.Address, "https")) + ", or start it with --tls-cert and --tls-key"
	case errors.As(err, &unknown):
		return "its certificate is signed by nobody that is known here", "atys doctor --server " + quote(f.Address) + " --tls-ca with the authority's certificate"
	case errors.As(err, &host):
		return "its certificate is for another name: " + host.Error(), "atys doctor --server with a name of the certificate, or give the server another one (--tls-cert)"
	case errors.As(err, &invalid):
		return "its certificate does not hold: " + invalid.Error(), "put a new one in the place that --tls-cert of the server names: it is read again"
	case errors.As(err, &dns):
		return "the name is not known: " + dns.Error(), "atys doctor --server with the address itself, or mend the name"
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %v", patience), "see whether a firewall is between, and what the server's log says: journalctl -u atys-server"
	}
	return reason(err), "sudo systemctl start atys-server, or atys up (the server's machine: journalctl -u atys-server)"
}

// reason is an error without what was asked, which is known.
func reason(err error) string {
	var answer *connect.Error
	if errors.As(err, &answer) {
		return answer.Message()
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		return asked.Err.Error()
	}
	return err.Error()
}

// soon is when a certificate should be another one.
const soon = 14 * 24 * time.Hour

func (f ServerFacts) tls() Check {
	c := Check{Name: "TLS", State: OK}
	switch left := f.Health.Expiry.Sub(f.Now); {
	case f.Health.Expiry.IsZero() && f.Local:
		c.Found = "none, on this machine alone"
	case f.Health.Expiry.IsZero():
		c.State, c.Found, c.Cost = Limited, "none", "whoever is on the way reads tokens and windows, and may change them"
		c.Mend = "start the server with --tls-cert and --tls-key, or have a proxy before it that has TLS"
	case left < soon:
		c.State, c.Found = Limited, "its certificate holds until "+f.Health.Expiry.UTC().Format(time.DateTime)
		c.Cost = "then no agent, relay or command reaches it any more"
		c.Mend = "put a new one in the place that --tls-cert of the server names: it is read again"
	default:
		c.Found = "its certificate holds until " + f.Health.Expiry.UTC().Format(time.DateOnly)
	}
	return c
}

// token tells as whom we are known.
func (f ServerFacts) token() Check {
	c := Check{Name: "token", State: OK}
	switch connect.CodeOf(f.StatusErr) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		c.State, c.Found, c.Cost = Missing, reason(f.StatusErr), "this server cannot be asked"
		c.Mend = "on the server: atys token --tokens FILE --role reader -o reader.token; here: atys doctor --server " + quote(f.Address) + " --token-file reader.token"
		return c
	}
	switch {
	case f.Status == nil && f.StatusErr != nil:
		c.Found = "not known: the server does not tell"
	case f.Status.GetRole() == "reader" && f.Local && f.Status.GetName() == "this machine":
		c.Found = "none, and none is needed to read here; \"sudo atys doctor --server\" shows that of who runs it"
	default:
		c.Found = fmt.Sprintf("%s of tenant %s", f.Status.GetRole(), f.Status.GetTenant())
		if name := f.Status.GetName(); name != "" {
			c.Found += ", called " + name
		}
	}
	return c
}

// protocol tells whether the server speaks as we do.
func (f ServerFacts) protocol() Check {
	c := Check{Name: "protocol", State: OK}
	switch theirs := f.Status.GetProtocol(); {
	case f.StatusErr != nil && f.AgentsErr != nil:
		c.State, c.Found, c.Cost = Missing, "it does not answer questions: "+reason(f.AgentsErr), "it is a relay, or no server of atys"
		c.Mend = "atys doctor --server with the server's own address"
	case f.StatusErr != nil:
		c.State, c.Found, c.Cost = Limited, "older than this program: it does not tell how it fares", "clock, disk and quotas of the server are not looked at"
		c.Mend = "put this version of atys on the server, and start it again"
	case theirs > wire.Protocol:
		c.State, c.Found = Limited, fmt.Sprintf("%d, and this program knows %d", theirs, wire.Protocol)
		c.Cost, c.Mend = "what is newer is not understood here", "put the server's version of atys ("+f.Status.GetVersion()+") on this machine"
	case theirs < wire.Protocol:
		c.State, c.Found = Limited, fmt.Sprintf("%d, and this program knows %d", theirs, wire.Protocol)
		c.Cost, c.Mend = "what is newer is not understood there", "put this version of atys on the server, and start it again"
	default:
		c.Found = fmt.Sprintf("%d, version %s, for %v", theirs, f.Status.GetVersion(), f.Now.Sub(time.Unix(0, f.Status.GetStartedUnixNano())).Round(time.Second))
	}
	return c
}

// wrongClock is how far clocks may be apart before windows are told to lie at
// another time than they do.
const wrongClock = time.Second

func (f ServerFacts) clock() Check {
	c := Check{Name: "clock", State: OK, Found: fmt.Sprintf("%s ±%v", apart(f.Offset, "this machine's", "the server's"), f.Uncertain.Round(10*time.Microsecond))}
	if f.Offset.Abs()-f.Uncertain > wrongClock {
		c.State, c.Cost = Limited, "times that are asked for (--from -5m) are other ones on the server"
		c.Mend = "sudo systemctl enable --now systemd-timesyncd (here and on the server)"
	}
	return c
}

// apart says which of two clocks is ahead.
func apart(offset time.Duration, one, other string) string {
	rounded := offset.Abs().Round(10 * time.Microsecond)
	if offset < 0 {
		return fmt.Sprintf("%s is %v behind %s", one, rounded, other)
	}
	return fmt.Sprintf("%s is %v ahead of %s", one, rounded, other)
}
