package auth

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Guard lets only requests through that were meant for this server: a page of
// another site can have a browser ask here, under a name of its own that leads
// to this address, or from its own origin. Where who asks need not say who they
// are (local), only our own names count; else any, for what a browser knows of
// one site it does not tell another.
//
// A body has to come within a moment: whoever refuses a request does not read
// it, and its connection would wait for ever. Who wants it says so (Bodies,
// Flowing).
func Guard(hosts []string, local bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			within(w, unwantedBody)
		}
		if local && passedOn(r) {
			http.Error(w, "a proxy passes requests of others on to this server, which answers whoever asks on its own machine: start it with --tokens", http.StatusForbidden)
			return
		}
		if fetchedByOthers(r) {
			http.Error(w, "requests from pages of other sites are not answered: type the address yourself", http.StatusForbidden)
			return
		}
		if local && !known(hosts, r.Host) {
			http.Error(w, "this server is not called "+printableHost(r.Host), http.StatusMisdirectedRequest)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			u, err := url.Parse(origin)
			if err != nil || u.Host != r.Host && !(local && known(hosts, u.Host)) {
				http.Error(w, "requests from pages of other sites are not answered", http.StatusForbidden)
				return
			}
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "SAMEORIGIN")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

// proxies say so by these; some say nothing, and cannot be told from who asks
// here themselves.
var proxies = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// passedOn tells whether a proxy says that it passes on what others ask.
func passedOn(r *http.Request) bool {
	return slices.ContainsFunc(proxies, func(name string) bool { return len(r.Header[name]) > 0 })
}

// unwantedBody is how long the body of a request may take that nobody reads.
const unwantedBody = 5 * time.Second

// within bounds how long the rest of a request may take to come; 0: not at all.
func within(w http.ResponseWriter, patience time.Duration) {
	deadline := time.Time{}
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	_ = http.NewResponseController(w).SetReadDeadline(deadline) // who cannot has no connection that waits
}

// fetchedByOthers tells whether a browser says that a page of another site asks:
// an image or a form of it would have us add up windows. A link may lead to the
// page that everybody begins at, with nothing that the other site has chosen;
// pages that take long, or that show what it chose, are not reached by one.
func fetchedByOthers(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site": // a site's other ports and hosts are somebody else's
	default:
		return false
	}
	link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return !link || r.URL.Path != "/" || r.URL.RawQuery != ""
}

// known tells whether a host, with or without a port, is one of ours: a name we
// were given, or an address of this machine alone.
func known(hosts []string, host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if name == "localhost" || slices.Contains(hosts, name) {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// printableHost is a host as an answer may repeat it.
func printableHost(host string) string {
	const most = 100
	clean := make([]byte, 0, min(len(host), most))
	for i := 0; i < len(host) && len(clean) < most; i++ {
		if c := host[i]; c > ' ' && c < 0x7f && c != '<' && c != '>' && c != '&' && c != '"' {
			clean = append(clean, c)
		}
	}
	return string(clean)
}
