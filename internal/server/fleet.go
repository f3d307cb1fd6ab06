package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// How often those who stay connected are told that nothing has changed.
const (
	heartbeat      = 5 * time.Second
	agentHeartbeat = 10 * time.Second // of a thousand, each takes a thousandth of a core: agents wait for two
)

// How long agents and profiles are remembered that are heard of no more.
const (
	silentAfter = 50 * time.Second // agents report every twenty, if nothing changes
	// goneAfter is how long an agent counts as silent: by then somebody has looked,
	// or the node was taken away without a word.
	goneAfter   = 2 * time.Hour
	forgetAgent = 24 * time.Hour
	forgetDone  = 24 * time.Hour // profiles whose time is over
	lateAgents  = time.Minute    // agents whose clock is behind still get such orders for so long
	maxAgents   = 100_000
	maxProfiles = 1000
	maxTargets  = wire.MaxWindows // of one agent

	maxReport = wire.MaxAsked // bytes
	maxHeld   = 256 << 20     // of what all agents of a fleet told of themselves
)

// fleet knows who is there and what was asked for.
type fleet struct {
	log    *slog.Logger
	now    func() time.Time
	ledger ledger
	random *rand.Rand
	began  time.Time

	heartbeat   time.Duration // how often relays are told that nothing has changed
	relayMissed time.Duration // how long one may not answer that

	mu       sync.Mutex // guards all below
	profiles map[string]*task
	agents   map[string]*attendant
	held     int // bytes of what agents told
	relays   relays
	rates    *rates
	revision uint64        // of orders
	chosen   time.Time     // when instances were chosen last
	kept     time.Time     // when the ledger was told of that
	changed  chan struct{} // closed when orders change
	moved    chan struct{} // closed when anything does
	ended    bool
}

// task is a profile on its way to agents.
type task struct {
	*ordered
	choice          // where instances are limited
	restored bool   // it was read from the ledger: not all whom it chose may have been heard of yet
	unkept   bool   // the ledger has another choice
	json     string // the profile, once some agent has been told of it
}

// text is the profile as agents are told of it: a thousand may be at once.
func (t *task) text() (string, error) {
	if t.json == "" {
		text, err := json.Marshal(t.Profile)
		if err != nil {
			return "", err
		}
		t.json = string(text)
	}
	return t.json, nil
}

// attendant is an agent as the server knows it.
type attendant struct {
	report *atysv1.ReportRequest
	first  time.Time // when it was first heard of
	seen   time.Time
	runs   []string // of the connections that stand
	run    []byte   // of the last that came
	left   bool     // it has said goodbye
	warned bool     // that it is two
	labels profile.Labels

	revision uint64        // of what it alone is ordered
	changed  chan struct{} // closed when its orders change

	reportBytes, labelBytes int // of what the fleet holds
}

func newFleet(o Options, log *slog.Logger, now func() time.Time) (*fleet, error) {
	f := &fleet{log: log, now: now, ledger: ledger{o.Profiles}, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		began: now(), heartbeat: heartbeat, relayMissed: relayMissed,
		profiles: map[string]*task{}, agents: map[string]*attendant{}, relays: newRelays(o.GroupBy),
		revision: uint64(now().UnixNano()), // another one than any that an agent may remember
		rates:    newRates(),
		changed:  make(chan struct{}), moved: make(chan struct{})}
	all, err := f.ledger.read(log)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		t := &task{ordered: o, restored: true}
		if t.choice, err = f.ledger.readChoice(o); err != nil {
			log.Error("read what a profile chose: others are chosen", "profile", o.Profile.Name, "error", err)
		}
		f.profiles[o.Profile.Name] = t
	}
	f.rates.follow(f.profiles)
	f.rates.restored = len(f.rates.profiles) == 0
	return f, nil
}

// announce wakes who waits. The lock is held.
func (f *fleet) announce(orders bool) {
	close(f.moved)
	f.moved = make(chan struct{})
	if !orders {
		return
	}
	f.revision++
	close(f.changed)
	f.changed = make(chan struct{})
	for _, a := range f.agents {
		a.rouse()
	}
}

// rouse has an agent hear its orders, if it attends. The fleet's lock is held.
func (a *attendant) rouse() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// end has all who attend go: the server closes.
func (f *fleet) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		f.keepChoices()
		f.announce(true)
	}
}

// apply makes profiles, or changes them: all, or none. One that is asked for
// again as it is goes on.
func (f *fleet) apply(orders []*ordered) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	more := 0
	for _, o := range orders {
		if f.profiles[o.Profile.Name] == nil {
			more++
		}
	}
	if !f.makeRoom(more, orders) {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d profiles, and at most %d are kept: delete some", len(f.profiles), maxProfiles))
	}
	fresh := slices.DeleteFunc(slices.Clone(orders), func(o *ordered) bool {
		old := f.profiles[o.Profile.Name]
		return old != nil && o.Profile.Duration == 0 && same(old.ordered, o)
	})
	for i, o := range fresh {
		if err := f.ledger.keep(o); err != nil {
			f.log.Error("keep a profile", "error", err)
			f.takeBack(fresh[:i])
			return connect.NewError(connect.CodeUnavailable, errors.New("the profiles could not be kept: apply them again later"))
		}
	}
	for _, o := range fresh {
		t := &task{ordered: o}
		f.profiles[o.Profile.Name] = t
		f.choose(t)
	}
	f.rates.follow(f.profiles)
	f.keepChoices()
	f.announce(true)
	return nil
}

// makeRoom forgets those of the profiles whose time is over longest, if there are
// too many for more, but for those that are applied again. The lock is held.
func (f *fleet) makeRoom(more int, applied []*ordered) bool {
	excess := len(f.profiles) + more - maxProfiles
	if excess <= 0 {
		return true
	}
	var done []*task
	for name, t := range f.profiles {
		again := slices.ContainsFunc(applied, func(o *ordered) bool { return o.Profile.Name == name })
		if !again && !t.Until.IsZero() && f.now().Sub(t.Until) > lateAgents { // nobody is waited for any more
			done = append(done, t)
		}
	}
	if len(done) < excess {
		return false
	}
	slices.SortFunc(done, func(a, b *task) int { return a.Until.Compare(b.Until) })
	for _, t := range done[:excess] {
		if !f.forgetProfile(t.Profile.Name) {
			return false
		}
	}
	return true
}

// takeBack has the ledger hold what it held before. The lock is held.
func (f *fleet) takeBack(kept []*ordered) {
	for _, o := range kept {
		var err error
		if old := f.profiles[o.Profile.Name]; old != nil {
			err = f.ledger.keep(old.ordered)
		} else {
			err = f.ledger.drop(o.Profile.Name)
		}
		if err != nil {
			f.log.Error("take a profile back", "profile", o.Profile.Name, "error", err)
		}
	}
}

// same tells whether two profiles ask for the same.
func same(a, b *ordered) bool {
	x, errX := json.Marshal(a.Profile)
	y, errY := json.Marshal(b.Profile)
	return errX == nil && errY == nil && string(x) == string(y)
}

// delete forgets a profile.
func (f *fleet) delete(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.profiles[name] == nil {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no profile %q", name))
	}
	if !f.forgetProfile(name) {
		return connect.NewError(connect.CodeUnavailable, errors.New("the profile could not be deleted: try again later"))
	}
	f.announce(true)
	return nil
}

// forgetProfile drops a profile, if the ledger can. The lock is held.
func (f *fleet) forgetProfile(name string) bool {
	if err := f.ledger.drop(name); err != nil {
		f.log.Error("forget a profile", "error", err)
		return false
	}
	delete(f.profiles, name)
	f.rates.follow(f.profiles)
	return true
}

// tidy drops what was over long ago.
func (f *fleet) tidy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	f.keepChoices()
}

// forget is tidy. The lock is held.
func (f *fleet) forget() {
	now := f.now()
	for name, t := range f.profiles {
		if !t.Until.IsZero() && now.Sub(t.Until) > forgetDone {
			f.forgetProfile(name)
		}
	}
	for node, a := range f.agents {
		if len(a.runs) == 0 && now.Sub(a.seen) > forgetAgent {
			f.held -= a.reportBytes + a.labelBytes
			delete(f.agents, node)
		}
	}
}

// silent tells whether nothing has been heard of an agent lately, or will be. The
// lock is held.
func (f *fleet) silent(a *attendant) bool { return a.left || f.now().Sub(a.seen) > silentAfter }

// Whether and why an agent is silent.
const (
	agentHeard  = "heard"
	agentSilent = "silent" // it should not be
	agentLeft   = "left"   // in order
	agentGone   = "gone"   // for so long that it will not come back
)

var agentStates = []string{agentHeard, agentSilent, agentLeft, agentGone}

// state tells whether and why an agent is silent. The lock is held.
func (f *fleet) state(a *attendant) string {
	switch {
	case a.left:
		return agentLeft
	case !f.silent(a):
		return agentHeard
	case f.now().Sub(a.seen) > goneAfter:
		return agentGone
	}
	return agentSilent
}

// ordersFor gives what an agent is to do that was told a revision of it, and what
// is closed when that changes.
func (f *fleet) ordersFor(node string, told uint64) (orders *atysv1.Orders, changed <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	orders, changed = &atysv1.Orders{Revision: f.revision}, f.changed
	a := f.agents[node]
	if a != nil {
		orders.Revision += a.revision // neither ever falls while it attends
		orders.ShipTo, changed = f.relays.address(a.labels), a.changed
	}
	if orders.Unchanged = orders.GetRevision() == told; orders.GetUnchanged() {
		return orders, changed, f.ended
	}
	if f.undecided() || f.resuming() { // agents go on with what they have
		orders.Revision, orders.Unchanged = told, true
		return orders, changed, f.ended
	}
	for _, t := range f.sorted() {
		if !t.Until.IsZero() && f.now().Sub(t.Until) > lateAgents {
			continue
		}
		text, err := t.text()
		if err != nil {
			f.log.Error("write a profile", "profile", t.Profile.Name, "error", err)
			continue
		}
		m := &atysv1.Task{Id: t.ID, Profile: text, Limited: t.Profile.Instances > 0, Eligible: uint32(t.Eligible), Recorded: uint32(len(chosenKeys(t.Chosen)))}
		if !t.Until.IsZero() {
			m.UntilUnixNano = t.Until.UnixNano()
		}
		for _, labels := range t.Chosen[node] {
			m.Chosen = append(m.Chosen, &atysv1.Series{Labels: labels})
		}
		if a != nil {
			m.Rates = f.ratesFor(t, a.report)
		}
		orders.Tasks = append(orders.Tasks, m)
	}
	return orders, changed, f.ended
}

// sorted lists profiles by name. The lock is held.
func (f *fleet) sorted() []*task {
	return slices.SortedFunc(maps.Values(f.profiles), func(a, b *task) int { return strings.Compare(a.Profile.Name, b.Profile.Name) })
}

// arrive and leave count the connections of an agent.
func (f *fleet) arrive(r *atysv1.AttendRequest) error {
	if err := errors.Join(wire.CheckLabels(r.GetLabels()), wire.CheckNames(r.GetVersion(), string(r.GetRun()))); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.agent(r.GetNode())
	if err != nil {
		return err
	}
	if err := f.hold(&a.labelBytes, proto.Size(r)); err != nil {
		return err
	}
	a.labels = r.GetLabels()
	a.run, a.left = r.GetRun(), false
	a.runs = append(a.runs, string(r.GetRun()))
	if a.twice() && !a.warned {
		f.log.Warn("two agents attend under one name: give each a --node of its own", "node", r.GetNode())
		a.warned = true
	}
	a.seen = f.now()
	f.announce(false)
	return nil
}

func (f *fleet) leave(r *atysv1.AttendRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.agents[r.GetNode()]; a != nil {
		if i := slices.Index(a.runs, string(r.GetRun())); i >= 0 {
			a.runs = slices.Delete(a.runs, i, i+1)
		}
		f.announce(false)
	}
}

// twice tells whether two agents attend as this one. One whose machine has lost its
// power does until its connection is found to be dead.
func (a *attendant) twice() bool {
	return slices.ContainsFunc(a.runs, func(run string) bool { return run != a.runs[0] })
}

// agent finds or adds an agent. The lock is held.
func (f *fleet) agent(node string) (*attendant, error) {
	if node == "" || len(node) > wire.MaxLabel {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a node is called %.40q: want a name of at most %d bytes", node, wire.MaxLabel))
	}
	a := f.agents[node]
	if a == nil {
		if f.forget(); len(f.agents) >= maxAgents {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d agents already", len(f.agents)))
		}
		a = &attendant{report: &atysv1.ReportRequest{Node: node}, first: f.now(), changed: make(chan struct{})}
		f.agents[node] = a
	}
	return a, nil
}

// hold counts bytes that are kept of an agent in place of others, unless those
// of all agents would be too many. The lock is held.
func (f *fleet) hold(before *int, bytes int) error {
	held := f.held - *before + bytes
	if held > maxHeld && bytes > *before {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("agents have told of %d bytes: at most %d are kept", held, maxHeld))
	}
	f.held, *before = held, bytes
	return nil
}

func checkReport(r *atysv1.ReportRequest) error {
	if size := proto.Size(r); size > maxReport {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("a report of %d bytes: at most %d are taken", size, maxReport))
	}
	if len(r.GetTargets()) > maxTargets || len(r.GetTasks()) > 2*maxProfiles {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d targets and %d tasks: at most %d and %d are taken", len(r.GetTargets()), len(r.GetTasks()), maxTargets, 2*maxProfiles))
	}
	names := []string{r.GetVersion(), string(r.GetRun()), r.GetState().GetMetricsAddress()}
	for _, t := range r.GetTasks() { // of its message people are told the beginning
		names = append(names, t.GetId(), t.GetPhase())
	}
	if err := wire.CheckNames(names...); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	for _, t := range r.GetTargets() {
		if err := wire.CheckLabels(t.GetLabels()); err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	return nil
}

// hear takes a report.
func (f *fleet) hear(r *atysv1.ReportRequest) error {
	if err := checkReport(r); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.agent(r.GetNode())
	if err != nil {
		return err
	}
	if r.GetLeaving() && len(a.run) > 0 && !bytes.Equal(a.run, r.GetRun()) {
		return nil // the goodbye of a run may come after its successor
	}
	if err := f.hold(&a.reportBytes, proto.Size(r)); err != nil {
		return err
	}
	news := f.silent(a) || !sameTargets(a.report, r)
	if news && !slices.Equal(f.rated(a.report), f.rated(r)) {
		a.order()
	}
	a.report, a.seen, a.left = r, f.now(), r.GetLeaving()
	f.announce((news || a.left || f.now().Sub(f.chosen) >= choosePause) && f.chooseAll())
	if f.now().Sub(f.kept) >= choosePause {
		f.keepChoices()
	}
	return nil
}

func sameTargets(a, b *atysv1.ReportRequest) bool {
	return slices.EqualFunc(a.GetTargets(), b.GetTargets(), func(a, b *atysv1.Target) bool { return proto.Equal(a, b) })
}

// Attend gives an agent its orders until it leaves; see the service Fleet.
func (s *Server) Attend(ctx context.Context, r *atysv1.AttendRequest, stream *connect.ServerStream[atysv1.Orders]) error {
	return s.AttendTo(ctx, r, stream.Send)
}

// AttendTo is Attend for an agent of this process.
func (s *Server) AttendTo(ctx context.Context, r *atysv1.AttendRequest, send func(*atysv1.Orders) error) error {
	f, err := s.fleet(ctx)
	if err != nil {
		return err
	}
	if err := f.arrive(r); err != nil {
		return err
	}
	defer f.leave(r)
	told := uint64(0)
	beat := time.NewTicker(agentHeartbeat)
	defer beat.Stop()
	for {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		orders, changed, ended := f.ordersFor(r.GetNode(), told)
		if ended {
			return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: come again"))
		}
		if err := send(orders); err != nil {
			return err
		}
		told = orders.GetRevision()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-beat.C:
		}
	}
}

// Report takes what an agent tells; see the service Fleet.
func (s *Server) Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	f, err := s.fleet(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.hear(r); err != nil {
		return nil, err
	}
	return &atysv1.ReportResponse{ReceivedUnixNano: s.now().UnixNano()}, nil
}

// byNode lists agents by name. The lock is held.
func (f *fleet) byNode() []*attendant {
	return slices.SortedFunc(maps.Values(f.agents), func(a, b *attendant) int { return cmp.Compare(a.report.GetNode(), b.report.GetNode()) })
}
