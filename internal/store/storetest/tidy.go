package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
)

// testTidies has series end: they count as long as anything is left of them.
func testTidies(t *testing.T, b *bench) {
	const tenant = "three series"
	ctx, midnight := context.Background(), Epoch.Truncate(24*time.Hour).Add(24*time.Hour)
	put := func(instance string, start time.Time) error {
		err := b.Put(ctx, tenant, store.Raw, Batch(profile.Run{1}, Window(7, "shop", instance, start)))
		if b.settle != nil {
			b.settle(b.Store)
		}
		return err
	}
	fits := func(what, instance string, start time.Time, want bool) {
		t.Helper()
		if err := b.Tidy(ctx, tenant); err != nil {
			t.Fatal(err)
		}
		err := put(instance, start)
		if full := (*store.QuotaError)(nil); err != nil && !errors.As(err, &full) || (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range 3 {
		if err := put(fmt.Sprint(i), Epoch); err != nil {
			t.Fatal(err)
		}
	}
	fits("all have windows", "new", midnight, false)
	for _, step := range stepsOf(store.Series10m) {
		if err := b.Roll(ctx, tenant, step); err != nil {
			t.Fatal(err)
		}
	}
	drop := func(level store.Level) {
		t.Helper()
		if err := b.Drop(ctx, tenant, level, midnight); err != nil {
			t.Fatal(err)
		}
	}
	drop(store.Raw)
	fits("all have roll-ups", "new", midnight, false)
	if err := put("2", midnight); err != nil {
		t.Fatal(err)
	}
	drop(store.Series10m)
	fits("two have nothing", "new", midnight, true)
	fits("one has nothing", "newer", midnight, true)
	fits("all have windows again", "newest", midnight, false)
	fits("one that had ended", "0", midnight, false)
	q := always()
	q.From = midnight
	names := map[string]bool{}
	for _, w := range b.scan(t, tenant, q) {
		want := Window(7, "shop", w.Target["instance"], midnight)
		if diff := profiletest.DiffKept(want, w); diff != "" {
			t.Errorf("%s:\n%s", w.Target, diff)
		}
		names[w.Target["instance"]] = true
	}
	if len(names) != 3 || !names["2"] || !names["new"] || !names["newer"] {
		t.Errorf("there are windows of %v", names)
	}
}

// stepsOf are those of a level that Epoch lies in.
func stepsOf(level store.Level) (steps []store.Step) {
	for _, step := range store.Steps(Epoch) {
		if step.Level == level {
			steps = append(steps, step)
		}
	}
	return steps
}

// testTidiesBusy drops days and tidies while windows come of series and services
// that come and go: each that was acknowledged and not dropped is there as it was
// put, under its own labels.
func testTidiesBusy(t *testing.T, b *bench) {
	ctx, today := context.Background(), Epoch.Truncate(24*time.Hour)
	const days, writers, perDay = 6, 4, 12
	windowOf := func(writer, day, n int) *profile.Window {
		of := day*writers + writer // each writer's services live for a day
		return Window(uint64(of*perDay+n), fmt.Sprint("service-", of), fmt.Sprint(n%3), today.Add(time.Duration(day)*24*time.Hour+time.Duration(n)*time.Minute))
	}
	for day := range days {
		var all sync.WaitGroup
		for writer := range writers {
			all.Go(func() {
				for n := range perDay {
					batch := Batch(profile.Run{1}, windowOf(writer, day, n))
					known := batch.Forest
					batch.Forest = nil // as one who believes that all is known
					err := b.Put(ctx, tenant, store.Raw, batch)
					if unknown := (*store.UnknownError)(nil); errors.As(err, &unknown) {
						batch.Forest = known
						err = b.Put(ctx, tenant, store.Raw, batch)
					}
					if err != nil {
						t.Errorf("day %d: %v", day, err)
					}
				}
			})
		}
		all.Go(func() {
			for range 5 {
				err := b.Drop(ctx, tenant, store.Raw, today.Add(time.Duration(day)*24*time.Hour))
				if err := errors.Join(err, b.Tidy(ctx, tenant)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Wait()
		got := b.scan(t, tenant, store.Query{From: today, To: today.Add(days * 24 * time.Hour)})
		there := map[string]*profile.Window{}
		for _, w := range got {
			there[w.Target.String()+w.Start.UTC().String()] = w
		}
		if len(got) != writers*perDay {
			t.Errorf("day %d: %d windows are there, want %d", day, len(got), writers*perDay)
		}
		for writer := range writers {
			for n := range perDay {
				want := windowOf(writer, day, n)
				w := there[want.Target.String()+want.Start.UTC().String()]
				if w == nil {
					t.Errorf("day %d: %s is not there", day, want.Target)
				} else if diff := profiletest.DiffKept(want, w); diff != "" {
					t.Errorf("day %d: %s:\n%s", day, want.Target, diff)
				}
			}
		}
	}
}
