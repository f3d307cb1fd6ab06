package auth

import (
	"net"
	"net/http"
	"net/url"
	"slices"
)

// Guard lets only requests through that were meant for this server: a page of
// another site can have a browser ask here, under a name of its own that leads
// to this address, or from its own origin. Where who asks need not say who they
// are (local), only our own names count; else any, for what a browser knows of
// one site it does not tell another.
func Guard(hosts []string, local bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
