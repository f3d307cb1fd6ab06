package disk

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// tenant is what is known of one: all of its places and series, and of its
// dictionaries those that were used lately.
type tenant struct {
	name   string
	places *places

	mu           sync.Mutex // guards all below
	dictionaries map[string]*dictionary
	series       []*series              // by number; nil: it was lost, or is gone
	numbers      map[string]uint32      // of series, by how they are kept
	counted      int                    // series that count against a quota
	free         []uint32               // numbers of series that are gone
	resting      []uint32               // and of those that somebody may still ask for
	rewritten    []uint32               // numbers whose series the database has as it was
	generation   uint64                 // of numbers: who has some of an older one finds them anew
	saved        int                    // series that are in the database
	tail         tail                   // of these
	stale        map[store.Step]bool    // steps that are to be added up; false: the database does not know
	busy         *store.Step            // it is being added up
	dropped      map[store.Level]uint32 // the day before which all was dropped
	claimed      map[uint32]bool        // days of which windows are contained in others
	anyClaimed   bool                   // or which days these are was lost
	usage        usage

	problems problems     // what of it is damaged, since it was read
	rolling  sync.Mutex   // held while a step is added up, or the tenant is tidied
	encoding sync.RWMutex // held for reading while numbers are found for a batch, for writing while some are given back
	loading  sync.Mutex   // held while a dictionary is read: two copies of one would number apart
}

// series is what windows came of. It does not change, but for what is guarded.
type series struct {
	number  uint32
	labels  profile.Labels
	written string
	service string
	group   int

	counts   bool     // windows came of it: it is not only added up; guarded by the tenant's mutex
	restored bool     // it was read, and whether it counts is not known
	admitted bool     // since the tenant was last tidied; guarded by the tenant's mutex
	last     evidence // that it has windows; guarded by the tenant's rolling
}

// registry has the tenants that somebody asked for, and their dictionaries in memory.
type registry struct {
	log   *slog.Logger
	limit int64         // of calls in memory
	calls atomic.Int64  // of all dictionaries in memory
	uses  atomic.Uint64 // of dictionaries: what was used when

	tenantsMu sync.Mutex // guards all below
	tenants   map[string]*tenant
}

func newRegistry(log *slog.Logger, limit int64) *registry {
	return &registry{log: log, limit: limit, tenants: map[string]*tenant{}}
}

// tenant finds a tenant, and reads what the database holds of it when it is
// first asked for.
func (s *registry) tenant(db *database, name string) (*tenant, error) {
	s.tenantsMu.Lock()
	defer s.tenantsMu.Unlock()
	if t := s.tenants[name]; t != nil {
		return t, nil
	}
	t := &tenant{name: name, places: newPlaces(), dictionaries: map[string]*dictionary{}, numbers: map[string]uint32{},
		stale: map[store.Step]bool{}, dropped: map[store.Level]uint32{}, claimed: map[uint32]bool{}}
	if err := (&restorer{db, t}).restore(); err != nil {
		return nil, err
	}
	for _, said := range t.problems.said {
		s.log.Error("a tenant's tables are damaged, and what cannot be read of them is left out", "tenant", name, "problem", said)
	}
	s.tenants[name] = t
	return t, nil
}

// addSeries finds or adds a series. The tenant is locked.
func (t *tenant) addSeries(labels profile.Labels) uint32 {
	number, ok := t.numbers[keptLabels(labels)]
	switch {
	case ok:
	case len(t.free) > 0:
		number = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
		t.rewritten = append(t.rewritten, number)
		t.setSeries(number, labels)
	default:
		number = t.appendSeries(labels)
	}
	t.series[number].admitted = true
	return number
}

// keptLabels are labels as they are kept.
func keptLabels(labels profile.Labels) string {
	var kept codec.Writer
	kept.Labels(labels, sortedNames(labels))
	return string(kept)
}

// admit finds or adds a series that windows came of. What is added up of them is
// not counted against the limit.
func (t *tenant) admit(labels profile.Labels, limit int) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	number, ok := t.numbers[keptLabels(labels)]
	if !ok || !t.series[number].counts && !t.series[number].restored {
		if t.counted >= limit {
			return 0, &store.QuotaError{What: "series", Limit: int64(limit)}
		}
		number = t.addSeries(labels)
	}
	of := t.series[number]
	of.admitted = true
	t.count(of)
	return number, nil
}

// count has a series count against a quota. The tenant is locked, or nobody has it yet.
func (t *tenant) count(of *series) {
	if !of.counts {
		of.counts = true
		t.counted++
	}
}

// restored notes that a series was read. One that has no label but its service's may
// be what others were added up to: it counts once a window comes of it again, for
// which there is room, as for each that is there.
func (t *tenant) restored(number uint32) {
	of := t.series[number]
	if _, ok := of.labels[store.ServiceLabel]; len(of.labels) == 0 || ok && len(of.labels) == 1 {
		of.restored = true
		return
	}
	t.count(of)
}

// chosen lists the series that a query may mean, by their numbers.
func (t *tenant) chosen(q store.Query) (chosen []*series) {
	t.mu.Lock()
	all := slices.Clone(t.series) // numbers are given to others meanwhile
	t.mu.Unlock()
	for _, s := range all {
		if s != nil && q.Select.Matches(s.labels) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// ordered lists the same by their labels.
func (t *tenant) ordered(q store.Query) []*series {
	chosen := t.chosen(q)
	slices.SortFunc(chosen, func(a, b *series) int { return strings.Compare(a.written, b.written) })
	return chosen
}

// shelf is the dictionaries of one tenant that somebody has taken. They stay
// loaded until it is put back: two copies of one would number apart.
type shelf struct {
	registry *registry
	db       *database
	tenant   *tenant

	mu    sync.Mutex // guards all below
	taken map[string]*dictionary
}

func (s *registry) shelf(db *database, t *tenant) *shelf {
	return &shelf{registry: s, db: db, tenant: t, taken: map[string]*dictionary{}}
}

// take gives the dictionary of a service.
func (f *shelf) take(service string) (*dictionary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.taken[service]; d != nil {
		return d, nil
	}
	d := f.tenant.use(service)
	if d == nil {
		var err error
		if d, err = f.load(service); err != nil {
			return nil, err
		}
	}
	f.taken[service] = d
	return d, nil
}

// use gives a dictionary that is in memory, and has it stay there; nil: it is not.
func (t *tenant) use(service string) *dictionary {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dictionaries[service]
	if d != nil {
		d.users++
	}
	return d
}

// load reads a dictionary. The tenant is not locked meanwhile: who puts windows of
// other services goes on.
func (f *shelf) load(service string) (*dictionary, error) {
	t := f.tenant
	t.loading.Lock()
	defer t.loading.Unlock()
	if d := t.use(service); d != nil { // somebody else was faster
		return d, nil
	}
	d, err := (&restorer{f.db, t}).dictionary(service)
	if err != nil {
		return nil, err
	}
	for _, said := range d.problems.said {
		f.registry.log.Error("stacks of a service are damaged, and shown as such", "tenant", t.name, "service", service, "problem", said)
	}
	d.loaded = &f.registry.calls
	d.loaded.Add(int64(len(d.calls)))
	t.mu.Lock()
	defer t.mu.Unlock()
	d.users++
	t.dictionaries[service] = d
	return d, nil
}

// damage is what is damaged of the tables of the tenant, and of what was taken,
// and so many windows.
func (f *shelf) damage(windows int) store.Damage {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.tenant.damage(windows)
	for service, taken := range f.taken {
		if count := taken.problems.count; count > 0 {
			d.Add(store.Damage{Tables: map[string]int{"stacks of " + service: count}})
		}
	}
	return d
}

// damage is what is damaged of a tenant's tables, and so many windows.
func (t *tenant) damage(windows int) store.Damage {
	d := store.Damage{Parts: windows}
	if count := t.problems.count; count > 0 {
		d.Tables = map[string]int{"tenant": count}
	}
	return d
}

// putBack ends the use of all that was taken.
func (f *shelf) putBack() {
	f.tenant.mu.Lock()
	for _, d := range f.taken {
		d.users--
		d.used = f.registry.uses.Add(1)
	}
	f.tenant.mu.Unlock()
	f.registry.unload()
}

// unload drops dictionaries that nobody uses, those first that were not used for
// longest, while there are more calls than options allow.
func (s *registry) unload() {
	if s.calls.Load() <= s.limit {
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
		if s.calls.Load() <= s.limit {
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
	if d.users == 0 && !d.cleared && d.saved == len(d.calls) && d.savedLeaves == len(d.leaves) && t.dictionaries[d.service] == d {
		delete(t.dictionaries, d.service)
		d.loaded.Add(-int64(len(d.calls)))
	}
}
