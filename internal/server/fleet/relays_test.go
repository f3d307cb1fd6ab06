package fleet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// standing is a relay that stands, until leave is called.
func standing(t *testing.T, s *Service, r *atysv1.OfferRequest) (stands <-chan *atysv1.Standing, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan *atysv1.Standing, 100), make(chan error, 1)
	go func() {
		ended <- s.OfferTo(ctx, r, func(st *atysv1.Standing) error {
			told <- st
			return nil
		})
	}()
	return told, func() {
		cancel()
		<-ended
	}
}

// attending is an agent of a zone that is there; shipsTo is what its newest orders say.
func attending(t *testing.T, s *Service, node, zone string) (shipsTo <-chan string) {
	t.Helper()
	told := make(chan string, 100)
	go func() { // ends with the test's context
		_ = s.AttendTo(t.Context(), &atysv1.AttendRequest{Node: node, Labels: map[string]string{"zone": zone}}, func(o *atysv1.Orders) error {
			told <- o.GetShipTo()
			return nil
		})
	}()
	return told
}

// becomes waits for what is told.
func becomes(t *testing.T, who string, told <-chan string, want string) {
	t.Helper()
	for {
		select {
		case got := <-told:
			if got == want {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("%s is not told %q", who, want)
		}
	}
}

func offerOf(name, zone string) *atysv1.OfferRequest {
	return &atysv1.OfferRequest{Name: name, Address: "http://" + name + ":4310", Labels: map[string]string{"zone": zone}}
}

// TestGroups has each zone's agents ship to a relay of the zone, to the same one
// for as long as it is there, and to another one when it has left.
func TestGroups(t *testing.T) {
	_, s := serve(t, "zone")
	a, b, none := attending(t, s, "in-a", "a"), attending(t, s, "in-b", "b"), attending(t, s, "nowhere", "")
	becomes(t, "a", a, "")
	stands, leave := standing(t, s, offerOf("first", "a"))
	if st := <-stands; st.GetTenant() != "default" || st.GetGroup() != "a" || !st.GetCentral() {
		t.Errorf("the first relay stands as %v", st)
	}
	becomes(t, "a", a, "http://first:4310")
	spare, leaveSpare := standing(t, s, offerOf("second", "a"))
	if st := <-spare; st.GetCentral() {
		t.Error("a second relay took the first one's place")
	}
	_, leaveOther := standing(t, s, offerOf("other", "b"))
	defer leaveOther()
	becomes(t, "b", b, "http://other:4310")
	leave()
	becomes(t, "a", a, "http://second:4310")
	for st := range spare {
		if st.GetCentral() {
			break
		}
	}
	leaveSpare()
	becomes(t, "a", a, "")
	for {
		select {
		case to := <-none:
			if to != "" {
				t.Errorf("an agent of no zone is to ship to %s", to)
			}
			continue
		default:
		}
		break
	}
}

// TestOneGroup has all agents ship to the one relay there is where nothing says
// how to group them; one that comes back before it was missed counts once.
func TestOneGroup(t *testing.T) {
	f, s := serve(t, "")
	told := attending(t, s, "n", "any")
	_, leave := standing(t, s, offerOf("only", "b"))
	becomes(t, "n", told, "http://only:4310")
	again, leaveAgain := standing(t, s, offerOf("only", "b"))
	<-again
	leave()
	f.mu.Lock()
	if n := len(f.relays.offers); n != 1 {
		t.Errorf("%d relays are known", n)
	}
	f.mu.Unlock()
	leaveAgain()
	becomes(t, "n", told, "")
}

// swallower is a network that swallows all it is given, from when it is told to.
type swallower struct {
	net.Listener
	swallows atomic.Bool
}

func newSwallower(t *testing.T, to string) *swallower {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &swallower{Listener: l}
	t.Cleanup(func() { _ = l.Close() }) // nobody connects any more
	pass := func(to, from net.Conn) {
		defer to.Close()
		for buffer := make([]byte, 4096); ; {
			n, err := from.Read(buffer)
			if err == nil && !s.swallows.Load() {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go pass(server, c)
			go pass(c, server)
		}
	}()
	return s
}

// TestRelayLosesItsPower has the connection of a group's relay swallow everything:
// it is there no more within a moment, whatever TCP believes, and another one is
// the group's. One that never answers, as old ones, stays while its connection does.
func TestRelayLosesItsPower(t *testing.T) {
	f, s := serve(t, "zone")
	f.heartbeat, f.relayMissed = 50*time.Millisecond, 2*time.Second
	h := httptest.NewServer(handler(s))
	t.Cleanup(h.Close)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(cancel)
	network := newSwallower(t, h.Listener.Addr().String())
	ended := make(chan error, 3)
	offer := func(name, url string, answers bool) {
		client := &http.Client{Transport: &http.Transport{}}
		to := remote.New(client, url)
		stands := make(chan bool, 1000)
		all.Go(func() {
			defer client.CloseIdleConnections()
			err := to.OfferTo(ctx, offerOf(name, "a"), func(st *atysv1.Standing) error {
				select {
				case stands <- true:
				default:
				}
				if !answers {
					return nil
				}
				_, err := to.Stand(ctx, &atysv1.StandRequest{Offer: st.GetOffer()})
				return err
			})
			if name == "second" {
				ended <- err
			}
		})
		<-stands
	}
	old := attending(t, s, "in-a", "a")
	becomes(t, "a", old, "")
	offer("first", "http://"+network.Addr().String(), true)
	offer("second", h.URL, true)
	offer("old", h.URL, false)
	becomes(t, "a", old, "http://first:4310")
	time.Sleep(2 * f.relayMissed) // those that answer stay
	began := time.Now()
	network.swallows.Store(true)
	told := make(chan bool)
	go func() {
		for to := range old {
			if to == "http://second:4310" {
				break
			}
		}
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(testwait.Longest(t)):
		t.Fatal("a relay without power is still the group's")
	}
	if took := time.Since(began); took < f.relayMissed/2 {
		t.Errorf("it was given up after %v already", took)
	}
	f.mu.Lock()
	if n := len(f.relays.offers); n != 2 {
		t.Errorf("%d relays are known, and one has lost its power", n)
	}
	f.mu.Unlock()
	select {
	case err := <-ended:
		t.Errorf("a relay that answers was sent away: %v", err)
	default:
	}
}

// TestBadOffers refuses relays that agents could not reach.
func TestBadOffers(t *testing.T) {
	_, s := serve(t, "")
	for _, address := range []string{"", "here:4310", "file:///etc/passwd", "http://", "http://user:secret@here", "http://here\n"} {
		err := s.OfferTo(t.Context(), &atysv1.OfferRequest{Name: "n", Address: address}, func(*atysv1.Standing) error { return nil })
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := s.OfferTo(t.Context(), &atysv1.OfferRequest{Address: "http://here:1"}, func(*atysv1.Standing) error { return nil }); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("one without a name: %v", err)
	}
}
