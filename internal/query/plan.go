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

// plan splits [from, to) into parts of the levels given: of each what lies whole
// in it and lacks nothing, the rest of the levels behind it. So an answer is the
// same as of raw windows, while there are any.
func plan(from, to time.Time, levels []store.Level, stale map[store.Step]bool) (parts []store.Query) {
	if !from.Before(to) {
		return nil
	}
	level := levels[0]
	length := level.Length()
	if length == 0 {
		return []store.Query{{Level: level, From: from, To: to}}
	}
	begin := from // of what no part covers yet
	first := from.Truncate(length)
	if first.Before(from) {
		first = first.Add(length)
	}
	for at := first; !at.Add(length).After(to); at = at.Add(length) {
		if stale[store.Step{Level: level, Start: at.UTC()}] {
			continue
		}
		parts = append(parts, plan(begin, at, levels[1:], stale)...)
		begin = at.Add(length)
		if n := len(parts) - 1; n >= 0 && parts[n].Level == level && parts[n].To.Equal(at) {
			parts[n].To = begin
		} else {
			parts = append(parts, store.Query{Level: level, From: at, To: begin})
		}
	}
	return append(parts, plan(begin, to, levels[1:], stale)...)
}

// parts plans what to ask of a selection between two times.
func (q *question) parts(ctx context.Context, from, to time.Time, levels []store.Level) ([]store.Query, error) {
	if q.stale == nil {
		steps, err := q.Store.Stale(ctx, q.Tenant)
		if err != nil {
			return nil, fmt.Errorf("see what is added up: %w", err)
		}
		q.stale = map[store.Step]bool{}
		for _, step := range steps {
			q.stale[step] = true
		}
	}
	parts := plan(from, to, levels, q.stale)
	for i := range parts {
		q.choose(&parts[i])
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
