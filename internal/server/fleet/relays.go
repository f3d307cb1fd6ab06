package fleet

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// relays are the relays that are connected, and the one that each group's agents ship
// to. The lock of their Fleet guards them.
type relays struct {
	groupBy string
	offers  []*offer // in the order in which they connected
	central map[string]*offer
}

// offer is a connection of a relay. If a relay's machine loses power, TCP gives up its
// connection only a quarter of an hour later: so once a relay has answered, it has to
// go on answering. Relays of older versions never answer.
type offer struct {
	*atysv1.OfferRequest
	group    string
	since    time.Time
	id       [16]byte
	miss     func()      // ends the connection
	watchdog *time.Timer // nil: it has not answered yet
}

// relayMissed is how long a relay may not answer.
const relayMissed = 4 * heartbeat

// maxRelays is how many relays a tenant may have.
const maxRelays = 1000

func newRelays(groupBy string) relays {
	return relays{groupBy: groupBy, central: map[string]*offer{}}
}

// group returns the group of agents and relays with these labels; "" if they do not
// have the label, or there are no groups.
func (r *relays) group(labels profile.Labels) string { return labels[r.groupBy] }

// address returns where agents with these labels ship to; "": to the server.
func (r *relays) address(labels profile.Labels) string {
	if o := r.central[r.group(labels)]; o != nil {
		return o.GetAddress()
	}
	return ""
}

// elect chooses a relay for each group that has any, and reports whether any choice has
// changed. An elected relay stays elected while it is connected.
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

func checkOffer(r *atysv1.OfferRequest) error {
	if r.GetName() == "" || len(r.GetName()) > wire.MaxLabel {
		return fmt.Errorf("a relay is called %.40q: want a name of at most %d bytes", r.GetName(), wire.MaxLabel)
	}
	if err := wire.CheckAddress(r.GetAddress()); err != nil {
		return fmt.Errorf("a relay is at %w", err)
	}
	return errors.Join(wire.CheckLabels(r.GetLabels()), wire.CheckNames(r.GetVersion()))
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
