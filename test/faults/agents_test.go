package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/test/process"
	"atys.dev/atys/test/testwait"
)

// recording starts a server and an agent of it that records this machine, and
// waits for its first windows.
func recording(t *testing.T, s *Server, url, dir string, within []string, args ...string) *Agent {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an agent records as root")
	}
	if err := s.Order(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := NewAgent(s, url, dir, "here", within, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Kill() })
	a.Seen = watch(t, a.spool())
	began := time.Now()
	wait(t, a, "windows come", func() bool { return len(cuts(t, s, began)) > 0 })
	return a
}

// wait waits until something is so.
func wait(t *testing.T, a *Agent, what string, so func() bool) {
	t.Helper()
	waitFor(t, what, so, a.Process)
}

// waitFor is wait that shows the log of a process if it fails.
func waitFor(t *testing.T, what string, so func() bool, p *process.Process) {
	t.Helper()
	testwait.Until(t, what, so, p.Log)
}

// cuts are the windows that a server has of the time since, and of the time
// that clocks that are ahead or behind believe it is.
func cuts(t *testing.T, s *Server, since time.Time) map[Cut]int64 {
	t.Helper()
	all, err := s.Cuts(t.Context(), since.Add(-3*time.Hour), since.Add(3*time.Hour))
	if err != nil {
		t.Fatalf("%v: %s", err, s.Log())
	}
	return all
}

// known is what a server knows of an agent.
func known(t *testing.T, s *Server, a *Agent) Known {
	t.Helper()
	k, err := s.Known(t.Context(), a.Node)
	if err != nil {
		t.Fatalf("%v: %s", err, s.Log())
	}
	return k
}

// settled waits until an agent has shipped what waits, and ends it. One that is told to
// end ships for two seconds more: where that was not enough, as on a busy machine, the
// next life ships the rest.
func settled(t *testing.T, a *Agent) {
	t.Helper()
	const lives = 4
	for life := 1; ; life++ {
		if err := a.End(testwait.Longest(t)); err != nil {
			t.Error(err)
		}
		left := a.Bundles()
		if len(left) == 0 {
			return
		}
		if life == lives {
			t.Errorf("%d bundles were not shipped: %s", len(left), a.Log())
			return
		}
		if err := a.Again(); err != nil {
			t.Fatal(err)
		}
		begun := false // before that it may not know how to end
		wait(t, a, "what waited is shipped", func() bool {
			begun = begun || strings.Contains(a.Log(), "sampling has begun")
			return begun && len(a.Bundles()) < 2
		})
	}
}

// TestAgentKilled kills an agent, and its server with it, again and again: what
// was on its disk arrives, once, and when it was dead shows as missing.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	began := time.Now()
	a := recording(t, s, s.URL(), t.TempDir(), nil)
	over := began.Add(long(t, 15*time.Second))
	r := rand.New(rand.NewPCG(uint64(began.UnixNano()), 2))
	spooled, kills := map[Cut]int64{}, 0
	type span struct{ from, to time.Time }
	var dead []span
	for ; time.Now().Before(over) || kills < 2 || len(spooled) == 0 && kills < 10; kills++ {
		time.Sleep(2*time.Second + time.Duration(r.Int64N(int64(2*time.Second))))
		if kills%2 == 1 { // what is cut from now on stays on the agent's disk
			s.Kill()
			time.Sleep(time.Second + time.Duration(r.Int64N(int64(2*time.Second))))
		}
		from := time.Now()
		a.Kill()
		waiting, err := a.Spooled()
		if err != nil {
			t.Fatal(err)
		}
		for c, n := range waiting {
			spooled[c] = n
		}
		time.Sleep(2 * time.Second)
		dead = append(dead, span{from, time.Now()})
		if kills%2 == 1 {
			if err := s.Again(); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Again(); err != nil {
			t.Fatal(err)
		}
		again := time.Now().UnixNano()
		wait(t, a, "it records again", func() bool { // and not only ships what lay on its disk
			for c := range cuts(t, s, began) {
				if c.Start >= again {
					return true
				}
			}
			return false
		})
	}
	time.Sleep(2 * Every)
	settled(t, a)
	t.Logf("%d kills, %d windows lay on the agent's disk", kills, len(spooled))
	if len(spooled) == 0 {
		t.Error("no window was ever on the agent's disk: nothing was tested")
	}
	kept := cuts(t, s, began)
	for c, n := range spooled {
		if kept[c] != n {
			t.Errorf("a window of %s had %d samples on disk, and has %d", c.Labels, n, kept[c])
		}
	}
	watched, err := s.Watched(t.Context(), a.Node, began, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dead {
		found := false
		for _, m := range watched.GetMissing() {
			found = found || m.GetFromUnixNano() <= d.from.UnixNano() && m.GetToUnixNano() >= d.to.UnixNano()
		}
		if !found {
			t.Errorf("it was dead from %v to %v, and missing is %v", d.from, d.to, watched.GetMissing())
		}
	}
	for _, m := range watched.GetMissing() { // of two deaths, where it cut nothing in between
		if !slices.ContainsFunc(dead, func(d span) bool {
			return d.from.UnixNano() < m.GetToUnixNano() && m.GetFromUnixNano() < d.to.UnixNano()
		}) {
			t.Errorf("missing is %v, when it was not dead", m)
		}
	}
}

// whole asserts that nothing an agent recorded since is missing: what its machine was
// watched has no gap, all windows that lay on its disk are there, not the machine's
// alone, or lie there still, and it does not know of any that were lost.
func whole(t *testing.T, s *Server, a *Agent, since time.Time) {
	t.Helper()
	watched, err := s.Watched(t.Context(), a.Node, since, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(watched.GetMissing()) > 0 {
		t.Errorf("of the time since %v is missing: %v", since, watched.GetMissing())
	}
	seen, err := a.Seen.Windows()
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := a.Spooled()
	if err != nil {
		t.Fatal(err)
	}
	kept := cuts(t, s, since)
	for c, n := range seen {
		if _, waits := waiting[c]; kept[c] != n && !waits {
			t.Errorf("a window of %s at %v had %d samples on the agent's disk, and has %d", c.Labels, time.Unix(0, c.Start), n, kept[c])
		}
	}
	t.Logf("%d windows were seen on the agent's disk, %d are there, %d wait", len(seen), len(kept), len(waiting))
	if len(seen) == 0 {
		t.Error("no window was ever seen on the agent's disk: nothing was tested")
	}
	if lost := known(t, s, a).Lost; lost > 0 {
		t.Errorf("%d windows are lost", lost)
	}
}

// TestNetworkCut cuts the network between an agent and its server: what is cut
// meanwhile waits, and arrives.
func TestNetworkCut(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	const ours, theirs = "198.18.43.1", "198.18.43.2"
	ns, link := fmt.Sprintf("atys-%d", os.Getpid()), fmt.Sprintf("atys%d", os.Getpid()%1e6)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", ns)
	t.Cleanup(func() { ip("netns", "delete", ns) })
	ip("link", "add", link, "type", "veth", "peer", "name", "inside", "netns", ns)
	ip("address", "add", ours+"/30", "dev", link)
	ip("link", "set", link, "up")
	ip("-n", ns, "address", "add", theirs+"/30", "dev", "inside")
	ip("-n", ns, "link", "set", "inside", "up")
	s := &Server{Program: program, Dir: t.TempDir(), Address: net.JoinHostPort(theirs, "4300"), Args: []string{"--plaintext"}, Within: []string{"ip", "netns", "exec", ns}}
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	began := time.Now()
	a := recording(t, s, s.URL(), t.TempDir(), nil, "--plaintext")
	ip("-n", ns, "link", "set", "inside", "down") // the other end: the way there stays, and nobody answers
	time.Sleep(long(t, 12*time.Second) / 2)
	wait(t, a, "bundles wait while the network is cut", func() bool { return len(a.Bundles()) >= 3 })
	ip("-n", ns, "link", "set", "inside", "up")
	back := time.Now()
	wait(t, a, "what waited is shipped", func() bool { return len(a.Bundles()) < 2 })
	t.Logf("shipped %v after the network was back", time.Since(back))
	settled(t, a)
	whole(t, s, a, began)
}

// moody is a network that hangs, or is slow, when it is told to.
type moody struct {
	net.Listener
	to string

	mu          sync.Mutex // guards all below
	hangs       bool
	late        time.Duration // that answers come
	connections []net.Conn
}

func newMoody(t *testing.T, to string) *moody {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &moody{Listener: l, to: to}
	t.Cleanup(func() { m.Close(); m.reset() })
	go func() {
		for {
			c, err := m.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", m.to)
			if err != nil {
				c.Close()
				continue
			}
			m.mu.Lock()
			m.connections = append(m.connections, c, server)
			m.mu.Unlock()
			go m.copy(server, c, false)
			go m.copy(c, server, true)
		}
	}()
	return m
}

// copy hands on what comes, and swallows it while the network hangs.
func (m *moody) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	for buffer := make([]byte, 4096); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		m.mu.Lock()
		hangs, late := m.hangs, m.late
		m.mu.Unlock()
		if answers {
			time.Sleep(late)
		}
		if hangs {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hang has it hang, or not. Where something was swallowed no connection can go on.
func (m *moody) hang(yes bool) {
	m.mu.Lock()
	m.hangs = yes
	m.mu.Unlock()
	if !yes {
		m.reset()
	}
}

// slow has answers come so late.
func (m *moody) slow(late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = late
}

func (m *moody) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.connections {
		c.Close()
	}
	m.connections = nil
}

// TestServerHangs has a server take what it is sent, and never answer.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	m := newMoody(t, s.Address)
	began := time.Now()
	a := recording(t, s, "http://"+m.Addr().String(), t.TempDir(), nil)
	m.hang(true)
	time.Sleep(long(t, 16*time.Second) / 2)
	wait(t, a, "bundles wait while the server hangs", func() bool { return len(a.Bundles()) >= 4 })
	m.hang(false)
	wait(t, a, "what waited is shipped", func() bool { return len(a.Bundles()) < 2 })
	settled(t, a)
	whole(t, s, a, began)
}

// TestClockSteps sets the clock of a relay, then of the agent that shipped to it, and
// then of the server, an hour ahead and back: windows go on, none is taken for
// another, how far the agent's clock is off is known, and its windows lie where the
// server's clock has them.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ofAgent, ofRelay, ofServer := filepath.Join(dir, "agent"), filepath.Join(dir, "relay"), filepath.Join(dir, "server")
	set := func(file, ahead string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(ahead), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{ofAgent, ofRelay, ofServer} {
		set(file, "0s")
	}
	const variable = "ATYS_TEST_CLOCK="
	s := serve(t, filepath.Join(dir, "data"), "env", variable+ofServer)
	between := relay(t, s, s, "between")
	between.Kill()
	between.Within = []string{"env", variable + ofRelay}
	if err := between.Again(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a := recording(t, s, s.URL(), filepath.Join(dir, "spool"), []string{"env", variable + ofAgent})
	right := func(whose string) {
		t.Helper()
		for c := range cuts(t, s, began) {
			if at := time.Unix(0, c.Start).Sub(began); at.Abs() > 30*time.Minute {
				t.Fatalf("%s, and a window lies %v from when it was cut", whose, at)
			}
		}
	}
	wait(t, a, "windows come through the relay", func() bool { return between.Passed(t.Context()) > 0 })
	for hours := range 30 { // so often that it is set whenever windows wait there
		set(ofRelay, fmt.Sprint(hours, "h"))
		time.Sleep(100 * time.Millisecond)
	}
	set(ofRelay, "0s")
	had := between.Passed(t.Context())
	wait(t, a, "windows come through a relay whose clock was set", func() bool { return between.Passed(t.Context()) > had })
	right("the relay's clock was set")
	between.Kill()
	wait(t, a, "no relay is left", func() bool { return known(t, s, a).ShipsTo == "" })
	last := 0
	for _, step := range []struct{ file, ahead string }{{ofAgent, "1h"}, {ofAgent, "-1h"}, {ofAgent, "0s"}, {ofServer, "1h"}, {ofServer, "-1h"}, {ofServer, "0s"}} {
		set(step.file, step.ahead)
		time.Sleep(3 * Every)
		wait(t, a, "windows come after a step to "+step.ahead, func() bool {
			now := len(cuts(t, s, began))
			defer func() { last = now }()
			return now > last
		})
		want, err := time.ParseDuration(step.ahead)
		if err != nil {
			t.Fatal(err)
		}
		if step.file == ofServer {
			want = -want
		}
		wait(t, a, "the offset of the clock is known", func() bool { return (known(t, s, a).Offset - want).Abs() < 2*time.Second })
		if step.file == ofAgent {
			right("the agent's clock was set to " + step.ahead)
		}
	}
	settled(t, a)
	kept := cuts(t, s, began)
	ahead, behind, now := 0, 0, 0
	for c := range kept {
		switch at := time.Unix(0, c.Start).Sub(began); {
		case at > 30*time.Minute:
			ahead++
		case at < -30*time.Minute:
			behind++
		default:
			now++
		}
	}
	t.Logf("%d windows began when it was later, %d when it was earlier, %d when the clock was right", ahead, behind, now)
	if ahead == 0 || behind == 0 || now == 0 {
		t.Error("a step has stopped windows")
	}
}

// TestSpoolFull fills the disk of an agent: what it cannot keep it ships at
// once, or when the server is back.
func TestSpoolFull(t *testing.T) {
	t.Parallel()
	dir, _ := small(t, 16)
	s := serve(t, t.TempDir())
	began := time.Now()
	a := recording(t, s, s.URL(), dir, nil)
	fill(t, filepath.Join(dir, "filler"))
	time.Sleep(2 * Every)
	was := len(cuts(t, s, began))
	wait(t, a, "windows come though the agent's disk is full", func() bool { return len(cuts(t, s, began)) > was })
	s.Kill()
	time.Sleep(4 * time.Second)
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	was = len(cuts(t, s, began))
	wait(t, a, "windows come after the server was away", func() bool { return len(cuts(t, s, began)) > was })
	if err := a.End(testwait.Longest(t)); err != nil {
		t.Error(err)
	}
	whole(t, s, a, began)
}

// TestSpoolDamaged turns bytes around on the disk of an agent: what is damaged
// is laid aside and counted, the rest arrives.
func TestSpoolDamaged(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	began := time.Now()
	a := recording(t, s, s.URL(), t.TempDir(), nil)
	s.Kill()
	wait(t, a, "windows wait", func() bool { return len(a.Bundles()) >= 6 })
	a.Kill()
	bundles := a.Bundles()
	damage(t, bundles[1], func(data []byte) []byte {
		for i := range data {
			data[i] ^= 0x55
		}
		return data
	})
	damage(t, bundles[3], func(data []byte) []byte { return data[:len(data)/2] })
	sound, err := a.Spooled()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	if err := a.Again(); err != nil {
		t.Fatal(err)
	}
	wait(t, a, "what waited is shipped", func() bool { return len(a.Bundles()) < 2 })
	wait(t, a, "what was lost is told", func() bool { return known(t, s, a).Lost > 0 })
	settled(t, a)
	kept := cuts(t, s, began)
	for c, n := range sound {
		if kept[c] != n {
			t.Errorf("a window of %s that was not damaged had %d samples, and has %d", c.Labels, n, kept[c])
		}
	}
	if !exists(filepath.Join(a.Dir, "spool", "damaged")) {
		t.Error("what was damaged is not laid aside")
	}
}

func damage(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
