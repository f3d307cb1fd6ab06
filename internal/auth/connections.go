package auth

import (
	"container/list"
	"context"
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
	// mostConnections may be open at once, if the limit on open files allows it: each of
	// up to 10,000 agents keeps two, and people and relays come on top.
	mostConnections = 24_000
	// otherFiles are reserved for what is no connection: the store's files, maps, executables.
	otherFiles = 1_000
)

// longIdle is how long a connection must be idle before another may replace it. Agents
// use theirs at least every twenty seconds.
const longIdle = 30 * time.Second

// connectionsWithin is the number of connections for a limit on open files.
func connectionsWithin(files uint64) int {
	switch {
	case files >= mostConnections+otherFiles:
		return mostConnections
	case files >= 2*otherFiles:
		return int(files - otherFiles)
	}
	return max(int(files/2), 1)
}

// MaxConnections is how many connections this process may have open. Go raises the limit
// on open files as far as it goes when a program starts.
func MaxConnections() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return connectionsWithin(files.Cur)
}

// boundedListener limits the number of open connections, and of those from one machine
// to its share. At the limit, a new connection replaces the oldest one that has never
// authenticated, else the one that has been idle longest; if all are in use, it waits.
// Clients keep connections in reserve for minutes, so none is closed while there is room.
type boundedListener struct {
	net.Listener
	most  int
	local bool // connections come from this machine only
	log   *slog.Logger
	now   func() time.Time

	mu        sync.Mutex // guards all below, and what changes in a boundedConn
	room      *sync.Cond // a connection was closed, or may be now
	closed    bool
	all       int
	of        map[origin]int
	anonymous list.List // connections that have not authenticated, in use or not, the oldest first
	idle      list.List // others between requests, the longest idle first

	refused  int       // times that the limit was reached since the last warning
	warnedAt time.Time // the last warning
}

// BoundConnections limits the connections of a listener. The server that serves it must
// have TrackUse as its ConnState, WithConnection as its ConnContext, and a Gate.
func BoundConnections(l net.Listener, most int, log *slog.Logger) net.Listener {
	b := &boundedListener{Listener: l, most: most, local: originOf(l.Addr()) == thisMachine, log: log, now: time.Now, of: map[origin]int{}}
	b.room = sync.NewCond(&b.mu)
	return b
}

// origin is the machine that a connection comes from.
type origin string

// thisMachine is the origin of loopback addresses.
const thisMachine origin = "this machine"

// originOf derives the origin of an address. With IPv6 a machine has a whole /64.
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

// share is the limit for one machine: half of all, since many agents may share an
// address. This machine may use all but a twelfth, so that others still get in.
func (b *boundedListener) share(of origin) int {
	switch {
	case of != thisMachine:
		return max(b.most/2, 1)
	case b.local:
		return b.most
	}
	return b.most - b.most/12
}

// Accept returns the next connection once there is room for it.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		one := &boundedConn{Conn: c, listener: b, origin: originOf(c.RemoteAddr())}
		if b.enter(one) {
			return one, nil
		}
		_ = c.Close() // nothing has been written
	}
}

// enter admits a connection as soon as there is room. It returns false if the machine
// uses all of its share, or the listener is closed.
func (b *boundedListener) enter(c *boundedConn) bool {
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
		b.warn(c.origin)
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

// wait waits until a connection is closed, but not for long, since others become idle
// meanwhile. The lock is held.
func (b *boundedListener) wait() {
	wake := time.AfterFunc(time.Second, b.room.Broadcast)
	defer wake.Stop()
	b.room.Wait()
}

// displace closes a connection that is not in use: one from the same machine, or any.
// The lock is held.
func (b *boundedListener) displace(of origin, itsOwn bool) bool {
	fits := func(e *list.Element) bool { return !itsOwn || e.Value.(*boundedConn).origin == of }
	for e := b.anonymous.Front(); e != nil; e = e.Next() {
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

// drop closes a connection while a server still has it. The lock is held.
func (b *boundedListener) drop(c *boundedConn) {
	b.leave(c)
	_ = c.Conn.Close() // the server's next read fails
}

// leave removes a connection from all counts, once. The lock is held.
func (b *boundedListener) leave(c *boundedConn) {
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

const warnEvery = time.Minute

// warn logs that the limit is reached. The lock is held.
func (b *boundedListener) warn(of origin) {
	b.refused++
	if now := b.now(); now.Sub(b.warnedAt) >= warnEvery {
		b.log.Warn("connection limit reached: connections that never authenticated are closed first, then idle ones; if there are none, new ones wait", "times", b.refused,
			"open", b.all, "limit", b.most, "origin", string(of), "origin_open", b.of[of], "origin_limit", b.share(of))
		b.warnedAt, b.refused = now, 0
	}
}

// Close stops accepting connections.
func (b *boundedListener) Close() error {
	b.mu.Lock()
	b.closed = true
	b.room.Broadcast()
	b.mu.Unlock()
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	listener *boundedListener
	origin   origin

	known bool // a Gate has authenticated a request of it
	state http.ConnState
	list  *list.List // anonymous or idle; nil: in use
	place *list.Element
	since time.Time // when it became idle
	left  bool
}

// unlist protects the connection from being displaced. The lock is held.
func (c *boundedConn) unlist() {
	if c.list != nil {
		c.list.Remove(c.place)
		c.list = nil
	}
}

// Close closes the connection and makes room for another.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// TrackUse tells a bounded listener which of its connections are in use. It is an
// http.Server's ConnState.
func TrackUse(c net.Conn, state http.ConnState) {
	if one := boundedOf(c); one != nil {
		one.track(state)
	}
}

type connectionKey struct{}

// WithConnection tells a Gate the connection of a request. It is an http.Server's ConnContext.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, boundedOf(c))
}

// boundedOf returns the bounded connection below another; nil: there is none.
func boundedOf(c net.Conn) *boundedConn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	one, _ := c.(*boundedConn)
	return one
}

// letThrough notes that a request of a connection was authenticated: from now on it is displaced
// only while it is idle. Requests that need no authentication change nothing.
func letThrough(ctx context.Context) {
	c, _ := ctx.Value(connectionKey{}).(*boundedConn)
	if c == nil {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.known {
		c.known = true
		c.enlist()
	}
}

func (c *boundedConn) track(state http.ConnState) {
	b := c.listener
	b.mu.Lock()
	defer b.mu.Unlock()
	c.state = state
	if c.known || c.list == nil { // an anonymous one keeps its place
		c.enlist()
	}
}

// enlist puts the connection into the list that it belongs to. The lock is held.
func (c *boundedConn) enlist() {
	b := c.listener
	c.unlist()
	switch {
	case c.left:
		return
	case !c.known:
		c.list = &b.anonymous
	case c.state == http.StateIdle:
		c.list, c.since = &b.idle, b.now()
	default:
		return
	}
	c.place = c.list.PushBack(c)
	b.room.Signal()
}
