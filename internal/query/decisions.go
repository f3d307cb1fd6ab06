package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// decisions are those of the server on the rates of services, by time.
type decisions map[rated][]freq.Decided

// decisions reads the decisions that were in force in a selection, on services that h has
// windows of.
func (a Asker) decisions(ctx context.Context, s Selection, h *history) (all decisions, damage store.Damage, err error) {
	records, ok := a.Store.(store.Records)
	if !ok || len(h.of) == 0 {
		return nil, damage, nil
	}
	var services spec.Selector // records have no other label
	for _, m := range s.Select {
		if m.Label == store.ServiceLabel {
			services = append(services, m)
		}
	}
	all = decisions{}
	q := store.RecordQuery{Kind: freq.RecordKind, Select: services, From: freq.Recorded(s.From), To: s.To}
	err = records.ScanRecords(ctx, a.Tenant, q, func(r *profile.Record) error {
		d, err := freq.DecidedOf(r)
		if err != nil { // of a later version: windows have the reason in a word
			return nil
		}
		if key := (rated{d.Task, d.Service}); h.of[key] != nil {
			all[key] = append(all[key], d)
		}
		return nil
	})
	if part := (*store.DamagedError)(nil); errors.As(err, &part) {
		damage, err = part.Damage, nil
	}
	if err != nil {
		return nil, damage, fmt.Errorf("read decisions on rates: %w", err)
	}
	for key := range all {
		slices.SortStableFunc(all[key], func(x, y freq.Decided) int { return x.To.Compare(y.To) })
	}
	return all, damage, nil
}

// explain says why the server decided on a rate. Without a record of that, as of windows from
// before decisions were recorded, the rate says what its windows do.
func (all decisions) explain(of rated, at time.Time, rate *profile.Rate) {
	if rate.By != profile.ByServer {
		return
	}
	known := all[of]
	until, _ := slices.BinarySearchFunc(known, at, func(d freq.Decided, at time.Time) int {
		if d.To.After(at) {
			return 1
		}
		return -1
	})
	for i := until - 1; i >= 0; i-- {
		// Instances are sent a decision some time after it: until then an earlier one is in force.
		d := &known[i]
		if math.Abs(d.Hertz-rate.Hertz) < 1e-3 && d.Policy == rate.Policy && (rate.Reason == "" || string(d.Reason) == rate.Reason) {
			rate.Reason, rate.Why = string(d.Reason), d.Why
			return
		}
	}
}
