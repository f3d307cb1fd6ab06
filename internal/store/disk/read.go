package disk

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// Scan gives windows one by one; see store.Store.
func (s *Store) Scan(ctx context.Context, tenant string, q store.Query, each func(*profile.Window, profile.Run) error) error {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return err
	}
	defer db.release()
	shelf := s.shelf(db, t)
	defer shelf.putBack()
	c := newCursor(s.connection.log, db, t, q)
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
	return c.each(ctx, c.tenant.ordered(c.query), func(of *series, f *found) error {
		d, err := shelf.take(of.service)
		if err != nil {
			return err
		}
		kept, ok := codec.DecodeWindow(f.data)
		calls, leaves := d.all()
		if !ok || !below(&kept, len(leaves)) {
			c.report(of, f.start, errDamaged)
			return nil
		}
		if !slices.ContainsFunc(kept.Head.Types, func(t profile.ValueType) bool { return c.query.Measures(t.Kind) }) && c.query.Kinds != nil {
			return nil
		}
		kept.Head.Start, kept.Head.Task, kept.Head.Target = f.start, f.task, maps.Clone(of.labels)
		return each(c.tenant.open(&kept, calls, leaves), f.run)
	})
}

// below reports whether all leaves of a window are known.
func below(w *store.Window, size int) bool {
	for _, e := range w.Exemplars {
		if int64(e.Stack) >= int64(size) {
			return false
		}
	}
	return (len(w.Rows.Stack) == 0 || int64(slices.Max(w.Rows.Stack)) < int64(size)) && codec.Within(w.Rows.Peer, size)
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

// Heads gives the heads of windows; see store.Windows.
func (s *Store) Heads(ctx context.Context, tenant string, parts []store.Query, each func(store.Head) error) error {
	var giving sync.Mutex // held while each is called
	var refused error     // by each
	err := s.readAll(ctx, tenant, parts, false, func(*shelf) taker {
		var columns codec.Columns
		return func(ctx context.Context, p *part, g *grouped) error {
			return p.series(ctx, g, func(f *found) error {
				h, ok := readHead(&columns, f, &p.cursor.query)
				if !ok {
					return errDamaged
				}
				if len(h.Head.Types) == 0 {
					return nil
				}
				h.Series, h.Head.Target = g.of.labels, g.of.labels
				giving.Lock()
				defer giving.Unlock()
				if refused == nil {
					refused = each(h)
				}
				return refused
			})
		}
	}, nil)
	return cmp.Or(refused, err)
}

// readHead reads the head of a window, with the types that a query asks for; false if it is
// damaged.
func readHead(c *codec.Columns, f *found, q *store.Query) (h store.Head, ok bool) {
	asked := q.Kinds
	if asked == nil {
		if asked, ok = codec.Kinds(f.data); !ok {
			return h, false
		}
	}
	var types []profile.ValueType
	for _, kind := range asked {
		if !c.Read(f.data, kind, math.MaxInt, codec.Parts{}) {
			return h, false
		}
		if c.Absent || q.Level != store.Raw && c.Primary != "" && q.Measures(c.Primary) { // the head of the primary kind is the same
			continue
		}
		types = append(types, c.Head.Types[0])
		c.Head.Start, c.Head.Task = f.start, f.task
		h = store.Head{Head: &c.Head, N: c.Samples(), Of: c.Windows(q.Level)}
	}
	if h.Head == nil {
		return store.Head{Head: &profile.Head{}}, true
	}
	c.Head.Types = types
	return h, true
}

// Types lists value types; see store.Store.
func (s *Store) Types(ctx context.Context, tenant string, parts []store.Query) ([]profile.ValueType, error) {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return nil, err
	}
	defer db.release()
	var all typeCollector
	damaged := 0
	for _, q := range parts {
		c := newCursor(s.connection.log, db, t, q)
		if err := errors.Join(c.types(ctx, &all), c.close()); err != nil {
			return nil, err
		}
		damaged += c.damaged
	}
	return all.Sorted(), t.damage(damaged).Err()
}

// typeCollector collects the types of windows that it reads.
type typeCollector struct {
	store.Types
	columns codec.Columns
}

// types adds the types of all windows that the query chooses.
func (c *cursor) types(ctx context.Context, all *typeCollector) error {
	return c.each(ctx, c.tenant.chosen(c.query), func(of *series, f *found) error {
		if !all.read(f.data, &c.query) {
			c.report(of, f.start, errDamaged)
		}
		return nil
	})
}

// read adds the types of a window; false if it is damaged.
func (a *typeCollector) read(data []byte, q *store.Query) bool {
	types, of, ok := a.columns.ReadTypes(data)
	if !ok || q.Level != store.Raw && of == 0 { // nothing was merged into it: it only reports what was lost
		return ok
	}
	for _, t := range types {
		if q.Measures(t.Kind) {
			a.Add(t)
		}
	}
	return true
}

// taker takes all windows of a series.
type taker func(ctx context.Context, p *part, g *grouped) error

// readAll gives all series of some parts to takers, each of which reads one after another. done is
// called at the end, with the number of windows that could not be read; if it is nil, these are
// the error.
func (s *Store) readAll(ctx context.Context, tenant string, parts []store.Query, apart bool, newTaker func(*shelf) taker, done func(damaged int) error) error {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return err
	}
	defer db.release()
	shelf := s.shelf(db, t)
	defer shelf.putBack()
	work := newWork(t, parts, apart)
	readers := make([]*seriesReader, min(runtime.GOMAXPROCS(0), max(len(work.series), 1)))
	failed := make([]error, len(readers))
	var reading sync.WaitGroup
	for i := range readers {
		r := &seriesReader{take: newTaker(shelf)}
		for _, q := range parts {
			r.parts = append(r.parts, part{cursor: newCursor(s.connection.log, db, t, q)})
		}
		readers[i] = r
		reading.Go(func() { failed[i] = errors.Join(r.work(ctx, work), r.close()) })
	}
	reading.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	damaged := 0
	for _, r := range readers {
		damaged += r.damaged
	}
	if done == nil {
		return shelf.damage(damaged).Err()
	}
	return done(damaged)
}

// work is series that are to be added up. Those of one service and one group lie
// together, and in it those of one instance, if these are told apart: sums go from
// one to another by going over all stacks.
type work struct {
	series []grouped
	next   atomic.Int64
}

// grouped is a series in a part of a selection.
type grouped struct {
	part     int
	group    int
	of       *series
	instance string // see store.Instance; "": they are not told apart
}

func newWork(t *tenant, parts []store.Query, apart bool) *work {
	w := &work{}
	for i, q := range parts {
		for _, of := range t.chosen(q) {
			g := grouped{part: i, group: of.group, of: of}
			if apart {
				g.instance = store.Instance(of.labels)
			}
			w.series = append(w.series, g)
		}
	}
	slices.SortFunc(w.series, func(a, b grouped) int {
		return cmp.Or(cmp.Compare(a.of.service, b.of.service), cmp.Compare(a.group, b.group), cmp.Compare(a.instance, b.instance))
	})
	return w
}

// part is what a reader knows of a part of a selection.
type part struct {
	cursor *cursor
	days   []uint32 // nil: not looked for yet
}

// seriesReader gives the windows of some series to a taker.
type seriesReader struct {
	parts   []part
	take    taker
	damaged int
}

// work reads one series after another.
func (r *seriesReader) work(ctx context.Context, w *work) error {
	for {
		n := int(w.next.Add(1)) - 1
		if n >= len(w.series) {
			return nil
		}
		if err := r.read(ctx, &w.series[n]); err != nil {
			return err
		}
	}
}

func (r *seriesReader) close() (err error) {
	for _, p := range r.parts {
		err = errors.Join(err, p.cursor.close())
		r.damaged += p.cursor.damaged
	}
	return err
}

func (r *seriesReader) read(ctx context.Context, g *grouped) (err error) {
	p := &r.parts[g.part]
	if p.days == nil {
		if p.days, err = p.cursor.days(); err != nil {
			return err
		}
	}
	return r.take(ctx, p, g)
}

// series gives the windows of a series. Those that give calls errDamaged are reported.
func (p *part) series(ctx context.Context, g *grouped, give func(*found) error) error {
	return p.cursor.series(ctx, p.days, g.of, func(f *found) error {
		err := give(f)
		if errors.Is(err, errDamaged) {
			p.cursor.report(g.of, f.start, err)
			return nil
		}
		return err
	})
}
