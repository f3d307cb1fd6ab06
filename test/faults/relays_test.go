package faults

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

func relay(t *testing.T, s *Server, to Upstream, name string, args ...string) *Relay {
	t.Helper()
	r, err := NewRelay(s, to, t.TempDir(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Kill() })
	return r
}

// TestRelayKilled kills a server, a relay of it and a relay of that one again and
// again while they are sent to: each window that one of them acknowledged is at
// the server, once.
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	near := relay(t, s, s, "near", "--merge", "service,instance")
	far := relay(t, s, near, "far")
	over := time.Now().Add(long(t, 15*time.Second))
	const leastKills, leastSent = 5, 50 // fewer tell nothing: a busy machine takes longer
	var sent atomic.Int64
	var enough atomic.Bool
	var senders []*Sender
	failed := make(chan error, 9)
	for i, to := range []Receiver{s, near, far, s, near, far, near, far, far} {
		one := NewSender(to, fmt.Sprintf("web-%d", i))
		senders = append(senders, one)
		go func() {
			var err error
			for err == nil && !enough.Load() {
				if err = one.Send(t.Context()); err == nil {
					sent.Add(1)
				}
			}
			failed <- err
		}()
	}
	r, kills := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 4)), 0
	atMost := time.Now().Add(testwait.Longest(t))
	for ; time.Now().Before(over) || (kills < leastKills || sent.Load() < leastSent) && time.Now().Before(atMost); kills++ {
		time.Sleep(time.Duration(r.Int64N(int64(1500 * time.Millisecond))))
		victim := []interface {
			Kill()
			Again() error
		}{s, near, far}[r.IntN(3)]
		victim.Kill()
		if err := victim.Again(); err != nil {
			t.Fatal(err)
		}
	}
	enough.Store(true)
	acknowledged := 0
	for range senders {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	for _, one := range senders {
		acknowledged += one.Acknowledged
	}
	t.Logf("%d kills, %d windows acknowledged", kills, acknowledged)
	if kills < leastKills || acknowledged < leastSent {
		t.Errorf("%d kills, %d windows: too few to tell anything", kills, acknowledged)
	}
	check(t, s, senders...)
}

// TestRelayLost has a server choose one of two relays of a zone, which is killed,
// and then the other one: the agent ships to the one that is left, and then to
// the server, and nothing is missing. One of another zone is never shipped to.
func TestRelayLost(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	s.Kill()
	s.Args = []string{"--group-by", "zone"}
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	relays := map[string]*Relay{}
	for _, name := range []string{"one", "two"} {
		relays[name] = relay(t, s, s, name, "--label", "zone=a")
	}
	relay(t, s, s, "elsewhere", "--label", "zone=b")
	began := time.Now()
	a := recording(t, s, s.URL(), t.TempDir(), nil, "--label", "zone=a")
	for left := 2; left > 0; left-- {
		var name string
		wait(t, a, "a relay is the zone's", func() bool {
			name = central(t, s, "a")
			return name != "" && relays[name] != nil && known(t, s, a).ShipsTo == relays[name].URL()
		})
		wait(t, a, "windows come through relay "+name, func() bool { return relays[name].Passed(t.Context()) > 0 })
		relays[name].Kill()
		delete(relays, name)
	}
	wait(t, a, "no relay is left", func() bool { return known(t, s, a).ShipsTo == "" })
	had := len(cuts(t, s, began))
	wait(t, a, "windows come without a relay", func() bool { return len(cuts(t, s, began)) > had })
	settled(t, a)
	whole(t, s, a, began)
}

// TestRelayLosesItsPower stops a group's relay, whose kernel goes on to take what is
// sent to it, so that no connection ends: the server has the group ship to the other
// one within half a minute, and the first one, when it goes on, stands in line.
func TestRelayLosesItsPower(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	is := func(name string) func() bool { return func() bool { return central(t, s, "") == name } }
	one := relay(t, s, s, "one")
	waitFor(t, "the only relay is chosen", is("one"), s.Process)
	relay(t, s, s, "two")
	waitFor(t, "there are two", func() bool { return len(relaysOf(t, s)) == 2 }, s.Process)
	one.Signal(unix.SIGSTOP)
	stopped := time.Now()
	waitFor(t, "the other relay is chosen", is("two"), s.Process)
	t.Logf("%v after the first one was heard last", time.Since(stopped))
	waitFor(t, "the first one is gone", func() bool { return len(relaysOf(t, s)) == 1 }, s.Process)
	one.Signal(unix.SIGCONT)
	waitFor(t, "the first one is back", func() bool { return len(relaysOf(t, s)) == 2 }, s.Process)
	if !is("two")() {
		t.Error("a relay that came back took the place of the one that stood")
	}
}

func relaysOf(t *testing.T, s *Server) map[string]*atysv1.RelayStatus {
	t.Helper()
	relays, err := s.Relays(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return relays
}

// central is the relay that agents of a group are to ship to; "": there is none.
func central(t *testing.T, s *Server, group string) string {
	t.Helper()
	for name, r := range relaysOf(t, s) {
		if r.GetGroup() == group && r.GetCentral() {
			return name
		}
	}
	return ""
}
