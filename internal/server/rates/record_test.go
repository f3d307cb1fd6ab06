package rates

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
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

// TestReasonsAreRecorded has agents write into windows what they are ordered, which has no
// words. Where rates are asked for, each still has them: after the records of the day on which
// it was decided are gone, too.
func TestReasonsAreRecorded(t *testing.T) {
	midnight := noon.Truncate(24 * time.Hour).Add(24 * time.Hour)
	d := decide(t, mem.New(1), t.TempDir(), midnight.Add(-6*length))
	d.apply(t, adapting)
	d.tell(t, "x", "shop")
	rate := profile.Rate{Hertz: 999, Policy: "atys", Reason: string(freq.Began)}
	for range 9 {
		d.push(t, ratedWindow("x", "shop", d.last, rate, serving))
		d.last = d.last.Add(length)
		d.wait(t)
		for _, r := range d.told(t, "x").GetTasks()[0].GetRates() {
			rate = wire.RateOf(r.GetRate())
		}
	}
	want := d.status(t, "adapting").GetRates()[0].GetRate()
	if rate.Why != "" || rate.Reason == string(freq.Began) || want.GetReason() != rate.Reason || want.GetWhy() == "" {
		t.Fatalf("ordered is %+v, and decided was %v", rate, want)
	}
	if err := d.kept.DropRecords(t.Context(), "default", midnight.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	d.kept.Settle()
	asker := query.Asker{Store: d.kept, Tenant: "default", Now: d.now.UTC}
	rows, _, err := asker.Rates(t.Context(), query.Selection{Task: "adapting", Kinds: []string{"cpu"}, From: midnight.Add(length), To: d.last}, true)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v, %v", rows, err)
	}
	for _, row := range rows {
		if row.Rate.Why != want.GetWhy() || row.Rate.Reason != want.GetReason() {
			t.Errorf("at %v: %+v, want %v", row.Start, row.Rate, want)
		}
	}
}
