package mem

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// recordKey identifies a record.
type recordKey struct {
	series, kind string
	start        int64
	run          profile.Run
	sequence     uint64
}

func recordKeyOf(r *profile.Record) recordKey {
	return recordKey{r.Series.String(), r.Kind, r.Start.UnixNano(), r.Run, r.Sequence}
}

// records are those of a tenant. Pending ones are not seen yet.
type records struct {
	seen    map[recordKey]*profile.Record
	pending []*profile.Record
}

func (r *records) show(n int) {
	for _, one := range r.pending[:n] {
		if r.seen == nil {
			r.seen = map[recordKey]*profile.Record{}
		}
		r.seen[recordKeyOf(one)] = one
	}
	r.pending = r.pending[n:]
}

// all are records that are seen or will be, each once.
func (r *records) all() map[recordKey]*profile.Record {
	all := maps.Clone(r.seen)
	if all == nil {
		all = map[recordKey]*profile.Record{}
	}
	for _, one := range r.pending {
		all[recordKeyOf(one)] = one
	}
	return all
}

// PutRecords stores records; see store.Records.
func (s *Store) PutRecords(_ context.Context, name string, all []profile.Record) error {
	for i := range all {
		if err := all[i].Check(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return err
	}
	quota := s.Quotas.Of(name)
	if quota.Bytes > 0 && quota.Full(store.Raw, t.usage().Bytes()) {
		return &store.QuotaError{What: "bytes", Limit: quota.Bytes, Later: true}
	}
	var series []string
	for i := range all {
		series = append(series, all[i].Series.String())
	}
	if err := t.admit(series, quota.Series); err != nil {
		return err
	}
	for i := range all {
		t.records.pending = append(t.records.pending, all[i].Clone())
	}
	return nil
}

// ScanRecords reads records; see store.Records.
func (s *Store) ScanRecords(_ context.Context, name string, q store.RecordQuery, each func(r *profile.Record) error) error {
	s.mu.Lock()
	t, err := s.open(name)
	var chosen []*profile.Record
	if err == nil {
		for _, r := range t.records.seen {
			if q.Matches(r) {
				chosen = append(chosen, r.Clone())
			}
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	slices.SortFunc(chosen, func(a, b *profile.Record) int {
		if c := strings.Compare(a.Series.String(), b.Series.String()); c != 0 {
			return c
		}
		return a.Start.Compare(b.Start)
	})
	for _, r := range chosen {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// DropRecords deletes the records of whole days; see store.Records.
func (s *Store) DropRecords(_ context.Context, name string, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.open(name)
	if err != nil {
		return err
	}
	t.records.show(len(t.records.pending))
	day := before.Truncate(24 * time.Hour)
	maps.DeleteFunc(t.records.seen, func(_ recordKey, r *profile.Record) bool { return r.Start.Before(day) })
	return nil
}
