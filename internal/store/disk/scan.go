package disk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Scan gives windows one by one; see store.Store.
func (s *Store) Scan(ctx context.Context, tenant string, q store.Query, each func(*profile.Window, profile.Run) error) error {
	db, err := s.acquire()
	if err != nil {
		return err
	}
	defer db.release()
	t, err := s.tenant(db, tenant)
	if err != nil {
		return err
	}
	shelf := s.shelf(db, t)
	defer shelf.putBack()
	c := s.cursor(db, t, q)
	err = errors.Join(c.scan(ctx, shelf, each), c.close())
	switch damage := shelf.damage(c.damaged).Err(); {
	case c.refused != nil && damage != nil:
		return errors.Join(c.refused, damage)
	case c.refused != nil:
		return c.refused
	case err != nil:
		return err
	default:
		return damage
	}
}

func (c *cursor) scan(ctx context.Context, shelf *shelf, each func(*profile.Window, profile.Run) error) error {
	days, err := c.days()
	if err != nil {
		return err
	}
	chosen := c.tenant.chosen(c.query)
	slices.SortFunc(chosen, func(a, b *series) int { return strings.Compare(a.written, b.written) })
	for _, of := range chosen {
		err := c.series(ctx, days, of, func(f *found) error {
			d, err := shelf.take(of.service)
			if err != nil {
				return err
			}
			kept, ok := decodeWindow(f.data)
			calls, leaves := d.all()
			if !ok || !below(&kept, len(leaves)) {
				c.report(of, f.start, errDamaged)
				return nil
			}
			kept.Head.Start, kept.Head.Task, kept.Head.Target = f.start, f.task, maps.Clone(of.labels)
			return each(c.tenant.open(&kept, calls, leaves), f.run)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// below reports whether all leaves of a window are known.
func below(w *store.Window, size int) bool {
	for _, e := range w.Exemplars {
		if int64(e.Stack) >= int64(size) {
			return false
		}
	}
	return (len(w.Rows.Stack) == 0 || int64(slices.Max(w.Rows.Stack)) < int64(size)) && within(w.Rows.Peer, size)
}

// open makes a window of what is kept: its rows' leaves become stacks again.
func (t *tenant) open(kept *store.Window, calls []call, leaves []uint32) *profile.Window {
	b := profile.NewBuilder(kept.Head)
	locations := map[uint32]profile.LocationID{}
	var stack []profile.LocationID
	stackOf := func(leaf profile.StackID) profile.StackID {
		stack = stack[:0]
		at := leaves[leaf]
		for ; calls[at].caller != nobody; at = calls[at].caller {
			number := calls[at].place
			id, ok := locations[number]
			if !ok {
				place := t.places.at(number)
				id = b.Location(place.Location, place.Names...)
				locations[number] = id
			}
			stack = append(stack, id)
		}
		return b.Stack(stack, calls[at].end())
	}
	for i, leaf := range kept.Rows.Stack {
		kept.Rows.Stack[i] = stackOf(leaf)
	}
	for i, peer := range kept.Rows.Peer {
		if peer != 0 {
			kept.Rows.Peer[i] = profile.PeerID(stackOf(profile.StackID(peer-1))) + 1
		}
	}
	for i, e := range kept.Exemplars {
		kept.Exemplars[i].Stack = stackOf(e.Stack)
	}
	w := b.Window()
	w.Threads, w.Contexts = kept.Threads, kept.Contexts
	w.Rows, w.Exemplars = kept.Rows, kept.Exemplars
	return w
}
