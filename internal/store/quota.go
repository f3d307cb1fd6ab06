package store

import (
	"fmt"
	"time"
)

// DefaultSeries is how many series a tenant may have where nobody says otherwise.
const DefaultSeries = 200_000

// Quota is what a tenant may have.
type Quota struct {
	Bytes  int64 // of the disk, as Usage counts them; 0: any number
	Series int   // that windows came of; 0: DefaultSeries
}

// Quotas tells that of each tenant; nil: nobody has one.
type Quotas func(tenant string) Quota

// Of gives a tenant's quota.
func (q Quotas) Of(tenant string) Quota {
	var of Quota
	if q != nil {
		of = q(tenant)
	}
	if of.Series == 0 {
		of.Series = DefaultSeries
	}
	return of
}

// Full tells whether a tenant that has so many bytes gets no more of a level. The
// last twentieth is for adding up what is there: windows that could not be added
// up would be gone for good once they are dropped.
func (q Quota) Full(level Level, bytes int64) bool {
	limit := q.Bytes
	if level == Raw {
		limit -= limit / 20
	}
	return q.Bytes > 0 && bytes >= limit
}

// QuotaError says that a batch asks for more than its tenant may have. Nothing of
// the batch was kept but its forest.
type QuotaError struct {
	What  string
	Limit int64
	Later bool // once something is dropped it may be kept
	// Refused are the windows or records of the batch that ask for it, by their places there,
	// and which of those they contain; none of these: they themselves. nil: the whole batch.
	Refused map[int][]int
}

func (e *QuotaError) Error() string {
	if e.Later {
		return fmt.Sprintf("the quota of %d %s is full: more is kept once the oldest are dropped", e.Limit, e.What)
	}
	return fmt.Sprintf("there are %d %s, and no more are kept", e.Limit, e.What)
}

// Usage is what a tenant takes, in bytes. An engine counts as its disk does: in
// blocks, after it has compressed them, and never less than there is.
type Usage struct {
	Levels  map[Level]LevelUsage
	Records LevelUsage // they are dropped together with raw windows
	Stacks  int64      // stacks, their names, and series
	Recent  int64      // of all: written last, and not told apart yet
}

// LevelUsage is that of a level's windows.
type LevelUsage struct {
	Bytes int64
	First time.Time // the day of the oldest one; zero: there are none
}

// Bytes is all of it.
func (u *Usage) Bytes() int64 {
	sum := u.Stacks + u.Records.Bytes + u.Recent
	for _, l := range u.Levels {
		sum += l.Bytes
	}
	return sum
}

// Oldest gives what is to be dropped first to make room: the oldest day of the
// lowest level that has one before today. What was added up of it stays, and is
// dropped when there is nothing below it. With the raw level, records are dropped.
// False: there is only today's.
func (u *Usage) Oldest(now time.Time) (level Level, before time.Time, ok bool) {
	for _, level := range droppable() {
		if u.old(level, now) {
			return level, u.dropped(level).First.UTC().Truncate(day).Add(day), true
		}
	}
	return 0, time.Time{}, false
}

// Lasting is what there is at least once all was dropped that Oldest gives: stacks,
// which those that come need, days, and levels that have nothing but today's.
func (u *Usage) Lasting(now time.Time) int64 {
	left := u.Bytes() - u.Recent
	for _, level := range droppable() {
		if u.old(level, now) {
			left -= u.dropped(level).Bytes
		}
	}
	return left
}

// droppable lists the levels of which windows are dropped to make room, in order.
func droppable() []Level {
	return []Level{Raw, Service1m, Series10m, Service10m, Series1h, Service1h}
}

// dropped is what is dropped with a level.
func (u *Usage) dropped(level Level) LevelUsage {
	of := u.Levels[level]
	if level != Raw {
		return of
	}
	of.Bytes += u.Records.Bytes
	if r := u.Records.First; of.First.IsZero() || !r.IsZero() && r.Before(of.First) {
		of.First = r
	}
	return of
}

// old tells whether a level has windows of before today.
func (u *Usage) old(level Level, now time.Time) bool {
	first := u.dropped(level).First
	return !first.IsZero() && first.Before(now.UTC().Truncate(day))
}

const day = 24 * time.Hour
