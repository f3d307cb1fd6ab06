package auth

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

// TestConnectionsAreBounded has further ones wait until one has ended.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := BoundConnections(inner, 2, slog.New(slog.DiscardHandler))
	accepted := make(chan net.Conn, 10)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 4 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	<-accepted
	select {
	case <-accepted:
		t.Error("one more is accepted")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // counts once
	<-accepted
	select {
	case <-accepted:
		t.Error("two are accepted in place of one")
	case <-time.After(50 * time.Millisecond):
	}
	l.Close()
	<-ended
}

// crowd is a server by which few connections stand.
type crowd struct {
	listener *boundedListener
	address  string
	said     *bytes.Buffer // read it once the server is closed
	clock    *atomic.Int64 // seconds that it believes to have passed
	goOn     chan bool     // has those be answered who ask for /wait
	close    func()
}

func newCrowd(t *testing.T, most int) *crowd {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{address: inner.Addr().String(), said: &bytes.Buffer{}, clock: &atomic.Int64{}, goOn: make(chan bool)}
	log := slog.New(slog.NewTextHandler(c.said, nil))
	c.listener = BoundConnections(inner, most, log).(*boundedListener)
	began := time.Now()
	c.listener.now = func() time.Time { return began.Add(time.Duration(c.clock.Load()) * time.Second) }
	gate := gated(t)
	gate.Local = &Identity{Role: Agent}
	s := &http.Server{ConnState: TrackUse, ConnContext: WithConnection, Handler: gate.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-c.goOn
		}
	}))}
	s.Protocols = &http.Protocols{}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(c.listener) }) // it ends when it is closed
	c.close = sync.OnceFunc(func() {
		_ = s.Close() // who is still there is of no interest
		served.Wait()
	})
	t.Cleanup(c.close)
	return c
}

// comes makes a connection.
func (c *crowd) comes(t *testing.T) net.Conn {
	t.Helper()
	one, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	return one
}

// asks asks by a connection.
func asks(t *testing.T, one net.Conn, path string) {
	t.Helper()
	if _, err := io.WriteString(one, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// isAnswered tells whether there is an answer within a time.
func isAnswered(one net.Conn, patience time.Duration) bool {
	if err := one.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return false
	}
	answer, err := http.ReadResponse(bufio.NewReader(one), nil)
	return err == nil && answer.StatusCode == http.StatusOK
}

// TestUnusedConnectionsGiveWay lets nobody shut others out by connections that ask
// nothing; those that are in use stay.
func TestUnusedConnectionsGiveWay(t *testing.T) {
	c := newCrowd(t, 4)
	inUse := []net.Conn{c.comes(t), c.comes(t)}
	for _, one := range inUse {
		asks(t, one, "/wait")
	}
	c.waitFor(t, func() bool { return c.listener.all == len(inUse) && c.listener.anonymous.Len() == 0 })
	var silent []net.Conn
	for range 20 {
		silent = append(silent, c.comes(t))
	}
	next := c.comes(t)
	asks(t, next, "/")
	if !isAnswered(next, testwait.Longest(t)) {
		t.Error("who asks is not answered")
	}
	_ = silent[0].SetReadDeadline(time.Now().Add(testwait.Longest(t))) // or it waits for ever
	if n, err := silent[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest stands: %d, %v", n, err)
	}
	close(c.goOn)
	for _, one := range inUse {
		if !isAnswered(one, testwait.Longest(t)) {
			t.Error("one that was in use gave way")
		}
	}
	c.close()
	if times := strings.Count(c.said.String(), "connection limit reached"); times != 1 {
		t.Errorf("it is told %d times: %s", times, c.said)
	}
}

// waitFor waits until something holds of the listener.
func (c *crowd) waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		c.listener.mu.Lock()
		ok := holds()
		c.listener.mu.Unlock()
		if ok {
			return
		}
		if time.Since(began) > testwait.Longest(t) {
			t.Fatal("it does not come to be")
		}
	}
}

// TestIdleConnectionsGiveWay lets nobody shut others out by connections that have
// asked once, and asks nobody to make a new one who uses theirs.
func TestIdleConnectionsGiveWay(t *testing.T) {
	c := newCrowd(t, 1)
	first := c.comes(t)
	asks(t, first, "/")
	if !isAnswered(first, 10*time.Second) {
		t.Fatal("the first is not answered")
	}
	next := c.comes(t)
	asks(t, next, "/")
	if isAnswered(next, 100*time.Millisecond) {
		t.Error("one that was used a moment ago gave way")
	}
	asks(t, first, "/")
	if !isAnswered(first, 10*time.Second) {
		t.Error("it is not answered again")
	}
	for range 10 { // it is of no use a moment after it was answered
		c.clock.Add(int64(longIdle / time.Second))
		if isAnswered(next, 3*time.Second) {
			return
		}
	}
	t.Error("one that nobody uses keeps others out")
}

// TestStrangersGiveWay lets nobody shut others out by connections that ask what needs
// nobody to be known, however often; those of who is known stay.
func TestStrangersGiveWay(t *testing.T) {
	c := newCrowd(t, 4)
	known := c.comes(t)
	asks(t, known, "/")
	if !isAnswered(known, testwait.Longest(t)) {
		t.Fatal("who is known is not answered")
	}
	for range 3 {
		one := c.comes(t)
		for range 2 {
			asks(t, one, "/healthz")
			if !isAnswered(one, testwait.Longest(t)) {
				t.Fatal("a stranger is not answered")
			}
		}
	}
	for range 3 { // the strangers asked a moment ago
		next := c.comes(t)
		asks(t, next, "/")
		if !isAnswered(next, testwait.Longest(t)) {
			t.Fatal("strangers keep somebody out who is known")
		}
	}
	asks(t, known, "/")
	if !isAnswered(known, testwait.Longest(t)) {
		t.Error("who is known gave way")
	}
}

// TestStrangersOfTwoOrigins has two machines use all of their shares without a token,
// and the next is let in.
func TestStrangersOfTwoOrigins(t *testing.T) {
	b := BoundConnections(elsewhere{}, 1100, slog.New(slog.DiscardHandler)).(*boundedListener)
	come := func(address string) bool {
		one := &boundedConn{Conn: from{address: address}, listener: b}
		one.origin = originOf(one.RemoteAddr())
		if !b.enter(one) {
			return false
		}
		for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle, http.StateActive, http.StateIdle} {
			one.track(state)
		}
		return true
	}
	for range 560 {
		come("10.0.0.1:1")
		come("10.0.0.2:1")
	}
	if b.all != 1100 {
		t.Errorf("%d connections", b.all)
	}
	entered := make(chan bool, 1)
	go func() { entered <- come("10.0.0.3:1") }()
	select {
	case ok := <-entered:
		if !ok {
			t.Error("another machine is refused")
		}
	case <-time.After(testwait.Longest(t)):
		b.mu.Lock()
		b.closed = true
		b.room.Broadcast()
		b.mu.Unlock()
		t.Error("another machine waits")
	}
}

// from is a connection of somebody.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return f }
func (f from) Network() string      { return "tcp" }
func (f from) String() string       { return f.address }
func (from) Close() error           { return nil }

// elsewhere is a listener that other machines reach.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return from{address: "0.0.0.0:4300"} }

// TestShares has nobody take all connections there are.
func TestShares(t *testing.T) {
	for name, test := range map[string]struct {
		addresses []string
		share     int // of twelve
	}{
		"a machine":           {[]string{"10.0.0.1:1"}, 6},
		"its addresses":       {[]string{"[2001:db8::1]:1", "[2001:db8::ffff:2]:1"}, 6},
		"as IPv6 writes it":   {[]string{"10.0.0.1:1", "[::ffff:10.0.0.1]:1"}, 6},
		"on a link":           {[]string{"[fe80::1%eth0]:1", "[fe80::1%eth1]:1"}, 6},
		"this machine":        {[]string{"127.0.0.1:1", "127.9.8.7:1", "[::1]:1"}, 11},
		"what has no address": {[]string{"@"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			b := BoundConnections(elsewhere{}, 12, slog.New(slog.DiscardHandler)).(*boundedListener)
			come := func(address string) (*boundedConn, bool) {
				c := &boundedConn{Conn: from{address: address}, listener: b}
				c.origin = originOf(c.RemoteAddr())
				return c, b.enter(c)
			}
			other, _ := come("192.0.2.1:1")
			other.track(http.StateNew)
			var all []*boundedConn
			for i := range test.share {
				c, ok := come(test.addresses[i%len(test.addresses)])
				if !ok {
					t.Fatalf("connection %d is refused", i)
				}
				all = append(all, c)
			}
			if _, ok := come(test.addresses[0]); ok {
				t.Error("it has more than its share")
			}
			all[2].track(http.StateNew)
			if _, ok := come(test.addresses[0]); !ok || !all[2].left || other.left {
				t.Errorf("one of its own unused ones did not give way: %v, another's %v", all[2].left, other.left)
			}
		})
	}
}

// TestConnectionsWithin leaves files for what is no connection.
func TestConnectionsWithin(t *testing.T) {
	for files, want := range map[uint64]int{0: 1, 1024: 512, 2000: 1000, 4096: 3096, 25_000: 24_000, 65_536: 24_000, math.MaxUint64: 24_000} {
		if got := connectionsWithin(files); got != want {
			t.Errorf("%d of %d files, want %d", got, files, want)
		}
	}
}

// TestKnownByHTTP2 has a connection of HTTP/2 stay by which somebody asks who is known.
func TestKnownByHTTP2(t *testing.T) {
	c := newCrowd(t, 4)
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for path, strangers := range map[string]int{"/": 0, "/healthz": 1} {
		transport.CloseIdleConnections()
		c.waitFor(t, func() bool { return c.listener.all == 0 })
		answer, err := (&http.Client{Transport: transport}).Get("http://" + c.address + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		c.waitFor(t, func() bool { return c.listener.all == 1 && c.listener.anonymous.Len() == strangers })
	}
}
