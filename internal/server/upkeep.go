package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/store"
)

const (
	upkeepEvery = 10 * time.Second
	// rollAfter is how long after its end a step is added up: agents ship their
	// windows within half of one.
	rollAfter = 30 * time.Second
	// rollAgain is how long a step then rests, however much comes late.
	rollAgain = 10 * time.Minute
	dropEvery = time.Hour
)

// upkeep adds up what has come, and drops what is old. It needs no memory of its
// own over a restart: the store knows what is stale.
type upkeep struct {
	*Server
	tried   map[string]map[store.Step]time.Time // when, by tenant
	dropped time.Time
}

// Upkeep keeps the store in order until the context ends.
func (s *Server) Upkeep(ctx context.Context) {
	u := &upkeep{Server: s, tried: map[string]map[store.Step]time.Time{}}
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := u.once(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("keep the store in order", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (u *upkeep) once(ctx context.Context) error {
	tenants, err := u.options.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		err = errors.Join(err, u.roll(ctx, tenant))
	}
	if now := u.now(); now.Sub(u.dropped) >= dropEvery {
		for _, tenant := range tenants {
			err = errors.Join(err, u.drop(ctx, tenant, now))
		}
		u.dropped = now
	}
	return err
}

// roll adds up the steps that are due, each level after the one below it.
func (u *upkeep) roll(ctx context.Context, tenant string) (failed error) {
	tried := u.tried[tenant]
	if tried == nil {
		tried = map[store.Step]time.Time{}
		u.tried[tenant] = tried
	}
	maps.DeleteFunc(tried, func(_ store.Step, at time.Time) bool { return u.now().Sub(at) >= rollAgain })
	for _, level := range store.RolledUp() {
		stale, err := u.options.Store.Stale(ctx, tenant)
		if err != nil {
			return err
		}
		for _, step := range stale {
			if _, resting := tried[step]; resting || step.Level != level || !due(step, stale, u.now()) {
				continue
			}
			tried[step] = u.now()
			result := "done"
			if err := u.options.Store.Roll(ctx, tenant, step); err != nil {
				failed = errors.Join(failed, err)
				result = "failed"
			}
			u.metrics.rolled.WithLabelValues(level.String(), result).Inc()
		}
	}
	return failed
}

// due tells whether a step is over, and what it is added up from is not stale.
func due(step store.Step, stale []store.Step, now time.Time) bool {
	end := step.Start.Add(step.Level.Length())
	below := step.Level.Below()
	return !now.Before(end.Add(rollAfter)) && !slices.ContainsFunc(stale, func(s store.Step) bool {
		return s.Level == below && !s.Start.Before(step.Start) && s.Start.Before(end)
	})
}

// drop forgets what is older than it is to be kept.
func (u *upkeep) drop(ctx context.Context, tenant string, now time.Time) (failed error) {
	for level, keep := range u.options.Retention {
		if keep > 0 {
			failed = errors.Join(failed, u.options.Store.Drop(ctx, tenant, level, now.Add(-keep)))
		}
	}
	return failed
}
