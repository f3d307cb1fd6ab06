package disk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// A series is gone once no window is left of it at any level, nor anything of it in
// one that contains others, nor a record; a dictionary once no series of its service is left.
// The number of a series goes to another one, though not before the tenant is
// tidied again: who asks meanwhile for the one that is gone finds nothing.
//
// Numbers that a batch has found, and that are not written yet, are told by their
// generation. What is looked for is what was written until a new one began; what is
// put since then marks its series, and is not looked for.

// evidence is a day of a level of which a series has windows, or records: until that is
// dropped nobody looks again. The zero value is none.
type evidence struct {
	level store.Level
	day   uint32
}

// Tidy forgets what is gone; see store.Store.
func (s *Store) Tidy(ctx context.Context, tenant string) error {
	db, err := s.acquire()
	if err != nil {
		return err
	}
	err = s.tidy(ctx, db, tenant)
	db.release() // a commit that breaks it has to wait for all who hold it
	if err != nil {
		return fmt.Errorf("tidy the store: %w", err)
	}
	t, err := s.loaded(tenant)
	if err != nil || !t.tidied() {
		return err
	}
	return s.commit(ctx, &commit{tenant: t})
}

// tidied tells whether there is anything to write down.
func (t *tenant) tidied() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.dictionaries {
		d.mu.RLock()
		cleared := d.cleared
		d.mu.RUnlock()
		if cleared {
			return true
		}
	}
	return len(t.rewritten) > 0
}

func (s *Store) tidy(ctx context.Context, db *database, tenant string) error {
	t, err := s.tenant(db, tenant)
	if err != nil {
		return err
	}
	t.rolling.Lock()
	defer t.rolling.Unlock()
	unused, err := db.unused(t)
	if err != nil {
		return err
	}
	suspects := s.suspects(t)
	if len(suspects) > 0 {
		if err := db.search(ctx, t, suspects); err != nil {
			if isDamage(err) { // what cannot be read may be theirs
				s.connection.log.Warn("windows are damaged, and no series is given back", "tenant", tenant, "error", err)
				return nil
			}
			return err
		}
	}
	t.encoding.Lock()
	defer t.encoding.Unlock()
	t.loading.Lock()
	defer t.loading.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveBack(suspects)
	for _, service := range unused {
		t.clear(service, &s.calls)
	}
	return nil
}

// suspects begins a new generation, and gives the series that may be gone, by their
// service and number.
func (s *committer) suspects(t *tenant) map[string]map[uint32]*series {
	s.applying.Lock() // what is being applied is written by then, and found
	defer s.applying.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generation++
	all := map[string]map[uint32]*series{}
	for _, of := range t.series {
		if of == nil || of.last.day > 0 && of.last.day >= t.dropped[of.last.level] {
			continue
		}
		of.admitted = false
		if all[of.service] == nil {
			all[of.service] = map[uint32]*series{}
		}
		all[of.service][of.number] = of
	}
	return all
}

// search takes those away that have windows or records. Of the levels it begins with the one
// that has the fewest, and of the days with the last.
func (d *database) search(ctx context.Context, t *tenant, suspects map[string]map[uint32]*series) error {
	for _, level := range slices.Backward(levels) {
		list, damaged, err := d.daysOf(t, level)
		if err == nil && damaged > 0 {
			err = errDamaged
		}
		if err != nil {
			return err
		}
		for _, day := range slices.Backward(list) {
			if err := d.searchDay(ctx, levelKey(t.name, level).number(day), suspects, evidence{level, day}); err != nil {
				return err
			}
		}
	}
	if err := (&recordCursor{db: d, tenant: t}).exclude(suspects); err != nil {
		return err
	}
	return d.searchClaims(ctx, t, suspects)
}

// searchClaims takes those away that are contained in others' windows.
func (d *database) searchClaims(ctx context.Context, t *tenant, suspects map[string]map[uint32]*series) error {
	t.mu.Lock()
	list, lost := slices.Collect(maps.Keys(t.claimed)), t.anyClaimed
	t.mu.Unlock()
	if lost {
		return errDamaged
	}
	for _, day := range list {
		prefix := claimKey(levelKey(t.name, store.Raw)).number(day)
		if err := d.searchDay(ctx, prefix, suspects, evidence{store.Raw, day}); err != nil {
			return err
		}
	}
	return nil
}

// searchDay takes those away that have a key under a prefix. It looks for each of
// them behind the last one that it found, and so skips what nobody asks for.
func (d *database) searchDay(ctx context.Context, prefix key, suspects map[string]map[uint32]*series, of evidence) error {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return err
	}
	defer it.Close() // its error is asked for
	at := func(service string, number uint32) key {
		return append(key(nil), prefix...).text(service).number(number)
	}
	for _, service := range slices.SortedFunc(maps.Keys(suspects), inKeys) {
		for _, number := range slices.Sorted(maps.Keys(suspects[service])) {
			k := at(service, number)
			if !it.Valid() || string(it.Key()) < string(k) {
				if !it.SeekGE(k) {
					return it.Error()
				}
			}
			if strings.HasPrefix(string(it.Key()), string(k)) {
				suspects[service][number].last = of
				delete(suspects[service], number)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return it.Error()
}

// inKeys orders texts as keys do.
func inKeys(a, b string) int { return strings.Compare(string(key{}.text(a)), string(key{}.text(b))) }

// giveBack has the numbers of series be free that nobody found. The tenant is locked.
func (t *tenant) giveBack(gone map[string]map[uint32]*series) {
	t.free, t.resting = append(t.free, t.resting...), nil
	for _, numbers := range gone {
		for number, of := range numbers {
			if of.admitted {
				continue
			}
			delete(t.numbers, keptLabels(of.labels))
			if of.counts {
				t.counted--
			}
			t.series[number] = nil
			t.resting = append(t.resting, number)
			t.rewritten = append(t.rewritten, number)
		}
	}
}

// unused lists services that have a dictionary, and no series. Of those whose
// series were lost nobody knows it.
func (d *database) unused(t *tenant) (services []string, err error) {
	if t.problems.count > 0 {
		return nil, nil
	}
	used := map[string]bool{}
	for _, service := range t.services() {
		used[service] = true
	}
	prefix := newKey(spaceCalls, t.name)
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return nil, err
	}
	for valid := it.First(); valid; {
		r := codec.Reader{Data: it.Key()[len(prefix):]}
		service := r.Text()
		if r.Bad {
			break
		}
		if !used[service] {
			services = append(services, service)
		}
		valid = it.SeekGE(append(key(nil), prefix...).text(service).after())
	}
	err = it.Error()
	if closing := it.Close(); err == nil {
		err = closing
	}
	if isDamage(err) { // those that were found are whole all the same
		err = nil
	}
	return services, err
}

// clear has a service begin with no stacks, unless it has series again, or somebody
// is reading it. The tenant is locked, and no dictionary is being loaded.
func (t *tenant) clear(service string, loaded *atomic.Int64) {
	for _, of := range t.series {
		if of != nil && of.service == service {
			return
		}
	}
	d := t.dictionaries[service]
	if d != nil {
		d.mu.RLock()
		defer d.mu.RUnlock()
		if d.users > 0 || d.cleared {
			return
		}
		loaded.Add(-int64(len(d.calls)))
	}
	t.dictionaries[service] = &dictionary{service: service, loaded: loaded, cleared: true}
}
