package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/store"
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
	of := &TenantStatistics{Name: t.name, Series: len(t.series), Places: t.places.size(), Stale: len(t.stale),
		Bytes: usage.Bytes(), Quota: s.options.Quotas.Of(t.name).Bytes, Stacks: usage.Stacks, Recent: usage.Recent}
	t.mu.Unlock()
	most := 0
	for _, service := range t.services() {
		calls := 0
		err := db.each(newKey(spaceCalls, t.name).text(service), func(_, value []byte) error {
			more, ok := decodeCalls(value, calls)
			if !ok {
				return damaged("stacks", t.name)
			}
			calls += len(more)
			return ctx.Err()
		})
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
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		l := LevelStatistics{Level: level, Bytes: usage.Levels[level].Bytes, Dropped: dropped[level]}
		if err := db.statLevel(ctx, t.name, &l); err != nil {
			return nil, err
		}
		of.Levels = append(of.Levels, l)
	}
	return of, nil
}

// services lists those that series are of.
func (t *tenant) services() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.series {
		names = append(names, t.series[i].service)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (d *database) statLevel(ctx context.Context, tenant string, l *LevelStatistics) error {
	prefix := levelKey(tenant, l.Level)
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return err
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if rest := it.Key()[len(prefix):]; len(rest) >= 4 {
			r := reader{data: rest}
			at := dayTime(r.fixed())
			if l.Windows == 0 {
				l.First = at
			}
			l.Last = at
			l.Windows++
		}
		err = ctx.Err()
	}
	return errors.Join(err, it.Error(), it.Close())
}

// Check reads all that the store holds, and gives a line for each thing that is
// not what was written.
func (s *Store) Check(ctx context.Context) (problems []string, err error) {
	names, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	db, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer db.release()
	for _, name := range names {
		t, err := s.tenant(db, name)
		if errors.Is(err, errDamaged) || pebble.IsCorruptionError(err) {
			problems = append(problems, err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := s.checkTenant(ctx, db, t)
		problems = append(problems, more...)
		if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

func (s *Store) checkTenant(ctx context.Context, db *database, t *tenant) (problems []string, err error) {
	shelf := s.shelf(db, t)
	defer shelf.putBack()
	broken := map[string]bool{} // services whose stacks are damaged
	for _, service := range t.services() {
		if _, err := shelf.take(service); errors.Is(err, errDamaged) || pebble.IsCorruptionError(err) {
			broken[service] = true
			problems = append(problems, fmt.Sprintf("service %q: %v", service, err))
		} else if err != nil {
			return problems, err
		}
	}
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		c := s.cursor(db, t, store.Query{Level: level, To: lastStart})
		c.reported = func(of *series, at time.Time, err error) {
			problems = append(problems, fmt.Sprintf("level %s: windows of %s from %s on: %v", level, of.written, at.UTC().Format(time.DateTime), err))
		}
		err := errors.Join(c.check(ctx, shelf, broken), c.close())
		if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

// check decodes each window.
func (c *cursor) check(ctx context.Context, shelf *shelf, broken map[string]bool) error {
	days, err := c.days()
	if err != nil {
		return err
	}
	numbers, all := c.tenant.chosen(c.query)
	for _, n := range numbers {
		of := &all[n]
		if broken[of.service] {
			continue
		}
		err := c.series(ctx, days, n, of, func(f *found) error {
			d, err := shelf.take(of.service)
			if err != nil {
				return err
			}
			w, ok := decodeWindow(f.data)
			if !ok || !below(w.Rows.Stack, d.size()) {
				c.report(of, f.start, errDamaged)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
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
