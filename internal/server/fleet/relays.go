package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

func checkOffer(r *atysv1.OfferRequest) error {
	if r.GetName() == "" || len(r.GetName()) > wire.MaxLabel {
		return fmt.Errorf("a relay is called %.40q: want a name of at most %d bytes", r.GetName(), wire.MaxLabel)
	}
	if err := wire.CheckAddress(r.GetAddress()); err != nil {
		return fmt.Errorf("a relay is at %w", err)
	}
	return errors.Join(wire.CheckLabels(r.GetLabels()), wire.CheckNames(r.GetVersion()))
}
