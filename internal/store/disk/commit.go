package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// A commit waits for others so long, or until there is so much of it.
const (
	commitWait  = 5 * time.Millisecond
	commitBytes = 1 << 20
)

// commit is what somebody waits for to be on disk: windows, and all that the
// tenant's tables hold and the database does not.
type commit struct {
	tenant *tenant
	pairs  [][2][]byte
	bytes  int
	done   chan error
}

// Put keeps a batch; see store.Store.
func (s *Store) Put(ctx context.Context, tenant string, level store.Level, b *store.Batch) error {
	t, err := s.tenant(tenant)
	if err != nil {
		return err
	}
	r := resolver{store: s, tenant: t, batch: b, services: map[string][]uint32{}}
	c := &commit{tenant: t}
	for i := range b.Windows {
		w := &b.Windows[i]
		calls, err := r.calls(w)
		if err != nil {
			return err
		}
		if len(r.unknown) > 0 {
			continue // all that is unknown is told at once
		}
		t.mu.Lock()
		number := t.addSeries(w.Series)
		t.mu.Unlock()
		key, value := windowKey(t.name, level, w.Series[store.ServiceLabel], number, &w.Head, w.Run), encodeWindow(w, calls)
		c.pairs = append(c.pairs, [2][]byte{key, value})
		c.bytes += len(key) + len(value)
	}
	if len(r.unknown) > 0 {
		return &store.UnknownError{Stacks: r.unknown}
	}
	return s.commit(ctx, c)
}

// resolver finds the calls of a batch's stacks, once for each service.
type resolver struct {
	store    *Store
	tenant   *tenant
	batch    *store.Batch
	index    map[profile.Hash]int // of the batch's forest
	services map[string][]uint32  // by stack: its call, or unresolved
	unknown  []profile.Hash
}

const unresolved = ^uint32(0)

// calls gives the call of each of a window's rows.
func (r *resolver) calls(w *store.Window) ([]uint32, error) {
	service := w.Series[store.ServiceLabel]
	r.tenant.mu.Lock()
	d, err := r.store.dictionary(r.tenant, service)
	r.tenant.mu.Unlock()
	if err != nil {
		return nil, err
	}
	known := r.services[service]
	if known == nil {
		known = slices.Repeat([]uint32{unresolved}, len(r.batch.Stacks))
		r.services[service] = known
	}
	calls := make([]uint32, len(w.Rows.Stack))
	for i, stack := range w.Rows.Stack {
		if known[stack] == unresolved {
			known[stack] = r.resolve(d, r.batch.Stacks[stack])
		}
		calls[i] = known[stack]
	}
	return calls, nil
}

func (r *resolver) resolve(d *dictionary, h profile.Hash) uint32 {
	if number, ok := d.find(h); ok {
		return number
	}
	if r.index == nil && r.batch.Forest != nil {
		r.index = r.batch.Forest.Index()
	}
	leaf, ok := r.index[h]
	if !ok {
		if !slices.Contains(r.unknown, h) {
			r.unknown = append(r.unknown, h)
		}
		return unresolved
	}
	return d.learn(r.tenant.places, r.batch.Forest, leaf)
}

// commit waits until it is on disk.
func (s *Store) commit(ctx context.Context, c *commit) error {
	c.done = make(chan error, 1)
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return store.ErrClosed
	}
	select {
	case s.commits <- c:
	case <-ctx.Done():
		s.mu.RUnlock()
		return ctx.Err()
	}
	s.mu.RUnlock()
	return <-c.done
}

// commitAll writes what is waiting, all of it with one sync.
func (s *Store) commitAll() {
	defer close(s.done)
	for c := range s.commits {
		group, bytes := []*commit{c}, c.bytes
		wait := time.NewTimer(commitWait)
	gather:
		for bytes < commitBytes {
			select {
			case more, ok := <-s.commits:
				if !ok {
					break gather
				}
				group = append(group, more)
				bytes += more.bytes
			case <-wait.C:
				break gather
			}
		}
		wait.Stop()
		err := s.write(group)
		for _, c := range group {
			c.done <- err
		}
	}
}

func (s *Store) write(group []*commit) error {
	if err := s.room(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close() // it was applied, or is of no use
	var saved []func()
	tenants := map[*tenant]bool{}
	for _, c := range group {
		if !tenants[c.tenant] {
			tenants[c.tenant] = true
			done, err := c.tenant.save(b)
			if err != nil {
				return fmt.Errorf("%w: %w", store.ErrFull, err)
			}
			saved = append(saved, done...)
		}
		for _, p := range c.pairs {
			if err := b.Set(p[0], p[1], nil); err != nil {
				return fmt.Errorf("%w: %w", store.ErrFull, err)
			}
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	for _, done := range saved {
		done()
	}
	return nil
}

// room refuses to write to a disk that is almost full: a database that fails in
// the middle of a write cannot go on.
func (s *Store) room() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.options.Dir, &fs); err != nil {
		return fmt.Errorf("%w: look at the disk of %q: %w", store.ErrFull, s.options.Dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < s.options.Reserve {
		return fmt.Errorf("%w: %d MB are left on the disk of %q, and %d MB must stay free", store.ErrFull, free>>20, s.options.Dir, s.options.Reserve>>20)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%w: the disk of %q is mounted read-only", store.ErrFull, s.options.Dir)
	}
	return nil
}

// save adds to a batch what the tables of a tenant hold and the database does
// not. What it gives is to be done once the batch is on disk. Tables only grow
// meanwhile; what comes later is in the next batch.
func (t *tenant) save(b *pebble.Batch) (done []func(), err error) {
	t.mu.Lock()
	dictionaries := make([]*dictionary, 0, len(t.dictionaries))
	for _, d := range t.dictionaries {
		dictionaries = append(dictionaries, d)
	}
	for n := t.saved; n < len(t.series); n++ {
		var w writer
		w.labels(t.series[n].labels, sortedNames(t.series[n].labels))
		err = errors.Join(err, b.Set(newKey(spaceSeries, t.name).number(uint32(n)), w, nil))
	}
	count := len(t.series)
	t.mu.Unlock()
	done = append(done, func() {
		t.mu.Lock()
		t.saved = count
		t.mu.Unlock()
	})
	// Calls before places: those of a call are there when it is.
	for _, d := range dictionaries {
		d.mu.Lock()
		calls, first := d.calls, d.saved
		d.mu.Unlock()
		if first == len(calls) {
			continue
		}
		err = errors.Join(err, b.Set(newKey(spaceCalls, t.name).text(d.service).number(uint32(first)), encodeCalls(calls[first:], first), nil))
		done = append(done, func() {
			d.mu.Lock()
			d.saved = len(calls)
			d.mu.Unlock()
		})
	}
	more, saveErr := t.places.save(b, t.name)
	return append(done, more), errors.Join(err, saveErr)
}

func (p *places) save(b *pebble.Batch, tenant string) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := len(p.list)
	if p.saved < count {
		var w writer
		for _, place := range p.list[p.saved:] {
			w.location(place.Location)
		}
		err = b.Set(newKey(spacePlaces, tenant).number(uint32(p.saved)), w, nil)
	}
	named := maps.Clone(p.named)
	for number := range named {
		var w writer
		w.frames(p.list[number].Names)
		err = errors.Join(err, b.Set(newKey(spaceNames, tenant).number(number), w, nil))
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.saved = count
		for number, names := range named {
			if p.named[number] == names { // else there are newer ones
				delete(p.named, number)
			}
		}
	}, err
}

func sortedNames(l profile.Labels) []string {
	names := make([]string, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
