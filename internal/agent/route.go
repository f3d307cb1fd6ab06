package agent

import (
	"log/slog"
	"sync"
	"time"
)

// route is whom windows are shipped to: the relay that the server names, while
// it takes them, else the server itself.
type route struct {
	server Intake
	dial   Relay
	log    *slog.Logger

	mu       sync.Mutex // guards all below
	address  string
	relay    Intake    // nil: there is none
	failures int       // in a row, of the relay
	avoided  time.Time // until then it is not tried
}

// A relay that has failed so often is not tried for a while: the server may not
// have noticed yet, or may reach it where we do not.
const (
	relayFailures = 3
	relayAvoided  = time.Minute
)

func newRoute(o Options) *route {
	return &route{server: o.Intake, dial: o.Relay, log: o.Log}
}

// use has windows go to the relay at an address; "": to the server.
func (r *route) use(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if address == r.address || r.dial == nil {
		return
	}
	r.address, r.relay, r.failures, r.avoided = address, nil, 0, time.Time{}
	if address == "" {
		r.log.Info("ship to the server")
		return
	}
	relay, err := r.dial(address)
	if err != nil {
		r.log.Error("reach a relay", "address", address, "error", err)
		return
	}
	r.log.Info("ship to a relay", "address", address)
	r.relay = relay
}

// intake is whom to ship to now.
func (r *route) intake() Intake {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relay == nil || time.Now().Before(r.avoided) {
		return r.server
	}
	return r.relay
}

// note remembers whether somebody could be reached.
func (r *route) note(to Intake, reached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case to != r.relay:
		return
	case reached:
		r.failures = 0
		return
	}
	if r.failures++; r.failures >= relayFailures {
		r.failures, r.avoided = 0, time.Now().Add(relayAvoided)
		r.log.Warn("a relay fails: ship to the server", "address", r.address, "for", relayAvoided)
	}
}
