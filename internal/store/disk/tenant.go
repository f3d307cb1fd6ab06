package disk

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// tenant is what is known of one: all of its places and series, and of its
// dictionaries those that were used lately.
type tenant struct {
	name   string
	places *places

	mu           sync.Mutex // guards all below
	dictionaries map[string]*dictionary
	series       []series
	numbers      map[string]uint32      // of series, by how they are kept
	saved        int                    // series that are in the database
	stale        map[store.Step]bool    // steps that are to be added up; false: the database does not know
	busy         *store.Step            // it is being added up
	dropped      map[store.Level]uint32 // the day before which all was dropped
	claimed      map[uint32]bool        // days of which windows are contained in others
	usage        usage
	unreadable   failures // of dictionaries, by their services

	rolling sync.Mutex // held while a step is added up
}

type series struct {
	labels  profile.Labels
	written string
	service string
	group   int
}

// tenant finds a tenant, and reads what the database holds of it when it is
// first asked for.
func (s *Store) tenant(db *database, name string) (*tenant, error) {
	s.tenantsMu.Lock()
	defer s.tenantsMu.Unlock()
	if t := s.tenants[name]; t != nil {
		return t, nil
	}
	if err := s.unreadable.still(name); err != nil {
		return nil, err
	}
	t := &tenant{name: name, places: newPlaces(), dictionaries: map[string]*dictionary{}, numbers: map[string]uint32{},
		stale: map[store.Step]bool{}, dropped: map[store.Level]uint32{}, claimed: map[uint32]bool{}, unreadable: failures{}}
	for _, restore := range []func(*tenant) error{db.restorePlaces, db.restoreSeries, db.restoreSteps, db.restoreClaims} {
		if err := restore(t); err != nil {
			return nil, s.unreadable.add(name, err)
		}
	}
	s.tenants[name] = t
	return t, nil
}

// failures are of what is damaged, by its name. It is not read again for a while:
// Pebble looks for seconds for the bit of a damaged block that is wrong.
type failures map[string]failure

type failure struct {
	err  error
	when time.Time
}

const readAgainAfter = 30 * time.Second

func (f failures) add(name string, err error) error {
	if errors.Is(err, errDamaged) || pebble.IsCorruptionError(err) {
		f[name] = failure{err, time.Now()}
	}
	return err
}

func (f failures) still(name string) error {
	if kept, ok := f[name]; ok && time.Since(kept.when) < readAgainAfter {
		return kept.err
	}
	delete(f, name)
	return nil
}

// each gives every key and value that begin with a prefix.
func (d *database) each(prefix key, give func(rest, value []byte) error) error {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
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

// Tables are numbered as they lie. Where a part is missing all behind it would
// get the number of another, so each says which number it begins with.

func (d *database) restorePlaces(t *tenant) error {
	p := t.places
	err := d.each(newKey(spacePlaces, t.name), func(rest, value []byte) error {
		at, r := reader{data: rest}, reader{data: value}
		bad := len(rest) != 4 || int64(at.fixed()) != int64(len(p.list))
		for len(r.data) > 0 && !r.bad {
			l := r.location()
			hash := l.Hash()
			p.index[hash] = uint32(len(p.list))
			p.list = append(p.list, profile.Place{Hash: hash, Location: l})
		}
		if bad || r.bad || len(p.index) != len(p.list) {
			return damaged("places", t.name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.saved = len(p.list)
	return d.each(newKey(spaceNames, t.name), func(rest, value []byte) error {
		at, r := reader{data: rest}, reader{data: value}
		number, frames := at.fixed(), r.frames()
		if len(rest) != 4 || r.bad || len(r.data) > 0 || int64(number) >= int64(len(p.list)) {
			return damaged("names", t.name)
		}
		p.list[number].Names = frames
		return nil
	})
}

func (d *database) restoreSeries(t *tenant) error {
	err := d.each(newKey(spaceSeries, t.name), func(rest, value []byte) error {
		at, r := reader{data: rest}, reader{data: value}
		number, labels := at.fixed(), r.labels()
		if len(rest) != 4 || r.bad || len(r.data) > 0 || int64(number) != int64(len(t.series)) || t.addSeries(labels) != number {
			return damaged("series", t.name)
		}
		return nil
	})
	t.saved = len(t.series)
	return err
}

// addSeries finds or adds a series. The tenant is locked.
func (t *tenant) addSeries(labels profile.Labels) uint32 {
	var kept writer
	kept.labels(labels, sortedNames(labels))
	number, ok := t.numbers[string(kept)]
	if !ok {
		number = uint32(len(t.series))
		t.numbers[string(kept)] = number
		t.series = append(t.series, series{maps.Clone(labels), labels.String(), labels[store.ServiceLabel], store.Group(labels)})
	}
	return number
}

// admit finds or adds a series that windows came of. What is added up of them is
// not counted against the limit.
func (t *tenant) admit(labels profile.Labels, limit int) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.series) >= limit {
		var kept writer
		kept.labels(labels, sortedNames(labels))
		if _, ok := t.numbers[string(kept)]; !ok {
			return 0, &store.QuotaError{What: "series", Limit: int64(limit)}
		}
	}
	return t.addSeries(labels), nil
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

// shelf is the dictionaries of one tenant that somebody has taken. They stay
// loaded until it is put back: two copies of one would number apart.
type shelf struct {
	store  *Store
	db     *database
	tenant *tenant

	mu    sync.Mutex // guards all below
	taken map[string]*dictionary
}

func (s *Store) shelf(db *database, t *tenant) *shelf {
	return &shelf{store: s, db: db, tenant: t, taken: map[string]*dictionary{}}
}

// take gives the dictionary of a service.
func (f *shelf) take(service string) (*dictionary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.taken[service]; d != nil {
		return d, nil
	}
	t := f.tenant
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dictionaries[service]
	if d == nil {
		err := t.unreadable.still(service)
		if err != nil {
			return nil, err
		}
		if d, err = f.db.restoreCalls(t, service); err != nil {
			return nil, t.unreadable.add(service, err)
		}
		d.loaded = &f.store.calls
		d.loaded.Add(int64(len(d.calls)))
		t.dictionaries[service] = d
	}
	d.users++
	f.taken[service] = d
	return d, nil
}

// putBack ends the use of all that was taken.
func (f *shelf) putBack() {
	f.tenant.mu.Lock()
	for _, d := range f.taken {
		d.users--
		d.used = f.store.uses.Add(1)
	}
	f.tenant.mu.Unlock()
	f.store.unload()
}

func (d *database) restoreCalls(t *tenant, service string) (*dictionary, error) {
	dictionary := &dictionary{service: service}
	var calls []call
	err := d.each(newKey(spaceCalls, t.name).text(service), func(rest, value []byte) error {
		at := reader{data: rest}
		more, ok := decodeCalls(value, len(calls))
		if !ok || len(rest) != 4 || int64(at.fixed()) != int64(len(calls)) {
			return damaged("stacks", t.name)
		}
		calls = append(calls, more...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var leaves []uint32
	err = d.each(newKey(spaceLeaves, t.name).text(service), func(rest, value []byte) error {
		at := reader{data: rest}
		more, ok := decodeLeaves(value)
		if !ok || len(rest) != 4 || int64(at.fixed()) != int64(len(leaves)) {
			return damaged("stacks", t.name)
		}
		leaves = append(leaves, more...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !dictionary.restore(t.places, calls, leaves) {
		return nil, damaged("stacks", t.name)
	}
	return dictionary, nil
}

// unload drops dictionaries that nobody uses, those first that were not used for
// longest, while there are more calls than options allow.
func (s *Store) unload() {
	if s.calls.Load() <= s.options.Calls {
		return
	}
	s.tenantsMu.Lock()
	defer s.tenantsMu.Unlock()
	type idle struct {
		tenant     *tenant
		dictionary *dictionary
		used       uint64
	}
	var all []idle
	for _, t := range s.tenants {
		t.mu.Lock()
		for _, d := range t.dictionaries {
			if d.users == 0 {
				all = append(all, idle{t, d, d.used})
			}
		}
		t.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b idle) int { return cmp.Compare(a.used, b.used) })
	for _, i := range all {
		if s.calls.Load() <= s.options.Calls {
			return
		}
		i.tenant.forget(i.dictionary)
	}
}

// forget drops a dictionary if it can be read again.
func (t *tenant) forget(d *dictionary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == 0 && d.saved == len(d.calls) && d.savedLeaves == len(d.leaves) && t.dictionaries[d.service] == d {
		delete(t.dictionaries, d.service)
		d.loaded.Add(-int64(len(d.calls)))
	}
}
