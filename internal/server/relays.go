package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// relays are those that are there, and which of them is each group's. The lock
// of their fleet guards them.
type relays struct {
	groupBy string
	offers  []*offer // the longest standing first
	central map[string]*offer
}

// offer is a relay for as long as its connection stands. One without power leaves a
// connection that stands until TCP gives up, a quarter of an hour later: so a relay
// that has answered once is known only while it goes on. An older one never does.
type offer struct {
	*atysv1.OfferRequest
	group    string
	since    time.Time
	id       [16]byte
	miss     func()      // ends the connection
	watchdog *time.Timer // nil: it has not answered yet
}

// relayMissed is how long a relay may not answer: four heartbeats.
const relayMissed = 4 * heartbeat

// maxRelays bounds those of one tenant.
const maxRelays = 1000

func newRelays(groupBy string) relays {
	return relays{groupBy: groupBy, central: map[string]*offer{}}
}

// group is where agents and relays with these labels belong; "" where they have
// no such label, or there are no groups.
func (r *relays) group(labels profile.Labels) string { return labels[r.groupBy] }

// address is where agents with these labels are to ship; "": to the server.
func (r *relays) address(labels profile.Labels) string {
	if o := r.central[r.group(labels)]; o != nil {
		return o.GetAddress()
	}
	return ""
}

// elect has each group have a relay, if one is willing, and tells whether any
// group's is another one now. One that stands stays.
func (r *relays) elect() (changed bool) {
	elected := map[string]*offer{}
	for _, o := range r.offers {
		if current := r.central[o.group]; elected[o.group] == nil || o == current {
			elected[o.group] = o
		}
	}
	changed = len(elected) != len(r.central)
	for group, o := range elected {
		changed = changed || r.central[group] != o
	}
	r.central = elected
	return changed
}

// sorted lists relays by name.
func (r *relays) sorted() []*offer {
	return slices.SortedStableFunc(slices.Values(r.offers), func(a, b *offer) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// RelayStatus is a relay and how it stands.
type RelayStatus struct {
	Name    string         `json:"name"`
	Version string         `json:"version"`
	Address string         `json:"address"`
	Group   string         `json:"group"`
	Central bool           `json:"central"` // the group's agents ship to it
	Agents  int            `json:"agents"`  // that do
	Since   time.Time      `json:"since"`
	Labels  profile.Labels `json:"labels,omitempty"`
}

// relayStatus tells how a relay stands. The lock is held.
func (f *fleet) relayStatus(o *offer) RelayStatus {
	s := RelayStatus{Name: o.GetName(), Version: o.GetVersion(), Address: o.GetAddress(), Group: o.group,
		Central: f.relays.central[o.group] == o, Since: o.since.UTC(), Labels: o.GetLabels()}
	if s.Central {
		for _, a := range f.agents {
			if len(a.runs) > 0 && f.relays.group(a.labels) == o.group {
				s.Agents++
			}
		}
	}
	return s
}

// welcome has a relay be known. miss is called when it answers no more.
func (f *fleet) welcome(r *atysv1.OfferRequest, miss func()) (*offer, error) {
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
	f.announce(f.relays.elect())
	return o, nil
}

func checkOffer(r *atysv1.OfferRequest) error {
	if r.GetName() == "" || len(r.GetName()) > wire.MaxLabel {
		return fmt.Errorf("a relay is called %.40q: want a name of at most %d bytes", r.GetName(), wire.MaxLabel)
	}
	if err := wire.CheckAddress(r.GetAddress()); err != nil {
		return fmt.Errorf("a relay is at %w", err)
	}
	return errors.Join(wire.CheckLabels(r.GetLabels()), wire.CheckNames(r.GetVersion()))
}

// dismiss forgets a relay whose connection has ended.
func (f *fleet) dismiss(o *offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.watchdog != nil {
		o.watchdog.Stop()
	}
	f.relays.offers = slices.DeleteFunc(f.relays.offers, func(other *offer) bool { return other == o })
	f.announce(f.relays.elect())
}

// hearOffer notes that a relay has answered, and tells whether it is known.
func (f *fleet) hearOffer(id []byte) bool {
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
		f.log.Warn("a relay answers no more", "relay", o.GetName(), "for", f.relayMissed)
		f.dismiss(o) // at once: who sends to it may wait for the network
		o.miss()
	})
	return true
}

// Stand has a relay answer; see the service Fleet.
func (s *Server) Stand(ctx context.Context, r *atysv1.StandRequest) (*atysv1.StandResponse, error) {
	f, err := s.fleet(ctx)
	if err != nil {
		return nil, err
	}
	if !f.hearOffer(r.GetOffer()) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("this relay is not known any more: offer it again"))
	}
	return &atysv1.StandResponse{}, nil
}

// standing tells a relay how it stands, and what is closed when that changes.
func (f *fleet) standing(o *offer, tenant string) (s *atysv1.Standing, changed <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &atysv1.Standing{Tenant: tenant, Group: o.group, Central: f.relays.central[o.group] == o, Offer: o.id[:]}, f.changed, f.ended
}

// Offer has a relay be known until it leaves; see the service Fleet.
func (s *Server) Offer(ctx context.Context, r *atysv1.OfferRequest, stream *connect.ServerStream[atysv1.Standing]) error {
	return s.OfferTo(ctx, r, stream.Send)
}

// OfferTo is Offer for a relay of this process.
func (s *Server) OfferTo(ctx context.Context, r *atysv1.OfferRequest, send func(*atysv1.Standing) error) error {
	f, err := s.fleet(ctx)
	if err != nil {
		return err
	}
	missed := make(chan struct{})
	o, err := f.welcome(r, sync.OnceFunc(func() { close(missed) }))
	if err != nil {
		return err
	}
	defer f.dismiss(o)
	beat := time.NewTicker(f.heartbeat)
	defer beat.Stop()
	for {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		standing, changed, ended := f.standing(o, s.tenant(ctx))
		if ended {
			return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: come again"))
		}
		if err := send(standing); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-missed:
			return connect.NewError(connect.CodeUnavailable, errors.New("nothing was heard of this relay: offer it again"))
		case <-changed:
		case <-beat.C:
		}
	}
}
