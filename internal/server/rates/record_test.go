package rates

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
)

// unwritable is a store that cannot write records while there is an error.
type unwritable struct {
	*mem.Store
	err error
}

func (u *unwritable) PutRecords(ctx context.Context, tenant string, all []profile.Record) error {
	if u.err != nil {
		return u.err
	}
	return u.Store.PutRecords(ctx, tenant, all)
}

// TestHistoryOnFullDisk stores decisions late, each once, and the oldest never if there are
// too many.
func TestHistoryOnFullDisk(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	kept := &unwritable{mem.New(1), store.ErrFull}
	h := &history{store: kept}
	c := &course{adaptive: &adaptive{id: "1", name: "task", window: 10 * time.Second}, service: "shop"}
	want := mostWaiting + 5
	for i := range want {
		rate := profile.Rate{Hertz: float64(i), Policy: "atys", Reason: string(freq.Changed), Why: "it did", By: profile.ByServer}
		if err := h.add("default", c, rate, noon.Add(time.Duration(i-want)*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := h.flush(t.Context()); !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
	}
	kept.err = nil
	if err := errors.Join(h.flush(t.Context()), h.flush(t.Context())); err != nil || len(h.waiting) > 0 {
		t.Fatalf("%d tenants wait, %v", len(h.waiting), err)
	}
	kept.Settle()
	next := want - mostWaiting
	err := kept.ScanRecords(t.Context(), "default", store.RecordQuery{From: noon.Add(-time.Hour), To: noon.Add(time.Hour)}, func(r *profile.Record) error {
		d, err := freq.DecidedOf(r)
		if err != nil || int(d.Hertz) != next || d.Task != "task" || d.Why != "it did" || !r.Start.Equal(d.To) {
			return fmt.Errorf("decision %d is %+v, %v", next, d, err)
		}
		next++
		return nil
	})
	if err != nil || next != want {
		t.Errorf("%d decisions, %v", next, err)
	}
}
