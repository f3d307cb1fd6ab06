// Package disk keeps windows in a directory: Pebble, one database for one server.
//
//	Put     stacks -> calls of a service's dictionary (dictionary.go), rows sorted by them (window.go)
//	        -> a batch that waits a moment for others, is synced once, and answers all (commit.go)
//	Merge   the keys of each series in a span of time -> columns added up by call (merge.go)
//	        -> the forest of what has samples
//
// keys.go draws the database. What of it is damaged is left out, reported, and
// the rest served.
package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Options say where and how to keep windows. Dir is needed.
type Options struct {
	Dir     string
	Reserve uint64 // bytes of the disk that are left free; 0: 64 MB
	Log     *slog.Logger
}

// Store is an open database; see store.Store.
type Store struct {
	options Options
	log     *slog.Logger
	db      *pebble.DB
	commits chan *commit
	done    chan struct{} // the committer has ended
	cache   *pebble.Cache

	mu      sync.RWMutex // guards all below
	closed  bool
	tenants map[string]*tenant
}

// tenant is what is known of one: all of its places and series, and of its
// dictionaries those that were used.
type tenant struct {
	name   string
	places *places

	mu           sync.Mutex // guards all below
	dictionaries map[string]*dictionary
	series       []series
	numbers      map[string]uint32 // of series, by how they are written
	saved        int               // series that are in the database
}

type series struct {
	labels  profile.Labels
	written string
	service string
}

const (
	cacheBytes    = 32 << 20
	blockBytes    = 128 << 10
	memtableBytes = 16 << 20
)

// Open opens a database, or makes it.
func Open(o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Reserve == 0 {
		o.Reserve = 64 << 20
	}
	s := &Store{options: o, log: o.Log, commits: make(chan *commit), done: make(chan struct{}), tenants: map[string]*tenant{},
		cache: pebble.NewCache(cacheBytes)}
	defer s.cache.Unref()
	db, err := pebble.Open(o.Dir, s.pebbleOptions())
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", o.Dir, err)
	}
	s.db = db
	go s.commitAll()
	return s, nil
}

func (s *Store) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		Cache: s.cache, MemTableSize: memtableBytes, FormatMajorVersion: pebble.FormatNewest,
		Logger: quiet{s.log},
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	for i := range o.Levels {
		o.Levels[i].BlockSize = blockBytes
	}
	return o
}

// quiet passes on what Pebble has to say: its progress is of no use to users.
type quiet struct{ log *slog.Logger }

func (q quiet) Infof(string, ...any) {}
func (q quiet) Errorf(format string, args ...any) {
	q.log.Error("store", "error", fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble cannot go on: what was acknowledged is on disk.
func (q quiet) Fatalf(format string, args ...any) {
	panic("the store's database cannot go on: " + fmt.Sprintf(format, args...))
}

// Close ends what is being committed, and closes the database.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.commits)
	<-s.done
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// tenant finds a tenant, and reads what the database holds of it when it is
// first asked for.
func (s *Store) tenant(name string) (*tenant, error) {
	s.mu.RLock()
	t, closed := s.tenants[name], s.closed
	s.mu.RUnlock()
	if closed {
		return nil, store.ErrClosed
	}
	if t != nil {
		return t, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[name]; t != nil {
		return t, nil
	}
	t = &tenant{name: name, places: newPlaces(), dictionaries: map[string]*dictionary{}, numbers: map[string]uint32{}}
	if err := s.restorePlaces(t); err != nil {
		return nil, err
	}
	if err := s.restoreSeries(t); err != nil {
		return nil, err
	}
	s.tenants[name] = t
	return t, nil
}

// each gives every key and value that begin with a prefix.
func (s *Store) each(prefix key, give func(rest, value []byte) error) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return err
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		var value []byte
		if value, err = it.ValueAndErr(); err == nil {
			err = give(it.Key()[len(prefix):], value)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// errDamaged says that what the database holds is not what was written.
var errDamaged = errors.New("damaged")

func damaged(what string, tenant string) error {
	return fmt.Errorf("%s of tenant %q: %w: restore a backup, or start with an empty directory", what, tenant, errDamaged)
}

func (s *Store) restorePlaces(t *tenant) error {
	p := t.places
	err := s.each(newKey(spacePlaces, t.name), func(rest, value []byte) error {
		r := reader{data: value}
		for len(r.data) > 0 && !r.bad {
			l := r.location()
			hash := l.Hash()
			p.index[hash] = uint32(len(p.list))
			p.list = append(p.list, profile.Place{Hash: hash, Location: l})
		}
		if r.bad || len(rest) != 4 {
			return damaged("places", t.name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.saved = len(p.list)
	return s.each(newKey(spaceNames, t.name), func(rest, value []byte) error {
		at, r := reader{data: rest}, reader{data: value}
		number, frames := at.fixed(), r.frames()
		if at.bad || r.bad || int64(number) >= int64(len(p.list)) {
			return damaged("names", t.name)
		}
		p.list[number].Names = frames
		return nil
	})
}

func (s *Store) restoreSeries(t *tenant) error {
	err := s.each(newKey(spaceSeries, t.name), func(_, value []byte) error {
		r := reader{data: value}
		labels := r.labels()
		if r.bad {
			return damaged("series", t.name)
		}
		t.addSeries(labels)
		return nil
	})
	t.saved = len(t.series)
	return err
}

// addSeries finds or adds a series. The tenant is locked.
func (t *tenant) addSeries(labels profile.Labels) uint32 {
	written := labels.String()
	number, ok := t.numbers[written]
	if !ok {
		number = uint32(len(t.series))
		t.numbers[written] = number
		t.series = append(t.series, series{maps.Clone(labels), written, labels[store.ServiceLabel]})
	}
	return number
}

// dictionary finds the dictionary of a service. The tenant is locked.
func (s *Store) dictionary(t *tenant, service string) (*dictionary, error) {
	if d := t.dictionaries[service]; d != nil {
		return d, nil
	}
	d := newDictionary(service)
	var calls []call
	err := s.each(newKey(spaceCalls, t.name).text(service), func(_, value []byte) error {
		more, ok := decodeCalls(value, len(calls))
		if !ok {
			return damaged("stacks", t.name)
		}
		calls = append(calls, more...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !d.restore(t.places, calls) {
		return nil, damaged("stacks", t.name)
	}
	t.dictionaries[service] = d
	return d, nil
}

// chosen lists the series that a query may mean, by their numbers.
func (t *tenant) chosen(q store.Query) (numbers []uint32, all []series) {
	t.mu.Lock()
	all = t.series
	t.mu.Unlock()
	for n, s := range all {
		if (q.Service == "" || s.service == q.Service) && (q.Match == nil || q.Match(s.labels)) {
			numbers = append(numbers, uint32(n))
		}
	}
	return numbers, all
}

// Series lists the series that have windows; see store.Store.
func (s *Store) Series(ctx context.Context, tenant string, q store.Query) ([]profile.Labels, error) {
	t, err := s.tenant(tenant)
	if err != nil {
		return nil, err
	}
	numbers, all := t.chosen(q)
	slices.SortFunc(numbers, func(a, b uint32) int {
		if all[a].written < all[b].written {
			return -1
		}
		return 1
	})
	var found []profile.Labels
	errFound := errors.New("one is enough")
	for _, n := range numbers {
		err := s.windows(ctx, t, q, n, all[n], func([]byte, window, time.Time, string, profile.Run) error { return errFound })
		if errors.Is(err, errFound) {
			found = append(found, maps.Clone(all[n].labels))
		} else if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// window is one as it lies in the database; the bytes are not to be kept.
type window []byte

// windows gives the windows of a series that a query chooses, by time.
func (s *Store) windows(ctx context.Context, t *tenant, q store.Query, number uint32, of series,
	give func(key []byte, w window, start time.Time, task string, run profile.Run) error) error {
	last := q.To.Add(-1)
	for d := days(q.From); d <= days(last) && q.From.Before(q.To); d++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		prefix := seriesKey(t.name, q.Level, d, of.service, number)
		low, high := prefix, prefix.after()
		if d == days(q.From) {
			low = append(key(nil), prefix...).start(q.From)
		}
		if d == days(last) {
			high = append(key(nil), prefix...).start(q.To)
		}
		it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: low, UpperBound: high})
		if err != nil {
			return err
		}
		for valid := it.First(); valid && err == nil; valid = it.Next() {
			start, task, run, ok := parseStart(it.Key(), len(prefix))
			var value []byte
			if value, err = it.ValueAndErr(); err != nil || !ok || q.Task != "" && task != q.Task {
				continue
			}
			err = give(it.Key(), value, start, task, run)
		}
		if err = errors.Join(err, it.Error(), it.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Name keeps late names; see store.Store.
func (s *Store) Name(ctx context.Context, tenant string, named []profile.Place) error {
	t, err := s.tenant(tenant)
	if err != nil {
		return err
	}
	for i := range named {
		t.places.rename(&named[i])
	}
	return s.commit(ctx, &commit{tenant: t})
}

// Drop forgets whole days; see store.Store.
func (s *Store) Drop(_ context.Context, tenant string, level store.Level, before time.Time) error {
	t, err := s.tenant(tenant)
	if err != nil {
		return err
	}
	first := levelKey(t.name, level)
	end := append(key(nil), first...).number(days(before))
	if err := s.db.DeleteRange(first, end, pebble.Sync); err != nil {
		return fmt.Errorf("drop windows: %w", err)
	}
	return nil
}
