// Package upkeep keeps a store in order: it rolls up windows that have arrived,
// drops those that are older than their retention, and keeps tenants within their
// quotas.
package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/store"
)

const (
	roundEvery = 10 * time.Second
	// rollAfter is how long after its end a step is rolled up: agents ship windows
	// within half of one.
	rollAfter = 30 * time.Second
	// rollAgain is how long a step rests after that, however much arrives late.
	rollAgain = 10 * time.Minute
	// overdue is when a step that has ended should have been rolled up, even if
	// windows arrived late once and steps below it had to be rolled up before.
	overdue   = rollAfter + 2*rollAgain
	dropEvery = time.Hour
	// turn is how long one tenant's steps are rolled up before those of others.
	turn = 2 * time.Second
	// crowdedPause is how long upkeep waits after a push found no room: many may be
	// refused within a second.
	crowdedPause = time.Second
)

// Options configure an Upkeep. All but Tidy are required.
type Options struct {
	Store     store.Store
	Retention Retention
	Quotas    store.Quotas
	Tidy      func() // called at the start of each round
	Now       func() time.Time
	Log       *slog.Logger
}

// Upkeep keeps a store in order. It keeps no state across restarts: the store
// knows which steps are stale.
type Upkeep struct {
	options Options
	now     func() time.Time
	crowded chan struct{} // a push found no room
	usage   usages

	rolled, droppedBytes *prometheus.CounterVec

	// Only Round uses these.
	tried   map[string]map[store.Step]time.Time // when each step was last rolled up, by tenant
	full    map[string]bool                     // tenants whose full quota has been logged
	dropped time.Time                           // when retention was last applied
}

// New prepares the upkeep of a store.
func New(o Options) *Upkeep {
	return &Upkeep{options: o, now: o.Now, crowded: make(chan struct{}, 1),
		rolled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_rolled_steps_total", Help: "Steps that were rolled up, by level and result."},
			[]string{"level", "result"}),
		droppedBytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_quota_dropped_bytes_total", Help: "Bytes of windows that were dropped to make room, by level."},
			[]string{"tenant", "level"}),
		tried: map[string]map[store.Step]time.Time{}, full: map[string]bool{}}
}

// Run keeps the store in order until the context ends.
func (u *Upkeep) Run(ctx context.Context) {
	ticker := time.NewTicker(roundEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		more, err := u.Round(ctx)
		if err != nil && ctx.Err() == nil {
			u.options.Log.Error("keep the store in order", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-u.crowded:
			select {
			case <-ctx.Done():
			case <-time.After(crowdedPause):
			}
		}
	}
}

// Crowded makes the next round start early: a push found no room.
func (u *Upkeep) Crowded() {
	select {
	case u.crowded <- struct{}{}:
	default:
	}
}

// Round gives each tenant a turn, and reports whether a tenant needs another.
func (u *Upkeep) Round(ctx context.Context) (more bool, err error) {
	if u.options.Tidy != nil {
		u.options.Tidy()
	}
	tenants, err := u.options.Store.Tenants(ctx)
	if err != nil {
		return false, err
	}
	for _, tenant := range tenants {
		unfinished, rollErr := u.roll(ctx, tenant)
		more, err = more || unfinished, errors.Join(err, rollErr)
		if !unfinished { // windows that are dropped before they are rolled up are lost
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

// roll rolls up the steps that are due, each level after the one below it, and
// reports whether its turn ended before all were.
func (u *Upkeep) roll(ctx context.Context, tenant string) (more bool, failed error) {
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
			case errors.As(err, &damaged): // the roll-up of the rest records the loss
				u.options.Log.Error("left damaged windows out of a roll-up", "tenant", tenant, "level", level, "from", step.Start, "parts", damaged.Parts)
				result = "damaged"
			case errors.As(err, &quota): // room is made next
				delete(tried, step)
				return false, failed
			case err != nil:
				failed = errors.Join(failed, err)
				result = "failed"
			}
			u.rolled.WithLabelValues(level.String(), result).Inc()
		}
	}
	return false, failed
}

// due lists the stale steps of a level that have ended, and that are not rolled up
// from stale steps themselves.
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

// drop applies the retention, and removes what no window uses any more.
func (u *Upkeep) drop(ctx context.Context, tenant string, now time.Time) (failed error) {
	for level, keep := range u.options.Retention {
		if keep > 0 {
			failed = errors.Join(failed, u.dropLevel(ctx, tenant, level, now.Add(-keep)))
		}
	}
	return errors.Join(failed, u.options.Store.Tidy(ctx, tenant))
}

// dropLevel deletes the windows of a level that begin before a time, and with raw windows
// the records.
func (u *Upkeep) dropLevel(ctx context.Context, tenant string, level store.Level, before time.Time) error {
	err := u.options.Store.Drop(ctx, tenant, level, before)
	if records, ok := u.options.Store.(store.Records); ok && level == store.Raw {
		err = errors.Join(err, records.DropRecords(ctx, tenant, before))
	}
	return err
}

// Overdue counts the steps of all tenants that should have been rolled up by now.
func (u *Upkeep) Overdue(ctx context.Context) (n int, err error) {
	tenants, err := u.options.Store.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range tenants {
		stale, err := u.options.Store.Stale(ctx, tenant)
		if err != nil {
			return 0, err
		}
		for _, step := range stale {
			if u.now().Sub(step.Start.Add(step.Level.Length())) > overdue {
				n++
			}
		}
	}
	return n, nil
}
