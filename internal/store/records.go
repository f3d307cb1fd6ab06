package store

import (
	"context"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// Records stores records beside windows; see profile.Record. It is safe for concurrent use.
// The series of records are counted together with those of windows.
//
// storetest.RunRecords is its test suite.
type Records interface {
	// PutRecords stores records and returns when they are durable. A record replaces a stored
	// one with the same series, kind, start, run and sequence, so it is stored exactly once
	// however often it is sent. If there is no room for some of them, it stores none and
	// returns a QuotaError that lists those by their indexes. After an error other than those
	// of this package, they may or may not be stored, and can be sent again.
	PutRecords(ctx context.Context, tenant string, records []profile.Record) error
	// ScanRecords calls each for every record that a query selects, by series, and for each
	// series and kind by time. It stops at the first error of each and returns it. If it meets
	// damage, it goes on and returns a DamagedError.
	ScanRecords(ctx context.Context, tenant string, q RecordQuery, each func(r *profile.Record) error) error
	// DropRecords deletes the records that start before a time, by whole days.
	DropRecords(ctx context.Context, tenant string, before time.Time) error
}

// RecordQuery selects records.
type RecordQuery struct {
	Kind     string        // "": all kinds
	Select   spec.Selector // of series
	From, To time.Time     // records that start in [From, To)
}

// Matches reports whether a record is selected.
func (q *RecordQuery) Matches(r *profile.Record) bool {
	return (q.Kind == "" || q.Kind == r.Kind) && !r.Start.Before(q.From) && r.Start.Before(q.To) && q.Select.Matches(r.Series)
}
