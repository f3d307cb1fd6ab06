package auth

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

// gated is a gate that lets an agent through who has the token "known".
func gated(t *testing.T) *Gate {
	t.Helper()
	tokens, err := OpenTokens("", time.Now, quiet)
	if err != nil {
		t.Fatal(err)
	}
	tokens.Add("known", Identity{Tenant: "default", Role: Agent})
	return &Gate{Tokens: tokens, Needs: func(r *http.Request) Role {
		if r.URL.Path == "/healthz" {
			return ""
		}
		return Agent
	}}
}

// TestStill has who was let through be refused once the token is taken back or
// is somebody else's.
func TestStill(t *testing.T) {
	g := gated(t)
	var ctx context.Context
	h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer known")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if ctx == nil || Still(ctx) != nil {
		t.Fatal("who is known is not let through")
	}
	g.Tokens.Add("known", Identity{Tenant: "other", Role: Agent})
	if Still(ctx) == nil {
		t.Error("a token of another tenant still counts for the first one's")
	}
	g.Tokens.added = nil
	if Still(ctx) == nil {
		t.Error("a token that was taken back still counts")
	}
	if err := Still(context.Background()); err != nil {
		t.Errorf("who came through no gate: %v", err)
	}
}

// TestCertificateRunsOut refuses requests of a connection that outlives its certificate.
func TestCertificateRunsOut(t *testing.T) {
	now := time.Now()
	g := gated(t)
	g.Now = func() time.Time { return now }
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: subject("default", "agent", "n"), NotAfter: now.Add(time.Minute)}}}}
	for after, want := range map[time.Duration]error{0: nil, 2 * time.Minute: ErrRefused} {
		now = now.Add(after)
		if _, err := g.identify(r); err != want {
			t.Errorf("%v later: %v, want %v", after, err, want)
		}
		now = now.Add(-after)
	}
}

// TestGuesses bounds how often an address may guess, and nobody else.
func TestGuesses(t *testing.T) {
	g := gated(t)
	g.Limit = &Limit{Rate: 1, Burst: 3, Now: func() time.Time { return time.Unix(0, 0) }}
	h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(token, remote string) int {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.RemoteAddr = remote
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, want := range []int{401, 401, 401, 429, 429} {
		if got := ask("guess", "10.0.0.1:1"); got != want {
			t.Errorf("guess %d: %d, want %d", i, got, want)
		}
	}
	if got := ask("guess", "10.0.0.2:1"); got != 401 {
		t.Errorf("a first guess from elsewhere: %d", got)
	}
	if got := ask("known", "10.0.0.1:1"); got != 200 {
		t.Errorf("who is known, from where another guesses: %d", got)
	}
}

// TestBodiesThatNeverCome has nobody hold a connection by a body that is announced.
func TestBodiesThatNeverCome(t *testing.T) {
	s := httptest.NewServer(Guard(nil, false, gated(t).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))))
	t.Cleanup(s.Close)
	for name, head := range map[string]string{
		"refused": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"chunked": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"healthz": "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, head); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(unwantedBody + testwait.Longest(t))); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, bufio.NewReader(c)); err != nil {
				t.Errorf("the connection stands: %v", err)
			}
		})
	}
}

// TestWhole gives handlers the body as it came, or why it did not.
func TestWhole(t *testing.T) {
	var body []byte
	var failed error
	h := (&Bodies{Each: 10, All: 10}).Whole(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { body, failed = io.ReadAll(r.Body) }))
	for text, fails := range map[string]bool{"": false, "ten bytes.": false, "eleven byte": true} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text)))
		if (failed != nil) != fails || !strings.HasPrefix(text, string(body)) || !fails && string(body) != text {
			t.Errorf("%q comes as %q, %v", text, body, failed)
		}
	}
}

// hurried remembers until when a request's body is waited for.
type hurried struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (h *hurried) SetReadDeadline(at time.Time) error {
	h.until = at
	return nil
}

// TestAnswersTakeTheirTime bounds how long a body takes, and nothing after it.
func TestAnswersTakeTheirTime(t *testing.T) {
	w := &hurried{ResponseRecorder: httptest.NewRecorder()}
	answered := false
	h := Guard(nil, false, (&Bodies{Each: 10, All: 10}).Whole(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		answered = true
		if !w.until.IsZero() {
			t.Errorf("the answer has time until %v", w.until)
		}
	})))
	body := readerFunc(func([]byte) (int, error) {
		if left := time.Until(w.until); left <= 0 || left > wantedBody {
			t.Errorf("the body has %v", left)
		}
		return 0, io.EOF
	})
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", body)); !answered {
		t.Error("nobody answered")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(to []byte) (int, error) { return f(to) }

// TestGuard tells requests that were meant for us from those that were not.
func TestGuard(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	link := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	for _, test := range []struct {
		name   string
		local  bool
		path   string
		header map[string]string
		want   int
	}{
		{"our own page", true, "/flame", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 200},
		{"an address that was typed", true, "/flame?last=1m", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200},
		{"an image of another site", true, "/flame", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"one of another port", false, "/flame", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"a link to the first page", true, "/", link, 200},
		{"a link to what it chose", true, "/?select=%7B%7D", link, 403},
		{"a link to what takes long", true, "/flame", link, 403},
		{"a frame", true, "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"a proxy before who reads without a token", true, "/", map[string]string{"X-Forwarded-For": "10.0.0.1"}, 403},
		{"the standard's way to say so", true, "/", map[string]string{"Forwarded": "for=10.0.0.1"}, 403},
		{"one that says that it is there", true, "/", map[string]string{"Via": "1.1 proxy"}, 403},
		{"nginx's way", true, "/", map[string]string{"X-Real-IP": "10.0.0.1"}, 403},
		{"one that tells the name that was asked", true, "/", map[string]string{"X-Forwarded-Host": "localhost"}, 403},
		{"and how", true, "/", map[string]string{"X-Forwarded-Proto": "https"}, 403},
		{"a proxy before who asks everybody", false, "/", map[string]string{"X-Forwarded-For": "10.0.0.1"}, 200},
	} {
		r, w := httptest.NewRequest(http.MethodGet, "http://localhost"+test.path, nil), httptest.NewRecorder()
		for name, value := range test.header {
			r.Header.Set(name, value)
		}
		if Guard(nil, test.local, ok).ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("%s: %d, want %d: %s", test.name, w.Code, test.want, w.Body)
		}
	}
}
