package mem

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/store"
)

// Stale lists steps that are to be added up; see store.Store.
func (s *Store) Stale(_ context.Context, name string) ([]store.Step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Keys(t.stale), func(a, b store.Step) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), a.Start.Compare(b.Start))
	}), nil
}

// Roll adds a step up; see store.Store.
func (s *Store) Roll(_ context.Context, name string, step store.Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	quota := s.Quotas.Of(name)
	below := step.Level.Below()
	t, entries, err := s.chosen(name, store.Query{Level: below, From: step.Start, To: step.Start.Add(step.Level.Length())})
	if err != nil {
		return err
	}
	if quota.Bytes > 0 && quota.Full(step.Level, t.usage().Bytes()) {
		return &store.QuotaError{What: "bytes", Limit: quota.Bytes, Later: true}
	}
	for stale := range t.stale {
		if step.Waits(stale) {
			t.stale[step] = true
			return nil
		}
	}
	delete(t.stale, step)
	if step.Start.Before(t.dropped[below]) {
		return nil
	}
	units := map[key][]*entry{}
	for _, e := range entries {
		for _, kind := range e.window.Head.Types {
			u := key{level: step.Level, series: e.key.series, task: e.key.task, kind: kind.Kind, start: step.Start.UnixNano()}
			if step.Level.Services() {
				u.series = serviceOf(e.window.Series).String()
			}
			h := fnv.New128a()
			h.Write([]byte(kind.Kind)) // never fails
			copy(u.run[:], h.Sum(nil))
			units[u] = append(units[u], e)
		}
	}
	for u, entries := range units {
		t.seen[u] = t.roll(step, u, entries, s.Rules)
	}
	return nil
}

func serviceOf(series profile.Labels) profile.Labels {
	if service := series[store.ServiceLabel]; service != "" {
		return profile.Labels{store.ServiceLabel: service}
	}
	return profile.Labels{}
}

// roll adds entries up that have a kind of values in common.
func (t *tenant) roll(step store.Step, u key, entries []*entry, rules refine.Rules) *entry {
	m := newMerger(t, store.Grouping{}, rules)
	m.rolling = &step
	q := store.Query{Kinds: []string{u.kind}}
	m.cover(entries, q)
	w := &store.Window{Series: entries[0].window.Series, Run: u.run, Scales: []int64{1}, Rows: profile.Rows{Types: 1}}
	for _, e := range entries {
		m.add(e, q)
		w.Head.Duration += e.window.Head.Duration
	}
	w.Primary = primary(entries, u.kind)
	watched := w.Head.Duration
	grouped := step.Level.Services() || slices.ContainsFunc(entries, func(e *entry) bool { return e.window.Groups != nil })
	c := m.column(time.Time{}, nil)
	w.Head, w.Of, w.Minutes = c.head, c.windows, m.observed.Of(&m.grouping, &store.Column{})
	if step.Level.Services() {
		w.Series = serviceOf(w.Series)
	} else {
		w.Head.Duration = watched
	}
	w.Head.Start, w.Head.Duration, w.Head.Slot = step.Start, min(w.Head.Duration, step.Level.Length()), m.slot
	out := &entry{key: u, window: w}
	r := &rolled{merger: m, entry: out, stacks: map[int]profile.StackID{}}
	kept := c.fold(w)
	for _, cell := range c.sorted() {
		sum := c.sums[cell]
		row := profile.Row{Stack: r.stack(cell.call), Context: r.context(cell.context), Slot: cell.slot, N: sum.N, Values: []int64{sum.Value}, Squares: []float64{sum.Squares}}
		if cell.peer != 0 {
			row.Peer = profile.PeerID(r.stack(cell.peer-1)) + 1
		}
		w.Rows.Append(row)
		if grouped {
			w.Groups = append(w.Groups, sum.Groups[:]...)
		}
	}
	for _, x := range profile.ChooseExemplars(m.exemplars) {
		x.Stack, x.Context = r.stack(int(x.Stack)), r.context(kept(m.contexts[x.Context-1]))
		w.Exemplars = append(w.Exemplars, x)
	}
	return out
}

// primary returns the primary kind that entries share; see store.Window.
func primary(entries []*entry, kind string) (shared string) {
	for i, e := range entries {
		own := e.window.Primary
		if first := e.window.Head.Kind(); own == "" && first != kind {
			own = first
		}
		if i > 0 && own != shared {
			return ""
		}
		shared = own
	}
	return shared
}

// fold keeps the contexts with the most value. It returns what a context became.
func (c *column) fold(w *store.Window) (kept func(profile.Context) profile.Context) {
	values := map[profile.Context]int64{}
	for cell, sum := range c.sums {
		if cell.context != (profile.Context{}) {
			values[cell.context] += sum.Value
		}
	}
	if len(values) <= store.MaxContexts {
		return func(c profile.Context) profile.Context { return c }
	}
	delete(values, store.OtherContext)
	order := slices.SortedFunc(maps.Keys(values), func(a, b profile.Context) int {
		return cmp.Or(cmp.Compare(values[b], values[a]), store.CompareContexts(a, b))
	})
	order = order[:min(len(order), store.MaxContexts)]
	kept = func(c profile.Context) profile.Context {
		if c == (profile.Context{}) || slices.Contains(order, c) {
			return c
		}
		return store.OtherContext
	}
	sums, moved := c.sums, profile.Sum{}
	c.sums = map[cellKey]*store.Sum{}
	for cell, sum := range sums {
		to := kept(cell.context)
		if to != cell.context {
			moved.Add(sum.Sum)
			cell.context = to
		}
		if into := c.sums[cell]; into != nil {
			into.Add(sum.Sum)
			for g, v := range sum.Groups {
				into.Groups[g] += v
			}
		} else {
			c.sums[cell] = sum
		}
	}
	if moved.N > 0 {
		w.AddFolded(moved)
	}
	return kept
}

// rolled numbers what the rows of a rolled-up window refer to.
type rolled struct {
	*merger
	entry    *entry
	contexts profile.ContextTable
	stacks   map[int]profile.StackID // by call
}

func (r *rolled) stack(call int) profile.StackID {
	id, ok := r.stacks[call]
	if !ok {
		id = profile.StackID(len(r.entry.stacks))
		r.stacks[call] = id
		r.entry.stacks = append(r.entry.stacks, r.merged.Forest.Calls[call].Hash)
	}
	return id
}

func (r *rolled) context(c profile.Context) profile.ContextID {
	id := r.contexts.ID(c)
	r.entry.window.Contexts = r.contexts.All()
	return id
}
