// Package disk keeps windows and records in a directory: Pebble, one database for one server.
//
//	Put     stacks -> calls of a service's dictionary (dictionary.go), rows sorted by them (window.go)
//	        -> a batch that waits a moment for others, is synced once, and answers all (commit.go)
//	Merge   the keys of each series in a span of time (cursor.go) -> columns added up by call (merge.go)
//	        -> the forest of what has samples (forest.go)
//
// keys.go draws the database. What of it is damaged is left out, reported, and the
// rest served: walk.go reads around it, restore.go has what lies behind it keep
// its numbers.
package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// Options say where and how to keep windows. Dir is needed.
type Options struct {
	Dir     string
	Reserve uint64 // bytes of the disk that are left free; 0: 64 MB
	Calls   int64  // of dictionaries in memory, about 60 bytes each; 0: 8 million
	Quotas  store.Quotas
	Rules   refine.Rules     // of contexts
	Account *cputime.Account // what the database's own work takes is charged here; nil: nowhere
	Log     *slog.Logger
	// ReadOnly has nothing be written, not even by opening: of a backup.
	ReadOnly bool

	fs    vfs.FS // nil: the system's
	block int    // bytes of a block of a table; 0: as many as suit
}

// Store is an open database; see store.Store.
type Store struct {
	records
	*connection
	*registry
	*committer
	puts atomic.Uint64 // batches that came
}

// DefaultReserve is how much of a disk a store leaves free unless Options say otherwise.
const DefaultReserve = 64 << 20

// Open opens a database, or makes it.
func Open(o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Reserve == 0 {
		o.Reserve = DefaultReserve
	}
	if o.Calls == 0 {
		o.Calls = 8 << 20
	}
	if o.fs == nil {
		o.fs = vfs.Default
	}
	c := &connection{options: o, log: o.Log, cache: pebble.NewCache(cacheBytes)}
	var err error
	if c.db, err = c.open(); err != nil {
		c.cache.Unref()
		return nil, err
	}
	if !o.ReadOnly && c.db.unwritable == nil {
		c.removeSnapshots()
		if err := c.room(o.Reserve); err != nil {
			o.Log.Error("the store takes no windows until there is more space", "error", err)
		}
	}
	s := &Store{connection: c, registry: newRegistry(o.Log, o.Calls), committer: newCommitter(c)}
	s.records = records{s}
	go func() {
		defer o.Account.Begin(cputime.Store)()
		s.commitAll()
	}()
	return s, nil
}

// Close ends what is being committed, waits for what is being read, and closes
// the database.
func (s *Store) Close() error {
	if !s.shut() {
		return nil
	}
	close(s.stop)
	<-s.done
	return s.close()
}

// Series lists the series that have windows; see store.Store.
func (s *Store) Series(ctx context.Context, tenant string, q store.Query) ([]profile.Labels, error) {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return nil, err
	}
	defer db.release()
	c := newCursor(s.connection.log, db, t, q)
	found, err := c.labels(ctx)
	if err = errors.Join(err, c.close()); err != nil {
		return nil, err
	}
	return found, t.damage(c.damaged).Err()
}

// errFound ends a search.
var errFound = errors.New("one window is enough")

func (c *cursor) labels(ctx context.Context) (labels []profile.Labels, err error) {
	days, err := c.days()
	if err != nil {
		return nil, err
	}
	for _, of := range c.tenant.ordered(c.query) {
		damaged := c.damaged
		err := c.series(ctx, days, of, func(f *found) error {
			if c.query.Kinds == nil {
				return errFound
			}
			list, ok := codec.Kinds(f.data)
			if !ok {
				c.report(of, f.start, errDamaged)
			} else if slices.ContainsFunc(list, c.query.Measures) {
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			labels = append(labels, maps.Clone(of.labels))
			c.damaged = damaged // what is damaged of it hides it from nobody
		} else if err != nil {
			return nil, err
		}
	}
	return labels, nil
}

// loaded finds a tenant. The database is not held any more: a commit that breaks
// it has to wait for all who hold it.
func (s *Store) loaded(tenant string) (*tenant, error) {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return nil, err
	}
	db.release()
	return t, nil
}

// acquireTenant holds the database, which the caller releases, and finds a tenant in it.
func (s *Store) acquireTenant(name string) (*database, *tenant, error) {
	db, err := s.acquire()
	if err != nil {
		return nil, nil, err
	}
	t, err := s.tenant(db, name)
	if err != nil {
		db.release()
		return nil, nil, err
	}
	return db, t, nil
}

// Unnamed lists places without names; see store.Store.
func (s *Store) Unnamed(_ context.Context, tenant string) ([]profile.Place, error) {
	t, err := s.loaded(tenant)
	if err != nil {
		return nil, err
	}
	return t.places.unnamed(), nil
}

// Name keeps late names; see store.Store.
func (s *Store) Name(ctx context.Context, tenant string, named []profile.Place) error {
	t, err := s.loaded(tenant)
	if err != nil {
		return err
	}
	for i := range named {
		t.places.rename(&named[i])
	}
	return s.commit(ctx, &commit{tenant: t})
}

// Drop forgets whole days; see store.Store.
func (s *Store) Drop(ctx context.Context, tenant string, level store.Level, before time.Time) error {
	return dropDays(ctx, s, tenant, level, before)
}

// dropDays deletes what is kept at a level of whole days.
func dropDays(ctx context.Context, s *Store, tenant string, level store.Level, before time.Time) error {
	t, err := s.loaded(tenant)
	if err != nil {
		return err
	}
	if before.Before(firstStart) {
		return nil
	}
	if before.After(lastStart) {
		before = lastStart
	}
	return (&drop{level, days(before)}).from(ctx, s, t)
}

// from deletes what is to be deleted from a tenant.
func (d *drop) from(ctx context.Context, s *Store, t *tenant) error {
	if err := s.commit(ctx, &commit{tenant: t, drop: d}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped[d.level] = max(t.dropped[d.level], d.before)
	t.usage.known = false
	return nil
}

// Dropped tells before when all was dropped; see store.Store.
func (s *Store) Dropped(_ context.Context, tenant string) (map[store.Level]time.Time, error) {
	t, err := s.loaded(tenant)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	dropped := map[store.Level]time.Time{}
	for _, level := range levels {
		if before, ok := t.dropped[level]; ok {
			dropped[level] = dayTime(before)
		}
	}
	return dropped, nil
}

// drop is days of a level that are to be forgotten, or of records.
type drop struct {
	level  store.Level
	before uint32
}

func (d *drop) add(b *pebble.Batch, tenant string) error {
	marked := b.Set(droppedKey(tenant, d.level), key(nil).number(d.before), nil)
	if d.level == recordLevel {
		first := newKey(spaceRecords, tenant)
		return errors.Join(b.DeleteRange(first, append(key(nil), first...).number(d.before), nil), marked)
	}
	first := levelKey(tenant, d.level)
	end := append(key(nil), first...).number(d.before)
	claims := b.DeleteRange(claimKey(first), claimKey(end), nil)
	return errors.Join(b.DeleteRange(first, end, nil), claims, marked)
}

// Tenants lists all that ever wrote; see store.Store.
func (s *Store) Tenants(context.Context) ([]string, error) {
	db, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer db.release()
	names, _, err := db.tenants()
	return names, err
}

// tenants lists all that ever wrote. Where series are damaged their tenants are
// found by their windows, if these can be read: else the list is not whole.
func (d *database) tenants() (names []string, whole bool, err error) {
	whole = true
	for _, space := range []byte{spaceSeries, spaceWindows, spaceRecords} {
		found, all, err := d.tenantsIn(space)
		if err != nil {
			return nil, false, err
		}
		names, whole = append(names, found...), whole && all
		if whole {
			return names, true, nil
		}
	}
	slices.Sort(names)
	return slices.Compact(names), false, nil
}

// tenantsIn lists those that have keys in a space.
func (d *database) tenantsIn(space byte) (names []string, whole bool, err error) {
	whole = true
	prefix := key{space}
	for from := prefix; from != nil; {
		more, last, err := d.tenantsFrom(prefix, from)
		names = append(names, more...)
		if err == nil || !isDamage(err) {
			return names, whole, err
		}
		whole = false
		if from, err = d.behind(prefix, last); err != nil {
			return nil, false, err
		}
	}
	return names, whole, nil
}

// tenantsFrom lists those behind a key, up to the first that cannot be read, and
// how far it came.
func (d *database) tenantsFrom(prefix, from key) (names []string, last key, err error) {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return nil, from, err
	}
	last = from
	for valid := it.SeekGE(from); valid; valid = it.SeekGE(last) {
		r := codec.Reader{Data: it.Key()[1:]}
		name := r.Text()
		if r.Bad {
			return names, append(key(nil), it.Key()...), errors.Join(errDamaged, it.Close())
		}
		names = append(names, name)
		last = newKey(prefix[0], name).after()
	}
	if err = it.Error(); err != nil {
		_ = it.Close() // its error is the one that is known
		return names, last, err
	}
	return names, last, it.Close()
}

// Backup makes a copy of the store as it is now, in a directory that must not be
// there yet. On the same disk it shares files with the store, and takes no room
// until these are replaced.
func (s *Store) Backup(dir string) error {
	db, err := s.acquire()
	if err != nil {
		return err
	}
	defer db.release()
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("back up to %q: it is there already", dir)
	}
	if err := db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("back up to %q: %w", dir, err)
	}
	return nil
}

// Snapshot makes a copy of the store as it is now, beside it, where it shares its
// files. All that Put has returned for is in it. done removes it; one that a
// crash has left is removed when the store is opened.
func (s *Store) Snapshot() (dir string, done func() error, err error) {
	if err := s.room(s.options.Reserve); err != nil { // files are shared, logs copied
		return "", nil, err
	}
	own, err := os.MkdirTemp(filepath.Dir(s.options.Dir), filepath.Base(s.options.Dir)+snapshotMark)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	done = func() error { return os.RemoveAll(own) }
	dir = filepath.Join(own, "store")
	if err := s.Backup(dir); err != nil {
		return "", nil, errors.Join(fmt.Errorf("%w: %w", store.ErrFull, err), done())
	}
	return dir, done, nil
}

// snapshotMark is in the names of copies, behind that of the store.
const snapshotMark = ".snapshot-"

// removeSnapshots removes what a crash has left: as long as it is there no file of
// the store is ever given back to the disk. The store is open, by nobody else.
func (s *connection) removeSnapshots() {
	beside := filepath.Dir(s.options.Dir)
	entries, err := os.ReadDir(beside)
	if err != nil {
		s.log.Error("look for snapshots that a crash has left", "error", err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filepath.Base(s.options.Dir)+snapshotMark) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(beside, e.Name())); err != nil {
			s.log.Error("remove a snapshot that a crash has left", "error", err)
		}
	}
}
