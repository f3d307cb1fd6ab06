package mem

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"

	"atys.dev/atys/internal/profile"
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
		t.seen[u] = t.roll(step, u, entries)
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
func (t *tenant) roll(step store.Step, u key, entries []*entry) *entry {
	m := newMerger(t, u.kind, store.Grouping{})
	w := &store.Window{Series: entries[0].window.Series, Run: u.run, Scales: []int64{1}, Rows: profile.Rows{Types: 1}}
	for _, e := range entries {
		m.add(e)
		w.Head.Duration += e.window.Head.Duration
	}
	watched := w.Head.Duration
	merged := m.finish()
	grouped := step.Level.Services() || slices.ContainsFunc(entries, func(e *entry) bool { return e.window.Groups != nil })
	c := &merged.Columns[0]
	w.Head, w.Of = c.Head, c.Windows
	if step.Level.Services() {
		w.Series = serviceOf(w.Series)
	} else {
		w.Head.Duration = watched
	}
	w.Head.Start, w.Head.Duration, w.Head.Slot = step.Start, min(w.Head.Duration, step.Level.Length()), 0
	out := &entry{key: u, window: w}
	hashes := map[int]profile.Hash{}
	for h, call := range m.calls {
		hashes[call] = h
	}
	for i, sum := range c.Sums {
		out.stacks = append(out.stacks, hashes[sum.Call])
		w.Rows.Append(profile.Row{Stack: profile.StackID(i), N: sum.N, Values: []int64{sum.Value}, Squares: []float64{sum.Squares}})
		if grouped {
			w.Groups = append(w.Groups, sum.Groups[:]...)
		}
	}
	return out
}
