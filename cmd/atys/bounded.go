package main

import (
	"container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mostConnections may stand at once, where as many files may be open: agents
	// keep two each, of which there may be 10,000, and people and relays come too.
	mostConnections = 24_000
	// otherFiles are left for what is no connection: the store's, maps, executables.
	otherFiles = 1_000
)

// longIdle is how long a connection has been of no use that gives way to others:
// agents ask by theirs at least each twenty seconds.
const longIdle = 30 * time.Second

// connectionsWithin is how many connections may stand where so many files may be
// open. Go itself raises that limit as far as it goes when a program begins.
func connectionsWithin(files uint64) int {
	switch {
	case files >= mostConnections+otherFiles:
		return mostConnections
	case files >= 2*otherFiles:
		return int(files - otherFiles)
	}
	return max(int(files/2), 1)
}

// connectionsAllowed is how many connections this process may have.
func connectionsAllowed() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return connectionsWithin(files.Cur)
}

// bounded is a listener with so many connections, of which no machine has more than
// its share. When there are as many as may be, one gives way to the next by which
// nobody has asked anything yet, the oldest first, or nobody has for long; where all
// are in use the next waits. Clients keep connections in reserve for minutes, and so
// they stand for as long as there is room.
type bounded struct {
	net.Listener
	most  int
	alone bool // nobody can come from another machine
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex // guards all below, and all of a boundedConn that changes
	room   *sync.Cond // somebody has left, or would now
	closed bool
	all    int
	of     map[origin]int
	unused list.List // connections by which nobody has asked anything, the oldest first
	idle   list.List // and those that are of no use any more, the longest first

	crowded int       // times that there was no room, since it was told
	told    time.Time // when that was
}

func newBounded(l net.Listener, most int, log *slog.Logger) *bounded {
	b := &bounded{Listener: l, most: most, alone: originOf(l.Addr()) == thisMachine, log: log, now: time.Now, of: map[origin]int{}}
	b.room = sync.NewCond(&b.mu)
	return b
}

// origin is the machine that a connection comes from.
type origin string

// thisMachine is where all come from that have an address of the loopback.
const thisMachine origin = "this machine"

// originOf tells it. Of IPv6 a machine has a network of addresses.
func originOf(a net.Addr) origin {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return origin(a.String())
	}
	ip := at.Addr().Unmap().WithZone("")
	switch {
	case ip.IsLoopback():
		return thisMachine
	case ip.Is6():
		const network = 64
		return origin(netip.PrefixFrom(ip, network).Masked().String())
	}
	return origin(ip.String())
}

// share is how many connections one machine may have: half of them, for agents may
// come by one address. This one may leave a twelfth, so that others still get in.
func (b *bounded) share(of origin) int {
	switch {
	case of != thisMachine:
		return max(b.most/2, 1)
	case b.alone:
		return b.most
	}
	return b.most - b.most/12
}

// Accept gives the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		one := &boundedConn{Conn: c, listener: b, origin: originOf(c.RemoteAddr())}
		if b.enter(one) {
			return one, nil
		}
		_ = c.Close() // nothing was written to it
	}
}

// enter takes a connection in as soon as there is room; false: its machine has its
// share, and uses it, or the listener is closed.
func (b *bounded) enter(c *boundedConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		share := b.share(c.origin)
		over := share < b.most && b.of[c.origin] >= share
		if !over && b.all < b.most {
			b.all++
			b.of[c.origin]++
			return true
		}
		b.complain(c.origin)
		switch {
		case b.displace(c.origin, over):
		case over:
			return false
		default:
			b.wait()
		}
	}
	return false
}

// wait waits until somebody leaves, and not for long: others become idle
// meanwhile. The lock is held.
func (b *bounded) wait() {
	wake := time.AfterFunc(time.Second, b.room.Broadcast)
	defer wake.Stop()
	b.room.Wait()
}

// displace closes a connection that can be done without: one of a machine, or of
// any. The lock is held.
func (b *bounded) displace(of origin, itsOwn bool) bool {
	fits := func(e *list.Element) bool { return !itsOwn || e.Value.(*boundedConn).origin == of }
	for e := b.unused.Front(); e != nil; e = e.Next() {
		if fits(e) {
			b.drop(e.Value.(*boundedConn))
			return true
		}
	}
	for e := b.idle.Front(); e != nil && b.now().Sub(e.Value.(*boundedConn).since) >= longIdle; e = e.Next() {
		if fits(e) {
			b.drop(e.Value.(*boundedConn))
			return true
		}
	}
	return false
}

// drop closes a connection under whoever serves it. The lock is held.
func (b *bounded) drop(c *boundedConn) {
	b.leave(c)
	_ = c.Conn.Close() // who serves it is told
}

// leave forgets a connection, once. The lock is held.
func (b *bounded) leave(c *boundedConn) {
	if c.left {
		return
	}
	c.left = true
	c.unlist()
	b.all--
	if b.of[c.origin]--; b.of[c.origin] == 0 {
		delete(b.of, c.origin)
	}
	b.room.Signal()
}

// crowdedEvery is how often it is told that there is no room.
const crowdedEvery = time.Minute

// complain tells it. The lock is held.
func (b *bounded) complain(of origin) {
	b.crowded++
	if now := b.now(); now.Sub(b.told) >= crowdedEvery {
		b.log.Warn("there are as many connections as may be: unused ones give way, or new ones wait", "times", b.crowded,
			"all", b.all, "most", b.most, "from", string(of), "its", b.of[of], "share", b.share(of))
		b.told, b.crowded = now, 0
	}
}

// Close has nobody come any more.
func (b *bounded) Close() error {
	b.mu.Lock()
	b.closed = true
	b.room.Broadcast()
	b.mu.Unlock()
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	listener *bounded
	origin   origin

	list  *list.List // that it is in; nil: it is in use
	place *list.Element
	since time.Time // when it became idle
	left  bool
}

// unlist has it be in use. The lock is held.
func (c *boundedConn) unlist() {
	if c.list != nil {
		c.list.Remove(c.place)
		c.list = nil
	}
}

// Close makes room for another.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// noteUse has a listener know which of its connections can be done without; see
// http.Server.ConnState.
func noteUse(c net.Conn, state http.ConnState) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if one, ok := c.(*boundedConn); ok {
		one.note(state)
	}
}

func (c *boundedConn) note(state http.ConnState) {
	b := c.listener
	b.mu.Lock()
	defer b.mu.Unlock()
	c.unlist()
	switch {
	case c.left:
		return
	case state == http.StateNew:
		c.list = &b.unused
	case state == http.StateIdle:
		c.list, c.since = &b.idle, b.now()
	default:
		return
	}
	c.place = c.list.PushBack(c)
	b.room.Signal()
}
