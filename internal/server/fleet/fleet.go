// Package fleet keeps the profiles that users apply, and knows the agents and relays
// of a tenant. It tells agents what to record and where to ship it.
//
//	Apply -> profiles, on disk (ledger.go) -> instances to record (choice.go) -> orders.go -> Attend
//	Offer -> the relay of each group (relays.go) -> orders.go
//	Report -> agents.go -> status.go -> Get, Watch
package fleet

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// How often streams are sent a message when nothing has changed.
const (
	heartbeat      = 5 * time.Second
	agentHeartbeat = 10 * time.Second // agents wait for two; each of a thousand takes a thousandth of a core
)

// How long agents and profiles are kept that have ended or gone silent, and how many.
const (
	silentAfter = 50 * time.Second // agents report every twenty seconds if nothing changes
	// goneAfter is how long an agent counts as silent: after that it is taken to be
	// gone for good.
	goneAfter   = 2 * time.Hour
	forgetAgent = 24 * time.Hour
	forgetDone  = 24 * time.Hour // profiles that have ended
	lateAgents  = time.Minute    // agents whose clock is behind are still sent profiles that have ended
	maxAgents   = 100_000
	maxProfiles = 1000
	maxTargets  = wire.MaxWindows // of one agent

	maxReport = wire.MaxAsked // bytes
	maxHeld   = 256 << 20     // bytes of the reports and labels of all agents
)

// Options configure a Fleet. Now, Log and Rates are required.
type Options struct {
	Tenant   string
	Profiles string // directory that profiles are kept in; "": they are lost on restart
	GroupBy  string // label of agents and relays that groups them; "": all are one group
	Rates    Rates
	Now      func() time.Time
	Log      *slog.Logger
}

// Rates are the sampling rates that policies decide on. They may be called with the
// lock of a Fleet held.
type Rates interface {
	Follow(id string, created time.Time, p *spec.Profile) // in place of the profile of this name
	Forget(profile string)
	Of(profile, service string) (profile.Rate, bool)
	OfProfile(name string) map[string]profile.Rate // by service
	Resuming() bool                                // the rates of before a restart are not known yet
}

// Fleet is the profiles, agents and relays of one tenant.
type Fleet struct {
	tenant string
	log    *slog.Logger
	now    func() time.Time
	rates  Rates

	heartbeat   time.Duration // how often relays are sent their standing when nothing has changed
	relayMissed time.Duration // how long a relay may not answer that

	mu       sync.Mutex // guards all below, with what they point to
	profiles profiles
	agents   agents
	relays   relays
	revision uint64        // of orders
	changed  chan struct{} // closed when orders change
	moved    chan struct{} // closed when anything changes
	ended    bool
}

// New reads the profiles that are kept on disk.
func New(o Options) (*Fleet, error) {
	f := &Fleet{tenant: o.Tenant, log: o.Log, now: o.Now, rates: o.Rates, heartbeat: heartbeat, relayMissed: relayMissed,
		agents: agents{now: o.Now, of: map[string]*agent{}}, relays: newRelays(o.GroupBy),
		revision: uint64(o.Now().UnixNano()), // greater than any that agents remember
		changed:  make(chan struct{}), moved: make(chan struct{})}
	var err error
	f.profiles, err = readProfiles(o)
	return f, err
}

// notify wakes streams: those of Watch, and, if orders have changed, those of all
// agents and relays. f.mu is held.
func (f *Fleet) notify(orders bool) {
	close(f.moved)
	f.moved = make(chan struct{})
	if !orders {
		return
	}
	f.revision++
	close(f.changed)
	f.changed = make(chan struct{})
	for _, a := range f.agents.of {
		a.wake()
	}
}

// Close ends all streams: the server closes.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		f.profiles.keepChoices()
		f.notify(true)
	}
}

// Tidy forgets profiles that ended long ago and agents that have been silent for long.
func (f *Fleet) Tidy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.profiles.forgetDone()
	f.agents.forgetSilent()
	f.profiles.keepChoices()
}

// apply adds or changes all of the profiles, or none.
func (f *Fleet) apply(orders []*ordered) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.profiles.apply(orders, &f.agents); err != nil {
		return err
	}
	f.notify(true)
	return nil
}

// delete deletes a profile.
func (f *Fleet) delete(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.profiles.of[name] == nil {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no profile %q", name))
	}
	if !f.profiles.forget(name) {
		return connect.NewError(connect.CodeUnavailable, errors.New("the profile could not be deleted: try again later"))
	}
	f.notify(true)
	return nil
}

// connect adds a connection of an agent.
func (f *Fleet) connect(r *atysv1.AttendRequest) error {
	if err := errors.Join(wire.CheckLabels(r.GetLabels()), wire.CheckNames(r.GetVersion(), string(r.GetRun()))); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.agents.find(r.GetNode())
	if err != nil {
		return err
	}
	if err := f.agents.hold(&a.labelBytes, proto.Size(r)); err != nil {
		return err
	}
	a.labels = r.GetLabels()
	a.run, a.left = r.GetRun(), false
	a.runs = append(a.runs, string(r.GetRun()))
	if a.ambiguous() && !a.warned {
		f.log.Warn("two agents have the same name: give each a --node of its own", "node", r.GetNode())
		a.warned = true
	}
	a.seen = f.now()
	f.notify(false)
	return nil
}

// disconnect removes a connection of an agent.
func (f *Fleet) disconnect(r *atysv1.AttendRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.agents.of[r.GetNode()]; a != nil {
		if i := slices.Index(a.runs, string(r.GetRun())); i >= 0 {
			a.runs = slices.Delete(a.runs, i, i+1)
		}
		f.notify(false)
	}
}

// report takes an agent's report.
func (f *Fleet) report(r *atysv1.ReportRequest) error {
	if err := checkReport(r); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.agents.find(r.GetNode())
	if err != nil {
		return err
	}
	if r.GetLeaving() && len(a.run) > 0 && !bytes.Equal(a.run, r.GetRun()) {
		return nil // the last report of a run may arrive after the next run has connected
	}
	if err := f.agents.hold(&a.reportBytes, proto.Size(r)); err != nil {
		return err
	}
	news := f.agents.silent(a) || !sameTargets(a.report, r)
	if news && !slices.Equal(f.profiles.rated(a.report), f.profiles.rated(r)) {
		a.order()
	}
	a.report, a.seen, a.left = r, f.now(), r.GetLeaving()
	f.notify((news || a.left || f.now().Sub(f.profiles.chosen) >= choosePause) && f.profiles.chooseAll(&f.agents))
	if f.now().Sub(f.profiles.kept) >= choosePause {
		f.profiles.keepChoices()
	}
	return nil
}

// addRelay adds a connection of a relay. miss is called when the relay stops answering.
func (f *Fleet) addRelay(r *atysv1.OfferRequest, miss func()) (*offer, error) {
	if err := checkOffer(r); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.relays.offers) >= maxRelays {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d relays already", maxRelays))
	}
	o := &offer{OfferRequest: r, group: f.relays.group(r.GetLabels()), since: f.now(), miss: miss}
	if _, err := rand.Read(o.id[:]); err != nil {
		return nil, fmt.Errorf("name an offer: %w", err)
	}
	f.relays.offers = append(f.relays.offers, o)
	f.notify(f.relays.elect())
	return o, nil
}

// removeRelay forgets a relay whose connection has ended.
func (f *Fleet) removeRelay(o *offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.watchdog != nil {
		o.watchdog.Stop()
	}
	f.relays.offers = slices.DeleteFunc(f.relays.offers, func(other *offer) bool { return other == o })
	f.notify(f.relays.elect())
}

// relayAnswered notes that a relay has answered, and reports whether it is known.
func (f *Fleet) relayAnswered(id []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.relays.offers, func(o *offer) bool { return string(o.id[:]) == string(id) })
	if i < 0 {
		return false
	}
	o := f.relays.offers[i]
	if o.watchdog != nil {
		o.watchdog.Reset(f.relayMissed)
		return true
	}
	o.watchdog = time.AfterFunc(f.relayMissed, func() {
		f.log.Warn("a relay has stopped answering", "relay", o.GetName(), "for", f.relayMissed)
		f.removeRelay(o) // now: its stream may be blocked on the network
		o.miss()
	})
	return true
}

// standing returns the standing of a relay, and a channel that is closed when it changes.
func (f *Fleet) standing(o *offer) (s *atysv1.Standing, changed <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &atysv1.Standing{Tenant: f.tenant, Group: o.group, Central: f.relays.central[o.group] == o, Offer: o.id[:]}, f.changed, f.ended
}

// Count counts agents by state, for metrics.
func (f *Fleet) Count(agents map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.agents.of {
		agents[f.agents.state(a)]++
	}
}

// Ailing returns the agents that are heard of and report conditions, by node, and
// counts agents by condition; under "" it counts all agents that are heard of.
func (f *Fleet) Ailing() (ailing []*atysv1.AgentStatus, of map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of = map[string]int{}
	for _, a := range f.agents.of {
		if f.agents.state(a) != agentHeard {
			continue
		}
		of[""]++
		if len(a.report.GetState().GetConditions()) == 0 {
			continue
		}
		status := f.agents.status(a, f.relays.address(a.labels))
		ailing = append(ailing, status)
		for _, c := range status.GetState().GetConditions() {
			of[c.GetKind()]++
		}
	}
	slices.SortFunc(ailing, func(a, b *atysv1.AgentStatus) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return ailing, of
}

// Scraped is a target in Prometheus' HTTP service discovery.
type Scraped struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// forgetScraped is how long a silent agent stays in service discovery: long enough
// for Prometheus to see that it is down.
const forgetScraped = 10 * time.Minute

// Scraped lists the agents that serve metrics.
func (f *Fleet) Scraped() []Scraped {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []Scraped{} // in JSON a list, never null
	for node, a := range f.agents.of {
		address := a.report.GetState().GetMetricsAddress()
		if _, _, err := net.SplitHostPort(address); err != nil || a.left || f.now().Sub(a.seen) > forgetScraped {
			continue
		}
		all = append(all, Scraped{Targets: []string{address}, Labels: map[string]string{"node": node, "__meta_atys_version": a.report.GetVersion()}})
	}
	slices.SortFunc(all, func(a, b Scraped) int { return cmp.Compare(a.Targets[0], b.Targets[0]) })
	return all
}

// Quotas lists what the fleet holds of what it may hold.
func (f *Fleet) Quotas() []*atysv1.Quota {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []*atysv1.Quota{
		{What: "profiles", Used: uint64(len(f.profiles.of)), Most: maxProfiles},
		{What: "agents", Used: uint64(len(f.agents.of)), Most: maxAgents},
		{What: "relays", Used: uint64(len(f.relays.offers)), Most: maxRelays},
		{What: "bytes that agents tell of themselves", Used: uint64(f.agents.held), Most: maxHeld},
	}
}

// Known lists the agents that should have windows of a selection: an agent that has
// not sent any yet is known by its reports alone.
func (f *Fleet) Known(s query.Selection) (all []query.Agent) {
	f.mu.Lock()
	profiles := f.profiles.recordingAll(s.Kinds)
	reports := make([]*atysv1.ReportRequest, 0, len(f.agents.of))
	for _, a := range f.agents.of {
		reports = append(reports, a.report)
		all = append(all, query.Agent{Node: a.report.GetNode(), First: a.first, Heard: a.seen, Silent: len(a.runs) == 0 || f.agents.silent(a),
			Tasks: watching(a.report, profiles)})
	}
	f.mu.Unlock()
	for i, r := range reports { // reports never change, and may be long
		all[i].Chosen = slices.ContainsFunc(r.GetTargets(), func(t *atysv1.Target) bool { return s.Select.Matches(profile.Labels(t.GetLabels())) })
	}
	return all
}
