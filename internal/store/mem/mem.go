// Package mem keeps windows and records in memory, as a cluster would that agrees with itself later: what was put is seen after a while.
//
// It is for tests: of the contract, that it asks no more than such a cluster can
// give, and of callers, that they do not lean on seeing what they just wrote.
package mem

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/store"
)

// Store is a store; see store.Store.
type Store struct {
	Quotas store.Quotas // set before it is used
	Rules  refine.Rules // of contexts; likewise

	mu      sync.Mutex // guards all below
	rng     *rand.Rand
	closed  bool
	tenants map[string]*tenant
}

// tenant is what one has put. What is pending is not seen yet.
type tenant struct {
	calls   map[profile.Hash]call
	places  map[profile.Hash]profile.Place
	seen    map[key]*entry
	stale   map[store.Step]bool
	dropped map[store.Level]time.Time
	pending []*entry
	records records
	series  map[string]bool
	// Windows that came, and those that windows which came contain, by which. Even
	// a cluster that shows late what was put has to know.
	came    map[key]bool
	claimed map[key]key
}

type call struct {
	caller, place profile.Hash
	root          bool
	end           profile.End
}

// key is what makes a window the same when it comes again.
type key struct {
	level              store.Level
	series, task, kind string
	start              int64
	run                profile.Run
}

type entry struct {
	key    key
	window *store.Window
	stacks []profile.Hash
}

// New makes an empty store; the seed decides when what is seen.
func New(seed uint64) *Store {
	return &Store{rng: rand.New(rand.NewPCG(seed, 1)), tenants: map[string]*tenant{}}
}

// Settle has everything be seen that was put.
func (s *Store) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenants {
		t.show(len(t.pending))
		t.records.show(len(t.records.pending))
	}
}

func (t *tenant) show(n int) {
	for _, e := range t.pending[:n] {
		t.seen[e.key] = e
		if e.key.level == store.Raw {
			for _, step := range store.Steps(e.window.Head.Start) {
				t.stale[step] = true
			}
		}
	}
	t.pending = t.pending[n:]
}

// open finds a tenant. Whoever calls it holds the lock, and what is pending may
// be seen from now on, in the order in which it came.
func (s *Store) open(name string) (*tenant, error) {
	if s.closed {
		return nil, store.ErrClosed
	}
	t := s.tenants[name]
	if t == nil {
		t = &tenant{calls: map[profile.Hash]call{}, places: map[profile.Hash]profile.Place{}, seen: map[key]*entry{},
			stale: map[store.Step]bool{}, dropped: map[store.Level]time.Time{}, series: map[string]bool{}, came: map[key]bool{}, claimed: map[key]key{}}
		s.tenants[name] = t
	}
	t.show(s.rng.IntN(len(t.pending) + 1))
	t.records.show(s.rng.IntN(len(t.records.pending) + 1))
	return t, nil
}

// Put keeps a batch; see store.Store.
func (s *Store) Put(_ context.Context, name string, level store.Level, b *store.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return err
	}
	if quota := s.Quotas.Of(name); quota.Bytes > 0 && quota.Full(level, t.usage().Bytes()) {
		return &store.QuotaError{What: "bytes", Limit: quota.Bytes, Later: true}
	}
	if b.Forest != nil {
		t.learn(b.Forest)
	}
	var unknown []profile.Hash
	for _, h := range b.Stacks {
		if _, ok := t.calls[h]; !ok {
			unknown = append(unknown, h)
		}
	}
	if len(unknown) > 0 {
		return &store.UnknownError{Stacks: unknown}
	}
	if err := t.overlap(level, b); err != nil {
		return err
	}
	var series []string
	for i := range b.Windows {
		series = append(series, b.Windows[i].Series.String())
	}
	if err := t.admit(series, s.Quotas.Of(name).Series); err != nil {
		return err
	}
	for i := range b.Windows {
		w := &b.Windows[i]
		for _, p := range w.Contains {
			t.claimed[keyOf(level, w, p)] = keyOf(level, w, store.Part{Series: w.Series, Run: w.Run})
		}
	}
	for i := range b.Windows {
		w := b.Windows[i]
		w.Series = maps.Clone(w.Series)
		k := keyOf(level, &w, store.Part{Series: w.Series, Run: w.Run})
		if _, contained := t.claimed[k]; contained {
			continue
		}
		t.came[k] = true
		t.pending = append(t.pending, &entry{k, &w, b.Stacks})
	}
	return nil
}

// keyOf is the key of a window, or of a part of it.
func keyOf(level store.Level, w *store.Window, p store.Part) key {
	return key{level, p.Series.String(), w.Head.Task, w.Head.Kind(), w.Head.Start.Add(p.After).UnixNano(), p.Run}
}

// overlap finds what windows contain that is there already.
func (t *tenant) overlap(level store.Level, b *store.Batch) error {
	parts := map[int][]int{}
	fresh := map[key]key{}
	for i := range b.Windows {
		w := &b.Windows[i]
		k := keyOf(level, w, store.Part{Series: w.Series, Run: w.Run})
		for n, p := range w.Contains {
			part := keyOf(level, w, p)
			by, ok := t.claimed[part]
			if !ok {
				by, ok = fresh[part]
			}
			if ok && by != k || t.came[part] {
				parts[i] = append(parts[i], n)
			}
			if !ok { // the first of several keeps it
				fresh[part] = k
			}
		}
	}
	if len(parts) > 0 {
		return &store.OverlapError{Parts: parts}
	}
	return nil
}

func (t *tenant) learn(f *profile.Forest) {
	for _, c := range f.Calls {
		if c.Caller < 0 {
			t.calls[c.Hash] = call{root: true, end: c.End}
			continue
		}
		p := f.Places[c.Place]
		t.calls[c.Hash] = call{caller: f.Calls[c.Caller].Hash, place: p.Hash}
		if known := t.places[p.Hash]; len(known.Names) == 0 || !known.Named() && p.Named() {
			t.places[p.Hash] = p
		}
	}
}

// chosen lists the windows that a query means, by series and time.
func (s *Store) chosen(name string, q store.Query) (t *tenant, entries []*entry, err error) {
	t, err = s.open(name)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range t.seen {
		w := e.window
		if e.key.level == q.Level && q.Select.Matches(w.Series) && (q.Kinds == nil || len(typesOf(w.Head.Types, q)) > 0) &&
			store.TaskMatches(q.Task, w.Head.Task) && !w.Head.Start.Before(q.From) && w.Head.Start.Before(q.To) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		if c := strings.Compare(a.key.series, b.key.series); c != 0 {
			return c
		}
		return a.window.Head.Start.Compare(b.window.Head.Start)
	})
	return t, entries, nil
}

// Series lists series; see store.Store.
func (s *Store) Series(_ context.Context, name string, q store.Query) (labels []profile.Labels, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, entries, err := s.chosen(name, q)
	for i, e := range entries {
		if i == 0 || entries[i-1].key.series != e.key.series {
			labels = append(labels, maps.Clone(e.window.Series))
		}
	}
	return labels, err
}

// Scan gives windows; see store.Store.
func (s *Store) Scan(_ context.Context, name string, q store.Query, each func(*profile.Window, profile.Run) error) error {
	s.mu.Lock()
	t, entries, err := s.chosen(name, q)
	var windows []*profile.Window
	for _, e := range entries {
		windows = append(windows, t.window(e))
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for i, w := range windows {
		if err := each(w, entries[i].key.run); err != nil {
			return err
		}
	}
	return nil
}

// window makes a window again of what was put.
func (t *tenant) window(e *entry) *profile.Window {
	kept := e.window
	b := profile.NewBuilder(kept.Head)
	b.Head().Target = maps.Clone(kept.Series)
	stackOf := func(n profile.StackID) profile.StackID {
		var stack []profile.LocationID
		c := t.calls[e.stacks[n]]
		for ; !c.root; c = t.calls[c.caller] {
			p := t.places[c.place]
			stack = append(stack, b.Location(p.Location, p.Names...))
		}
		return b.Stack(stack, c.end)
	}
	rows, exemplars := kept.Rows.Clone(), slices.Clone(kept.Exemplars)
	for i, n := range kept.Rows.Stack {
		rows.Stack[i] = stackOf(n)
	}
	for i, peer := range kept.Rows.Peer {
		if peer != 0 {
			rows.Peer[i] = profile.PeerID(stackOf(profile.StackID(peer-1))) + 1
		}
	}
	for i, x := range exemplars {
		exemplars[i].Stack = stackOf(x.Stack)
	}
	w := b.Window()
	w.Threads, w.Contexts = slices.Clone(kept.Threads), slices.Clone(kept.Contexts)
	w.Rows, w.Exemplars = rows, exemplars
	return w
}

// Merge adds windows up; see store.Store.
func (s *Store) Merge(_ context.Context, name string, parts []store.Query, g store.Grouping) (*store.Merged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return nil, err
	}
	m := newMerger(t, g, s.Rules)
	for _, q := range parts {
		_, entries, err := s.chosen(name, q)
		if err != nil {
			return nil, err
		}
		m.cover(entries, q)
		for _, e := range entries {
			m.add(e, q)
		}
	}
	return m.finish(), nil
}

// Heads gives the heads of windows; see store.Windows.
func (s *Store) Heads(_ context.Context, name string, parts []store.Query, each func(store.Head) error) error {
	var heads []store.Head
	s.mu.Lock()
	for _, q := range parts {
		t, entries, err := s.chosen(name, q)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		for _, e := range entries {
			if e.window.Primary != "" && q.Measures(e.window.Primary) { // the head of the primary kind is the same
				continue
			}
			w := t.window(e)
			head := store.Head{Series: w.Target, Head: &w.Head, N: w.N(), Of: max(e.window.Of, 1)}
			w.Types = typesOf(w.Types, q)
			heads = append(heads, head)
		}
	}
	s.mu.Unlock()
	for _, h := range heads {
		if err := each(h); err != nil {
			return err
		}
	}
	return nil
}

// Types lists value types; see store.Store.
func (s *Store) Types(_ context.Context, name string, parts []store.Query) ([]profile.ValueType, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all store.Types
	for _, q := range parts {
		_, entries, err := s.chosen(name, q)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			for _, t := range typesOf(e.window.Head.Types, q) {
				all.Add(t)
			}
		}
	}
	return all.Sorted(), nil
}

// Tenants lists all that ever wrote; see store.Store.
func (s *Store) Tenants(context.Context) (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	for name, t := range s.tenants {
		if len(t.seen)+len(t.pending)+len(t.records.all()) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Unnamed lists places without names; see store.Store.
func (s *Store) Unnamed(_ context.Context, name string) (all []profile.Place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return nil, err
	}
	for _, p := range t.places {
		if p.Location.BuildID != "" && !p.Named() {
			all = append(all, p)
		}
	}
	return all, nil
}

// Name keeps late names; see store.Store.
func (s *Store) Name(_ context.Context, name string, places []profile.Place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return err
	}
	for _, p := range places {
		if known, ok := t.places[p.Hash]; ok {
			known.Names = p.Names
			t.places[p.Hash] = known
		}
	}
	return nil
}

// Drop forgets whole days; see store.Store.
func (s *Store) Drop(_ context.Context, name string, level store.Level, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return err
	}
	t.show(len(t.pending))
	day := before.Truncate(24 * time.Hour)
	t.dropped[level] = day
	old := func(k key) bool { return k.level == level && k.start < day.UnixNano() }
	maps.DeleteFunc(t.seen, func(k key, _ *entry) bool { return old(k) })
	maps.DeleteFunc(t.came, func(k key, _ bool) bool { return old(k) })
	maps.DeleteFunc(t.claimed, func(k, _ key) bool { return old(k) })
	return nil
}

// Tidy forgets series without windows; see store.Store.
func (s *Store) Tidy(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for k := range t.seen {
		left[k.series] = true
	}
	for _, e := range t.pending {
		left[e.key.series] = true
	}
	for k := range t.records.all() {
		left[k.series] = true
	}
	maps.DeleteFunc(t.series, func(series string, _ bool) bool { return !left[series] })
	return nil
}

// Dropped tells before when all was dropped; see store.Store.
func (s *Store) Dropped(_ context.Context, name string) (map[store.Level]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return nil, err
	}
	return maps.Clone(t.dropped), nil
}

// Close ends it; see store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
