package agent

import (
	"errors"
	"testing"
	"time"

	"log/slog"
)

// TestRoute ships to the relay that is named, to the server while that one
// fails, and to another one when it is named.
func TestRoute(t *testing.T) {
	direct := &server{}
	relays := map[string]*server{"http://a": {}, "http://b": {}}
	r := newRoute(Options{Intake: direct, Log: slog.New(slog.DiscardHandler), Relay: func(address string) (Intake, error) {
		if s := relays[address]; s != nil {
			return s, nil
		}
		return nil, errors.New("no way there")
	}})
	want := func(when string, to Intake) {
		t.Helper()
		if r.intake() != to {
			t.Errorf("%s: ships elsewhere", when)
		}
	}
	want("at first", direct)
	r.use("http://a")
	want("once a relay is named", relays["http://a"])
	for range 2 {
		r.note(relays["http://a"], false)
	}
	r.note(relays["http://a"], true)
	for range 2 {
		r.note(relays["http://a"], false)
	}
	want("after failures that were not in a row", relays["http://a"])
	r.note(relays["http://a"], false)
	want("after three in a row", direct)
	r.note(direct, false)
	r.use("http://a") // said again: nothing new
	want("while it is avoided", direct)
	r.mu.Lock()
	r.avoided = time.Now()
	r.mu.Unlock()
	want("after a while", relays["http://a"])
	r.use("http://b")
	want("once another one is named", relays["http://b"])
	r.use("http://unreachable")
	want("where there is no way", direct)
	r.use("")
	want("without a relay", direct)
}
