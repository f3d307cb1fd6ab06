package mem

import (
	"context"
	"time"

	"atys.dev/atys/internal/store"
)

// Usage tells what a tenant takes; see store.Store. What is pending counts.
func (s *Store) Usage(_ context.Context, name string) (*store.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return nil, err
	}
	return t.usage(), nil
}

// What things take, about.
const (
	callBytes  = 40
	placeBytes = 100
	headBytes  = 200
	cellBytes  = 8
)

func (t *tenant) usage() *store.Usage {
	u := &store.Usage{Levels: map[store.Level]store.LevelUsage{}, Stacks: int64(len(t.calls)*callBytes + len(t.places)*placeBytes)}
	add := func(e *entry) {
		of, day := u.Levels[e.key.level], e.window.Head.Start.UTC().Truncate(24*time.Hour)
		if of.First.IsZero() || day.Before(of.First) {
			of.First = day
		}
		of.Bytes += e.bytes()
		u.Levels[e.key.level] = of
	}
	last := map[key]*entry{}
	for _, e := range t.pending {
		last[e.key] = e
	}
	for k, e := range t.seen {
		if last[k] == nil {
			add(e)
		}
	}
	for _, e := range last {
		add(e)
	}
	for _, r := range t.records.all() {
		if day := r.Start.UTC().Truncate(24 * time.Hour); u.Records.First.IsZero() || day.Before(u.Records.First) {
			u.Records.First = day
		}
		u.Records.Bytes += headBytes + int64(len(r.Payload))
	}
	return u
}

func (e *entry) bytes() int64 {
	r := &e.window.Rows
	cells := len(r.Stack) + len(r.Thread) + len(r.Context) + len(r.Slot) + len(r.N) + len(r.Values) + len(r.Squares) + len(e.window.Groups)
	return headBytes + int64(cells)*cellBytes
}

// admit refuses windows or records of which there would be more series than there may be.
func (t *tenant) admit(series []string, limit int) error {
	fresh, refused := map[string]bool{}, map[int][]int{}
	for i, name := range series {
		switch {
		case t.series[name] || fresh[name]:
		case len(t.series)+len(fresh) < limit:
			fresh[name] = true
		default:
			refused[i] = nil
		}
	}
	if len(refused) > 0 {
		return &store.QuotaError{What: "series", Limit: int64(limit), Refused: refused}
	}
	for name := range fresh {
		t.series[name] = true
	}
	return nil
}
