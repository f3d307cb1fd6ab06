package rates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// history stores the decisions by which rates have moved, as records, and each day those that
// still hold.
type history struct {
	store   store.Records               // nil: they are not stored
	waiting map[string][]profile.Record // to be stored, by tenant
}

// mostWaiting is how many decisions of a tenant wait while they cannot be stored: newer ones
// replace the oldest.
const mostWaiting = 1000

// add adds a decision by an interval.
func (h *history) add(tenant string, c *course, rate profile.Rate, from time.Time) error {
	if h.store == nil {
		return nil
	}
	d := freq.Decided{Task: c.name, Service: c.service, Hertz: rate.Hertz, Policy: rate.Policy, Reason: freq.Reason(rate.Reason), Why: rate.Why,
		From: from.UTC(), To: from.Add(c.window).UTC()}
	record, err := d.Record()
	if err != nil {
		return err
	}
	if h.waiting == nil {
		h.waiting = map[string][]profile.Record{}
	}
	waiting := append(h.waiting[tenant], record)
	h.waiting[tenant] = waiting[max(0, len(waiting)-mostWaiting):]
	return nil
}

// flush stores the decisions that wait. It tries again with the next those that it could not
// store, unless they never can be.
func (h *history) flush(ctx context.Context) (failed error) {
	for _, tenant := range slices.Sorted(maps.Keys(h.waiting)) {
		err := h.store.PutRecords(ctx, tenant, h.waiting[tenant])
		var quota *store.QuotaError
		if err == nil || errors.As(err, &quota) && !quota.Later {
			delete(h.waiting, tenant)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
			failed = errors.Join(failed, fmt.Errorf("tenant %q: %w", tenant, err))
		}
	}
	return failed
}
