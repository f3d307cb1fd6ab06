package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// keeper is a server that keeps windows by their keys, with the stacks they name.
type keeper struct {
	mu        sync.Mutex // guards all below
	known     map[profile.Hash]bool
	windows   map[string]string
	contained map[string]int // windows that these contain
	requests  int
	nodes     int   // that were explained
	failing   error // what it answers
	offset    time.Duration
	takes     bool     // sums of several types, contexts, peers, exemplars and slots
	sums      int      // windows that contain others, and have several types or exemplars
	stood     []string // offers that were answered for
	standing  error    // what it says to that
}

func newKeeper() *keeper {
	return &keeper{known: map[profile.Hash]bool{}, windows: map[string]string{}, contained: map[string]int{}}
}

// Push keeps windows as a server does. Runs of another length it refuses, which
// relays do not look at.
func (k *keeper) Push(_ context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests++
	if k.failing != nil {
		return nil, k.failing
	}
	now := time.Now().Add(k.offset).UnixNano()
	response := &atysv1.PushResponse{ReceivedUnixNano: now, AnsweredUnixNano: now, TakesDivided: k.takes}
	hashes, err := wire.CheckPush(r)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	for _, s := range r.GetSeries() { // earlier servers check those of records, too
		if err := wire.CheckLabels(s.GetLabels()); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	if !k.takes && slices.ContainsFunc(r.GetWindows(), earlierRefuses) {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a window that contains others has several types"))
	}
	forest, err := wire.Learn(r.GetDictionary())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	k.nodes += len(forest.Calls)
	for _, c := range forest.Calls {
		k.known[c.Hash] = true
	}
	unknown := slices.DeleteFunc(slices.Clone(hashes), func(h profile.Hash) bool { return k.known[h] })
	if len(unknown) > 0 {
		response.Unknown = wire.Table(unknown)
		return response, nil
	}
	for _, w := range r.GetWindows() {
		if _, _, err := wire.Head(w); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		if len(w.GetContains()) > 0 && len(w.GetTypes())+len(w.GetExemplars()) > 1 {
			k.sums++
		}
	}
	for _, w := range r.GetWindows() {
		key := fmt.Sprint(r.GetSeries()[w.GetSeries()].GetLabels(), w.GetTask(), w.GetStartUnixNano(), w.GetRun())
		k.windows[key], k.contained[key] = shown(w, hashes), len(w.GetContains())
	}
	return response, nil
}

// earlierRefuses is what servers and relays checked of sums before these could have several types.
// Peers, slots and exemplars of one type they took.
func earlierRefuses(w *atysv1.Window) bool {
	n := len(w.GetRows().GetStack())
	return len(w.GetContains()) > 0 && (len(w.GetTypes()) != 1 || len(w.GetThreads())+len(w.GetContexts()) > 0 || len(w.GetRows().GetGroups()) != store.Groups*n)
}

// shown writes a window with the stacks that its rows and exemplars point at.
func shown(w *atysv1.Window, hashes []profile.Hash) string {
	w = proto.CloneOf(w)
	var b strings.Builder
	for _, s := range w.GetRows().GetStack() {
		fmt.Fprintf(&b, "%x ", hashes[s])
	}
	for _, peer := range w.GetRows().GetPeer() {
		if peer != 0 {
			fmt.Fprintf(&b, "by %x ", hashes[peer-1])
		}
	}
	for _, e := range w.GetExemplars() {
		fmt.Fprintf(&b, "e.g. %x ", hashes[e.GetStack()])
		e.Stack = 0
	}
	w.Series, w.Numbered, w.Rows.Stack, w.Rows.Peer = 0, 0, nil, nil
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(w)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(&b, "%x", text)
	return b.String()
}

func (k *keeper) AttendTo(_ context.Context, r *atysv1.AttendRequest, order func(*atysv1.Orders) error) error {
	return order(&atysv1.Orders{Revision: 7, ShipTo: "http://elsewhere"})
}

func (k *keeper) Report(context.Context, *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	return &atysv1.ReportResponse{ReceivedUnixNano: 5}, nil
}

func (k *keeper) OfferTo(ctx context.Context, _ *atysv1.OfferRequest, stand func(*atysv1.Standing) error) error {
	if err := stand(&atysv1.Standing{Tenant: "default", Central: true, Offer: []byte("offer")}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (k *keeper) Stand(_ context.Context, r *atysv1.StandRequest) (*atysv1.StandResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stood = append(k.stood, string(r.GetOffer()))
	return &atysv1.StandResponse{}, k.standing
}

// began is a relay that runs and has been told how it stands.
func began(t *testing.T, to Upstream) *Relay {
	t.Helper()
	return beganAs(t, Options{Upstream: to, Gather: 20 * time.Millisecond})
}

func beganAs(t *testing.T, o Options) *Relay {
	t.Helper()
	o.Offer = &atysv1.OfferRequest{Name: "one"}
	r := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for r.mayPass(ctx) != nil {
		time.Sleep(time.Millisecond)
	}
	return r
}

// sealed is a window of an instance, with stacks that others have too.
func sealed(seed uint64, instance string) *atysv1.Spooled {
	w := profiletest.Random(rand.New(rand.NewPCG(seed, 9)))
	w.Samples, w.Task, w.Start = nil, "task", time.Unix(1_700_000_000, 0)
	w.Target = profile.Labels{"service": "shop", "instance": instance}
	return wire.Seal(w, profile.Run{byte(seed)})
}

// relayed is a relay as another one sees it.
type relayed struct{ *Relay }

func (r relayed) AttendTo(context.Context, *atysv1.AttendRequest, func(*atysv1.Orders) error) error {
	return errors.New("nobody attends")
}

func (r relayed) OfferTo(ctx context.Context, m *atysv1.OfferRequest, stand func(*atysv1.Standing) error) error {
	return r.options.Upstream.OfferTo(ctx, m, stand)
}

// pusher ships as an agent does: what the receiver does not know a second time.
type pusher interface {
	Push(context.Context, *atysv1.PushRequest) (*atysv1.PushResponse, error)
}

func ship(to pusher, known bool, windows ...*atysv1.Spooled) error {
	unknown := map[profile.Hash]bool{}
	for range 2 {
		b := wire.NewBatch(func(h profile.Hash) bool { return known && !unknown[h] })
		for _, w := range windows {
			if err := b.Add(w); err != nil {
				return err
			}
		}
		request := b.Request()
		request.IfUnknown = len(unknown) > 0
		response, err := to.Push(context.Background(), request)
		if err != nil {
			return err
		}
		if len(response.GetUnknown()) == 0 {
			return nil
		}
		hashes, err := wire.Hashes(response.GetUnknown())
		if err != nil {
			return err
		}
		for _, h := range hashes {
			unknown[h] = true
		}
	}
	return errors.New("not taken after all was explained")
}

// shipAll has many agents ship at once.
func shipAll(t *testing.T, to pusher, known bool, windows []*atysv1.Spooled) {
	t.Helper()
	var agents sync.WaitGroup
	for _, w := range windows {
		agents.Go(func() {
			if err := ship(to, known, w); err != nil {
				t.Error(err)
			}
		})
	}
	agents.Wait()
}

func windowsOf(agents int) (windows []*atysv1.Spooled) {
	for i := range agents {
		windows = append(windows, sealed(uint64(i%7), fmt.Sprint("instance-", i)))
	}
	return windows
}

// TestLevels has what a server keeps not depend on how many relays are before
// it, nor on what any of them knows.
func TestLevels(t *testing.T) {
	windows := windowsOf(50)
	direct := newKeeper()
	shipAll(t, direct, false, windows)
	for levels := 1; levels <= 3; levels++ {
		for _, known := range []bool{false, true} {
			server := newKeeper()
			var to Upstream = server
			for range levels {
				to = relayed{began(t, to)}
			}
			shipAll(t, to, known, windows)
			shipAll(t, to, !known, windows) // a second time: it is there once
			if !maps.Equal(server.windows, direct.windows) {
				t.Errorf("%d levels, known %v: %d windows are there, want the %d of an agent that ships to the server", levels, known, len(server.windows), len(direct.windows))
			}
		}
	}
}

// TestTogether has many agents' windows go in a few requests, and what they all
// explain go once.
func TestTogether(t *testing.T) {
	server := newKeeper()
	r := began(t, server)
	shipAll(t, r, false, windowsOf(200))
	alone := newKeeper()
	shipAll(t, alone, false, windowsOf(7))
	if server.requests > 20 {
		t.Errorf("%d requests for the windows of 200 agents", server.requests)
	}
	if server.nodes > 4*alone.nodes {
		t.Errorf("%d calls were explained for %d different ones", server.nodes, alone.nodes)
	}
}

// TestForgetful has the server lose all that it knew, which the relay and its
// agents still think it knows.
func TestForgetful(t *testing.T) {
	server := newKeeper()
	r := began(t, server)
	windows := windowsOf(20)
	shipAll(t, r, false, windows)
	server.mu.Lock()
	server.known, server.windows = map[profile.Hash]bool{}, map[string]string{}
	server.mu.Unlock()
	shipAll(t, r, true, windows)
	if len(server.windows) != len(windows) {
		t.Errorf("%d windows are there of %d", len(server.windows), len(windows))
	}
}

// TestOneBadRequest is refused alone, by the relay or, where it does not look,
// by the server.
func TestOneBadRequest(t *testing.T) {
	server := newKeeper()
	r := began(t, server)
	series, run := sealed(1, strings.Repeat("x", 1000)), sealed(2, "bad")
	run.Window.Run = []byte{1}
	var others sync.WaitGroup
	others.Go(func() { shipAll(t, r, false, windowsOf(20)) })
	for name, bad := range map[string]*atysv1.Spooled{"labels": series, "run": run} {
		others.Go(func() {
			if err := ship(r, false, bad); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s: %v, want it refused", name, err)
			}
		})
	}
	others.Wait()
	if len(server.windows) != 20 {
		t.Errorf("%d windows are there of 20", len(server.windows))
	}
}

// TestServerFails has nobody told that windows are kept.
func TestServerFails(t *testing.T) {
	server := newKeeper()
	r := began(t, server)
	for _, failing := range []error{errors.New("connection refused"), connect.NewError(connect.CodeUnauthenticated, errors.New("not known here"))} {
		server.mu.Lock()
		server.failing = failing
		server.mu.Unlock()
		if err := ship(r, false, sealed(1, "one")); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%v: %v, want it to be told to come again", failing, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != 0 {
		t.Errorf("%d bytes are still held", r.held)
	}
}

// TestHoldsNoMore has a relay hold what it may.
func TestHoldsNoMore(t *testing.T) {
	r := New(Options{Upstream: newKeeper(), Held: 100})
	if err := r.stand(&atysv1.Standing{Tenant: "default"}); err != nil {
		t.Fatal(err)
	}
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	if err := b.Add(sealed(1, "one")); err != nil {
		t.Fatal(err)
	}
	m := b.Request()
	first, err := r.accept(t.Context(), m) // one is always taken
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.accept(t.Context(), m); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a second one: %v", err)
	}
	r.release(first)
	if _, err := r.accept(t.Context(), m); err != nil {
		t.Errorf("after it was passed on: %v", err)
	}
}

// TestOwnTenant refuses windows of another tenant, and all before it is known whose it is.
func TestOwnTenant(t *testing.T) {
	r := New(Options{Upstream: newKeeper()})
	other := auth.With(context.Background(), auth.Identity{Tenant: "other", Role: auth.Agent})
	if err := r.mayPass(other); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("before the server has told: %v", err)
	}
	if err := r.stand(&atysv1.Standing{Tenant: "default"}); err != nil {
		t.Fatal(err)
	}
	if err := r.mayPass(other); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := r.Report(other, &atysv1.ReportRequest{}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another tenant's report: %v", err)
	}
	if err := r.stand(&atysv1.Standing{Tenant: "other"}); err == nil {
		t.Error("a relay became another tenant's")
	}
}

// TestAnswersStandings has a relay answer how it stands, also through another one,
// and offer itself anew where the server knows it no more.
func TestAnswersStandings(t *testing.T) {
	server := newKeeper()
	near := began(t, server)
	began(t, relayed{near})
	stood := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(testwait.Longest(t)); ; time.Sleep(time.Millisecond) {
			server.mu.Lock()
			got := slices.Clone(server.stood)
			server.mu.Unlock()
			if len(got) >= n {
				if slices.ContainsFunc(got, func(offer string) bool { return offer != "offer" }) {
					t.Errorf("answered for %q", got)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("answered %d times of %d", len(got), n)
			}
		}
	}
	stood(2)
	server.mu.Lock()
	server.standing = connect.NewError(connect.CodeNotFound, errors.New("who are you?"))
	server.mu.Unlock()
	began(t, server)
	stood(5) // the third one comes again and again
}

// TestClockThroughRelays has an agent know the server's clock, whatever the
// relay's is.
func TestClockThroughRelays(t *testing.T) {
	server := newKeeper()
	server.offset = -time.Hour // its clock is behind
	r := began(t, server)
	if err := ship(r, false, sealed(1, "one")); err != nil {
		t.Fatal(err)
	}
	b := wire.NewBatch(func(profile.Hash) bool { return true })
	if err := b.Add(sealed(1, "one")); err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	response, err := r.Push(t.Context(), b.Request())
	if err != nil {
		t.Fatal(err)
	}
	offset, uncertain := wire.Clock(sent, time.Now(), response)
	if off := (offset - time.Hour).Abs(); off > uncertain || uncertain > time.Minute {
		t.Errorf("our clock is said to be ahead by %v +- %v, and is by an hour", offset, uncertain)
	}
}

// TestCountsParts has what is passed on at once be as much as a server takes, also
// where windows contain many: behind other relays one does.
func TestCountsParts(t *testing.T) {
	r := &atysv1.PushRequest{Windows: []*atysv1.Window{{}, {Contains: make([]*atysv1.Contained, 7)}}}
	if got := windowsIn(r); got != 8 {
		t.Errorf("a window, and one that contains seven, are %d", got)
	}
}

// timed is a server that notes how long it may take.
type timed struct {
	*keeper
	patience chan time.Duration
}

func (s *timed) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	until, _ := ctx.Deadline()
	s.patience <- time.Until(until)
	return s.keeper.Push(ctx, r)
}

// TestGivesUpBeforeAgents has windows that have waited for others, however long that
// is, be waited for less long than their agents do.
func TestGivesUpBeforeAgents(t *testing.T) {
	const agents = 30 * time.Second // internal/agent: send
	for name, o := range map[string]Options{"passed on": {}, "added up": {Keep: []string{"service"}}} {
		server := &timed{newKeeper(), make(chan time.Duration, 1)}
		o.Upstream = server
		r := beganAs(t, o)
		if err := ship(r, false, sealed(1, "one")); err != nil {
			t.Fatal(err)
		}
		if all := r.options.Gather + <-server.patience; all >= agents || all <= 0 {
			t.Errorf("%s: up to %v, and agents wait for %v", name, all, agents)
		}
	}
}

// stepping is a server of a relay whose clock somebody sets.
type stepping struct {
	*keeper
	ahead, waits atomic.Int64  // by how much the clock is ahead, and is set further once it was read
	asks         time.Duration // likewise, once the server has been asked
}

func (s *stepping) now() time.Time {
	now := time.Now().Add(time.Duration(s.ahead.Load())).Round(0)
	s.ahead.Add(s.waits.Swap(0))
	return now
}

func (s *stepping) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := s.keeper.Push(ctx, r)
	s.ahead.Add(int64(s.asks))
	return response, err
}

// TestClockIsSet has the relay's clock be set while windows wait there for others,
// and while the server is asked: agents are told the server's time, or, where it was
// never learnt, that it is not known.
func TestClockIsSet(t *testing.T) {
	server := &stepping{keeper: newKeeper()}
	server.offset = time.Minute
	r := beganAs(t, Options{Upstream: server, Gather: 20 * time.Millisecond, Now: server.now})
	for _, c := range []struct {
		name        string
		waits, asks time.Duration
		unknown     bool
	}{
		{"before anything was compared, while the server is asked", 0, time.Hour, true},
		{"not at all", 0, 0, false},
		{"ahead while windows wait", time.Hour, 0, false},
		{"back while windows wait", -2 * time.Hour, 0, false},
		{"while the server is asked", 0, time.Hour, false},
		{"both", time.Hour, -time.Minute, false},
	} {
		b := wire.NewBatch(func(profile.Hash) bool { return false })
		if err := b.Add(sealed(1, "one")); err != nil {
			t.Fatal(err)
		}
		server.asks = c.asks
		server.waits.Store(int64(c.waits))
		sent := time.Now()
		response, err := r.Push(t.Context(), b.Request())
		if err != nil {
			t.Fatal(err)
		}
		offset, uncertain := wire.Clock(sent, time.Now(), response)
		if unknown := uncertain == profile.ClockUnknown; unknown != c.unknown {
			t.Errorf("%s: unknown is %v", c.name, unknown)
		}
		if off := (offset + time.Minute).Abs(); off > uncertain && off-uncertain > time.Second { // two clocks are not read at once
			t.Errorf("%s: our clock is said to be ahead by %v +- %v, and is behind by a minute", c.name, offset, uncertain)
		}
	}
}
