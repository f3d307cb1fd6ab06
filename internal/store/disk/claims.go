package disk

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// A window that a relay has added up claims those that it contains: beside where
// each of them would lie there is the key of the one that contains it. So none
// counts twice, whether it comes by itself too, or in another one. Commits are
// written one group after another: what is decided of a group holds.

// claim is that a window of a batch has a part.
type claim struct {
	window, part  int // of the batch
	contained, by key
}

func claimKey(contained key) key { return append(key{spaceClaims}, contained[1:]...) }

// claims decide on the commits of one group.
type claims struct {
	database *database
	fresh    map[string]key  // of the group: by what is contained
	single   map[string]bool // windows of the group that contain no others
}

// decide gives the commits of a group that may be written, without the windows
// that are there already as parts of others. The others have failed.
func (d *database) decide(group []*commit) (may []*commit, err error) {
	some := false
	for _, c := range group { // each marks its days, whatever those before it do
		some = c.claimed() || some
	}
	if !some {
		return group, nil
	}
	s := &claims{database: d, fresh: map[string]key{}, single: map[string]bool{}}
	for _, c := range group {
		if err := s.add(c); err != nil {
			return nil, err
		}
		if c.failed == nil {
			may = append(may, c)
		}
	}
	return may, nil
}

// claimed tells whether a commit claims windows, or is of a day when some are. The
// days of those that it claims are such from now on.
func (c *commit) claimed() bool {
	if len(c.claims) > 0 {
		c.tenant.mu.Lock()
		for _, one := range c.claims {
			c.tenant.claimed[dayOf(one.contained, c.tenant.name)] = true
		}
		c.tenant.mu.Unlock()
		return true
	}
	if len(c.stale) == 0 { // nothing in it is as it was cut
		return false
	}
	c.tenant.mu.Lock()
	defer c.tenant.mu.Unlock()
	return c.tenant.anyClaimed || len(c.tenant.claimed) > 0 && slices.ContainsFunc(c.pairs, func(p [2][]byte) bool { return c.tenant.claimed[dayOf(p[0], c.tenant.name)] })
}

// dayOf is the day in a window's key.
func dayOf(window key, tenant string) uint32 {
	return binary.BigEndian.Uint32(window[len(levelKey(tenant, store.Raw)):])
}

// add decides on a commit.
func (s *claims) add(c *commit) error {
	if len(c.stale) == 0 {
		return nil
	}
	overlap := map[int][]int{}
	mine := map[string]key{} // what windows of this commit contain: the first of several keeps it
	for _, one := range c.claims {
		by := mine[string(one.contained)]
		if by == nil {
			mine[string(one.contained)] = one.by
		}
		there, err := s.there(one)
		if err != nil {
			return err
		}
		if there || by != nil && !bytes.Equal(by, one.by) {
			overlap[one.window] = append(overlap[one.window], one.part)
		}
	}
	if len(overlap) > 0 {
		c.failed = &store.OverlapError{Parts: overlap}
		return nil
	}
	containers := map[string]bool{}
	for _, one := range c.claims {
		s.fresh[string(one.contained)] = one.by
		containers[string(one.by)] = true
	}
	kept := c.pairs[:0]
	for _, p := range c.pairs {
		if !containers[string(p[0])] {
			by, err := s.owner(p[0])
			if err != nil {
				return err
			}
			if by != nil {
				continue
			}
			s.single[string(p[0])] = true
		}
		kept = append(kept, p)
	}
	c.pairs = kept
	return nil
}

// there tells whether what is claimed came by itself, or in another window.
func (s *claims) there(one claim) (bool, error) {
	by, err := s.owner(one.contained)
	if err != nil || by != nil {
		return by != nil && !bytes.Equal(by, one.by), err
	}
	if s.single[string(one.contained)] {
		return true, nil
	}
	by, err = s.database.value(one.contained)
	return by != nil, err
}

// owner is the window that contains another one; nil: none does.
func (s *claims) owner(contained key) (key, error) {
	if by := s.fresh[string(contained)]; by != nil {
		return by, nil
	}
	return s.database.value(claimKey(contained))
}

// value is what is kept under a key; nil: nothing, or nothing that can be read. A
// window that cannot be is in no answer, so that another one with it counts once;
// with a claim that cannot be it may count twice, where refusing would keep its
// agent from ever sending another one.
func (d *database) value(k key) (key, error) {
	value, closer, err := d.Get(k)
	if errors.Is(err, pebble.ErrNotFound) || isDamage(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(key{}, value...), closer.Close()
}

// claims finds the days of which windows are contained in others. Where
// that cannot be told, it may be any.
func (s *restorer) claims() error {
	prefix := append(newKey(spaceClaims, s.tenant.name), byte(store.Raw))
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return err
	}
	for valid := it.First(); valid; {
		r := codec.Reader{Data: it.Key()[len(prefix):]}
		day := r.Fixed()
		if r.Bad {
			err = errDamaged
			break
		}
		s.tenant.claimed[day] = true
		valid = it.SeekGE(append(key(nil), prefix...).number(day).after())
	}
	if err = cmp.Or(err, it.Error()); isDamage(err) {
		s.tenant.anyClaimed = true
		s.tenant.lost("claims")(err)
		_ = it.Close() // its error is the one that is known
		return nil
	}
	return errors.Join(err, it.Close())
}

// key is where a window lies, or would: one of the batch, or a part of it.
func (r *resolver) key(level store.Level, w *store.Window, p store.Part) (key, error) {
	t := r.shelf.tenant
	number, err := t.admit(p.Series, r.quotas.Of(t.name).Series)
	if err != nil {
		return nil, err
	}
	start, kind := w.Head.Start.Add(p.After), w.Head.Kind()
	under := func(kind string) key {
		return windowKey(t.name, level, p.Series[store.ServiceLabel], number, start, w.Head.Task, kind, p.Run)
	}
	if kind != impliedKind && kind != "" && start.Before(r.shelf.db.upgraded.Add(upgradeMargin)) {
		old := under(impliedKind)
		if has, err := r.holds(old, kind); err != nil || has {
			return old, err
		}
	}
	return under(kind), nil
}

// upgradeMargin is how far the clock of an agent may be ahead of ours. Its windows from
// before the upgrade can begin after it, by that much.
const upgradeMargin = 24 * time.Hour

// holds reports whether an earlier version stored a window of a kind under a key that does
// not name the kind: by itself, or in a window that a relay merged. An agent may send that
// window again.
func (r *resolver) holds(old key, kind string) (bool, error) {
	if data, err := r.shelf.db.value(old); err != nil || firstKind(data) == kind {
		return err == nil, err
	}
	by, err := r.shelf.db.value(claimKey(old))
	if err != nil || by == nil {
		return false, err
	}
	data, err := r.shelf.db.value(by)
	return firstKind(data) == kind, err
}

// firstKind returns the kind of a stored window; "" if it has none or is damaged.
func firstKind(data []byte) string {
	all, ok := codec.Kinds(data)
	if !ok || len(all) == 0 {
		return ""
	}
	return all[0]
}
