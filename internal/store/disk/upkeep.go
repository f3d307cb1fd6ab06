package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// Statistics say what a store holds, and what of the disk it takes.
type Statistics struct {
	Bytes   uint64 // of the disk, by all of it
	Tenants []TenantStatistics
}

// TenantStatistics are those of one tenant. Bytes are of its Usage.
type TenantStatistics struct {
	Name              string
	Series, Places    int
	Bytes, Quota      int64 // all that it takes, and may take; a quota of 0: any
	Stacks, Recent    int64 // of Bytes: stacks, places, names and series; not told apart yet
	Levels            []LevelStatistics
	Records           RecordStatistics
	Stale             int // steps that are to be added up
	Dictionaries      int
	Calls             int // of all dictionaries
	LargestDictionary string
}

// LevelStatistics are those of the windows of a level.
type LevelStatistics struct {
	Level       store.Level
	Windows     int
	Bytes       int64
	First, Last time.Time // days; zero where there are none
	Dropped     time.Time // windows before it were; zero: none
}

// RecordStatistics are those of records.
type RecordStatistics struct {
	Count int
	Bytes int64
}

// Stat counts what the store holds. It reads every key.
func (s *Store) Stat(ctx context.Context) (*Statistics, error) {
	names, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	db, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer db.release()
	out := &Statistics{Bytes: db.Metrics().DiskSpaceUsage()}
	for _, name := range names {
		t, err := s.tenant(db, name)
		if err != nil {
			return nil, err
		}
		of, err := s.statTenant(ctx, db, t)
		if err != nil {
			return nil, err
		}
		out.Tenants = append(out.Tenants, *of)
	}
	return out, nil
}

func (s *Store) statTenant(ctx context.Context, db *database, t *tenant) (*TenantStatistics, error) {
	usage, err := s.Usage(ctx, t.name)
	if err != nil {
		return nil, err
	}
	dropped, err := s.Dropped(ctx, t.name)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	of := &TenantStatistics{Name: t.name, Series: len(t.numbers), Places: t.places.size(), Stale: len(t.stale),
		Bytes: usage.Bytes(), Quota: s.options.Quotas.Of(t.name).Bytes, Stacks: usage.Stacks, Recent: usage.Recent}
	t.mu.Unlock()
	most := 0
	for _, service := range t.services() {
		calls := 0
		err := db.walk(newKey(spaceCalls, t.name).text(service), func(_, value []byte) error {
			more, _ := decodeCalls(value, calls)
			calls += len(more)
			return ctx.Err()
		}, leftOut)
		if err != nil {
			return nil, err
		}
		if calls > 0 {
			of.Dictionaries++
			of.Calls += calls
		}
		if calls > most {
			most, of.LargestDictionary = calls, service
		}
	}
	for _, level := range levels {
		l := LevelStatistics{Level: level, Bytes: usage.Levels[level].Bytes, Dropped: dropped[level]}
		if err := db.statLevel(ctx, t.name, &l); err != nil {
			return nil, err
		}
		of.Levels = append(of.Levels, l)
	}
	of.Records.Bytes = usage.Records.Bytes
	return of, db.walk(newKey(spaceRecords, t.name), func(_, _ []byte) error {
		of.Records.Count++
		return ctx.Err()
	}, leftOut)
}

// services lists those that series are of.
func (t *tenant) services() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.series {
		if s != nil {
			names = append(names, s.service)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (d *database) statLevel(ctx context.Context, tenant string, l *LevelStatistics) error {
	return d.walk(levelKey(tenant, l.Level), func(rest, _ []byte) error {
		if len(rest) >= 4 {
			r := codec.Reader{Data: rest}
			at := dayTime(r.Fixed())
			if l.Windows == 0 {
				l.First = at
			}
			l.Last = at
			l.Windows++
		}
		return ctx.Err()
	}, leftOut)
}

// leftOut has what is damaged not be counted: who checks the store tells of it.
func leftOut(error) {}

// Check reads all that the store holds, and tells of each thing that is not what
// was written. Windows may come meanwhile.
func (s *Store) Check(ctx context.Context, tell func(problem string)) error {
	db, err := s.acquire()
	if err != nil {
		return err
	}
	defer db.release()
	names, whole, err := db.tenants()
	if err != nil {
		return err
	}
	if !whole {
		tell("the list of tenants is damaged: those with windows that can be read are checked")
	}
	for _, name := range names {
		t, err := s.tenant(db, name)
		if err != nil {
			return err
		}
		for _, said := range t.problems.said {
			tell(fmt.Sprintf("tenant %q: %s", name, said))
		}
		for _, service := range t.services() {
			if err := s.checkService(ctx, db, t, service, tell); err != nil {
				return err
			}
		}
		if err := (&recordCursor{db: db, tenant: t}).check(ctx, tell); err != nil {
			return err
		}
	}
	return nil
}

// checkService decodes each window of a service; its stacks alone are in memory.
func (s *Store) checkService(ctx context.Context, db *database, t *tenant, service string, tell func(string)) error {
	shelf := s.shelf(db, t)
	defer shelf.putBack()
	stacks, err := shelf.take(service)
	if err != nil {
		return err
	}
	for _, said := range stacks.problems.said {
		tell(fmt.Sprintf("tenant %q, service %q: %s", t.name, service, said))
	}
	for _, level := range levels {
		c := newCursor(s.connection.log, db, t, store.Query{Level: level, To: lastStart})
		c.reported = func(of *series, at time.Time, err error) {
			tell(fmt.Sprintf("tenant %q, level %s: windows of %s from %s on: %v", t.name, level, of.written, at.UTC().Format(time.DateTime), err))
		}
		if err := errors.Join(c.check(ctx, service, stacks), c.close()); err != nil {
			return err
		}
	}
	return nil
}

// check decodes each window of a service's series.
func (c *cursor) check(ctx context.Context, service string, stacks *dictionary) error {
	// A query without a service is of all.
	own := slices.DeleteFunc(c.tenant.chosen(c.query), func(of *series) bool { return of.service != service })
	return c.each(ctx, own, func(of *series, f *found) error {
		w, ok := codec.DecodeWindow(f.data)
		if !ok || !below(&w, stacks.size()) {
			c.report(of, f.start, errDamaged)
		}
		return nil
	})
}
