package query

import (
	"context"
	"fmt"
	"slices"
	"time"

	"atys.dev/atys/internal/store"
)

// Levels to ask, those with the longest windows first.
var (
	ofServices = []store.Level{store.Service1d, store.Service1h, store.Service10m, store.Service1m, store.Raw}
	ofSeries   = []store.Level{store.Series1h, store.Series10m, store.Raw}
	asCut      = []store.Level{store.Raw}
)

// standing is what a tenant's levels lack.
type standing struct {
	stale   map[store.Level][]time.Time // steps that are not added up yet, in order
	dropped map[store.Level]time.Time   // before then nothing is kept
}

// standing asks for it, once a question.
func (q *question) standing(ctx context.Context) (*standing, error) {
	if q.stands != nil {
		return q.stands, nil
	}
	steps, err := q.Store.Stale(ctx, q.Tenant)
	if err != nil {
		return nil, fmt.Errorf("see what is added up: %w", err)
	}
	s := &standing{stale: map[store.Level][]time.Time{}}
	for _, step := range steps {
		s.stale[step.Level] = append(s.stale[step.Level], step.Start)
	}
	for _, of := range s.stale {
		slices.SortFunc(of, time.Time.Compare)
	}
	if s.dropped, err = q.Store.Dropped(ctx, q.Tenant); err != nil {
		return nil, fmt.Errorf("see what was dropped: %w", err)
	}
	q.stands = s
	return s, nil
}

// plan splits [from, to) into parts of the levels given: of each what lies whole
// in it and lacks nothing, the rest of the levels behind it. So an answer is the
// same as of raw windows, while there are any.
func (s *standing) plan(from, to time.Time, levels []store.Level) (parts []store.Query) {
	if !from.Before(to) {
		return nil
	}
	level, finer := levels[0], levels[1:]
	length := level.Length()
	if length == 0 {
		return []store.Query{{Level: level, From: from, To: to}}
	}
	begin := from // of what no part covers yet
	at := stepAfter(later(from, s.dropped[level]), length)
	cover := func(until time.Time) {
		if at.Before(until) {
			parts = append(parts, s.plan(begin, at, finer)...)
			parts = append(parts, store.Query{Level: level, From: at, To: until})
			begin = until
		}
	}
	last := to.Truncate(length)
	stale := s.stale[level]
	next, _ := slices.BinarySearchFunc(stale, at, time.Time.Compare)
	for ; next < len(stale) && stale[next].Before(last); next++ {
		cover(stale[next])
		at = stale[next].Add(length)
	}
	cover(last)
	return append(parts, s.plan(begin, to, finer)...)
}

// stepAfter is when the first step begins at a time or after it.
func stepAfter(at time.Time, length time.Duration) time.Time {
	if step := at.Truncate(length); step.Before(at) {
		return step.Add(length)
	}
	return at
}

// parts plans what to ask of a selection between two times.
func (q *question) parts(ctx context.Context, from, to time.Time, levels []store.Level) ([]store.Query, error) {
	s, err := q.standing(ctx)
	if err != nil {
		return nil, err
	}
	parts := s.plan(from, to, levels)
	for i := range parts {
		parts[i].Select, parts[i].Task = q.Select, q.Task
	}
	return parts, nil
}

// levels are those that can answer: windows of services have no other labels,
// and above the raw level there are no threads.
func (s Selection) levels(by string) []store.Level {
	about := []string{by}
	for _, m := range s.Select {
		about = append(about, m.Label)
	}
	switch {
	case by == ByThread:
		return asCut
	case slices.ContainsFunc(about, func(label string) bool { return label != "" && label != store.ServiceLabel }):
		return ofSeries
	}
	return ofServices
}
