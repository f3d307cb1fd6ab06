package server

import (
	"context"
	"errors"
	"maps"
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
	// turn is how long one tenant's steps are added up before others' are.
	turn = 2 * time.Second
	// crowdedPause is how long after somebody found no room it is made.
	crowdedPause = time.Second
)

// upkeep adds up what has come, and drops what is old. It needs no memory of its
// own over a restart: the store knows what is stale.
type upkeep struct {
	*Server
	tried   map[string]map[store.Step]time.Time // when, by tenant
	full    map[string]bool                     // tenants with as much as they may have, and nothing old
	dropped time.Time
}

func (s *Server) newUpkeep() *upkeep {
	return &upkeep{Server: s, tried: map[string]map[store.Step]time.Time{}, full: map[string]bool{}}
}

// Upkeep keeps the store in order until the context ends.
func (s *Server) Upkeep(ctx context.Context) {
	u := s.newUpkeep()
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		more, err := u.once(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error("keep the store in order", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-s.crowded:
			select { // many may be refused a second
			case <-ctx.Done():
			case <-time.After(crowdedPause):
			}
		}
	}
}

// once gives each tenant a turn, and tells whether that was not enough for all.
func (u *upkeep) once(ctx context.Context) (more bool, err error) {
	for _, f := range u.fleets.all() { // where no agent comes, and nobody applies a profile, nothing else does
		f.tidy()
	}
	tenants, err := u.options.Store.Tenants(ctx)
	if err != nil {
		return false, err
	}
	for _, tenant := range tenants {
		unfinished, rollErr := u.roll(ctx, tenant)
		more, err = more || unfinished, errors.Join(err, rollErr)
		if !unfinished { // what was not added up would be gone for good
			err = errors.Join(err, u.room(ctx, tenant, u.now()))
		}
		err = errors.Join(err, u.measure(ctx, tenant))
	}
	if now := u.now(); now.Sub(u.dropped) >= dropEvery {
		for _, tenant := range tenants {
			err = errors.Join(err, u.drop(ctx, tenant, now))
		}
		u.dropped = now
	}
	return more, err
}

// roll adds up the steps that are due, each level after the one below it, and
// tells whether its turn was over before all were.
func (u *upkeep) roll(ctx context.Context, tenant string) (more bool, failed error) {
	began := u.now()
	tried := u.tried[tenant]
	if tried == nil {
		tried = map[store.Step]time.Time{}
		u.tried[tenant] = tried
	}
	maps.DeleteFunc(tried, func(_ store.Step, at time.Time) bool { return u.now().Sub(at) >= rollAgain })
	for _, level := range store.RolledUp() {
		stale, err := u.options.Store.Stale(ctx, tenant)
		if err != nil {
			return false, err
		}
		for _, step := range due(level, stale, began) {
			if _, resting := tried[step]; resting {
				continue
			}
			if u.now().Sub(began) >= turn {
				return true, failed
			}
			tried[step] = u.now()
			result, err := "done", u.options.Store.Roll(ctx, tenant, step)
			var quota *store.QuotaError
			var damaged *store.DamagedError
			switch {
			case errors.As(err, &damaged): // what is added up of the rest says so too
				u.log.Error("windows that were to be added up are damaged, and left out", "tenant", tenant, "level", level, "from", step.Start, "parts", damaged.Parts)
				result = "damaged"
			case errors.As(err, &quota): // room is made after this
				delete(tried, step)
				return false, failed
			case err != nil:
				failed = errors.Join(failed, err)
				result = "failed"
			}
			u.metrics.rolled.WithLabelValues(level.String(), result).Inc()
		}
	}
	return false, failed
}

// due lists the stale steps of a level that are over, and that are added up from
// nothing that is stale itself.
func due(level store.Level, stale []store.Step, now time.Time) (steps []store.Step) {
	waiting := map[int64]bool{} // where something below is stale
	for _, s := range stale {
		if s.Level == level.Below() {
			waiting[s.Start.Truncate(level.Length()).Unix()] = true
		}
	}
	for _, s := range stale {
		if s.Level == level && !now.Before(s.Start.Add(level.Length()+rollAfter)) && !waiting[s.Start.Unix()] {
			steps = append(steps, s)
		}
	}
	return steps
}

// drop forgets what is older than it is to be kept, and what nothing is left of.
func (u *upkeep) drop(ctx context.Context, tenant string, now time.Time) (failed error) {
	for level, keep := range u.options.Retention {
		if keep > 0 {
			failed = errors.Join(failed, u.options.Store.Drop(ctx, tenant, level, now.Add(-keep)))
		}
	}
	return errors.Join(failed, u.options.Store.Tidy(ctx, tenant))
}
