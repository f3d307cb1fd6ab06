package faults

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/vacant"
)

// Relay is a relay that can be killed and started again at the same place.
type Relay struct {
	*process.Process
	Within  []string // what runs it
	server  *Server
	address string
	args    []string
}

// Upstream is where a relay passes windows on to: a server, or another relay.
type Upstream interface{ URL() string }

// NewRelay starts a relay before a server, or before another relay of it. Who
// may ask the server may ask the relay.
func NewRelay(s *Server, to Upstream, dir, name string, args ...string) (*Relay, error) {
	address, err := vacant.Address()
	if err != nil {
		return nil, err
	}
	token, err := s.Token()
	if err != nil {
		return nil, err
	}
	line, err := auth.Line(token, auth.Identity{Tenant: auth.DefaultTenant, Role: auth.Operator})
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		return nil, err
	}
	r := &Relay{server: s, address: address, args: append([]string{"relay", "--server", to.URL(), "--name", name, "--listen", address, "--tokens", tokens,
		"--token-file", filepath.Join(s.Dir, "operator.token"), "--request-rate", "0", "--verbose"}, args...)}
	return r, r.Again()
}

// URL is how it is asked.
func (r *Relay) URL() string { return "http://" + r.address }

// Client asks it as the server's operator.
func (r *Relay) Client() *http.Client {
	return &http.Client{Timeout: answerWithin, Transport: &auth.Bearer{Token: r.server.Token, Scheme: "http", Host: r.address, Next: &http.Transport{MaxIdleConnsPerHost: 4}}}
}

// Again starts it anew, and waits until it can be asked.
func (r *Relay) Again() (err error) {
	if r.Process, err = start(r.Within, r.server.Program, r.args...); err != nil {
		return err
	}
	return r.Await(startWithin, func() bool { return process.Answers(r.address) })
}

// Relays are those that a server knows, by name.
func (s *Server) Relays(ctx context.Context) (map[string]*atysv1.RelayStatus, error) {
	response, err := atysv1connect.NewControlClient(s.Client(), s.URL()).Get(ctx, &atysv1.GetRequest{Kind: "relays"})
	if err != nil {
		return nil, err
	}
	all := map[string]*atysv1.RelayStatus{}
	for _, o := range response.GetObjects() {
		all[o.GetName()] = o.GetRelay()
	}
	return all, nil
}

// passed finds how many windows a relay has passed on in what it tells Prometheus.
var passed = regexp.MustCompile(`(?m)^atys_relay_windows_total ([0-9]+)$`)

// Passed is how many windows it has passed on; 0 if it does not say.
func (r *Relay) Passed(ctx context.Context) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/metrics", nil)
	if err != nil {
		return 0
	}
	answer, err := r.Client().Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0
	}
	found := passed.FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return 0
	}
	return n
}
