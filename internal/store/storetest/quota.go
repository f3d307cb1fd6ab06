package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
)

// quotas are those of the suite: of some tenants that its tests name.
func quotas(tenant string) store.Quota {
	switch tenant {
	case "three series":
		return store.Quota{Series: 3}
	case "small":
		return store.Quota{Bytes: 100_000}
	case "smaller":
		return store.Quota{Bytes: 60_000}
	}
	return store.Quota{}
}

// testSeriesQuota has a tenant ask for more series than it may have: those that
// are there go on, and other tenants have no limit.
func testSeriesQuota(t *testing.T, b *bench) {
	put := func(tenant string, seed uint64, instance string) error {
		return b.Put(context.Background(), tenant, store.Raw, Batch(profile.Run{1}, Window(seed, "shop", instance, Epoch.Add(time.Duration(seed)*time.Second))))
	}
	for i := range uint64(3) {
		if err := put("three series", i, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(2) {
		var quota *store.QuotaError
		if err := put("three series", 3+i, "more"); !errors.As(err, &quota) || quota.Limit != 3 || quota.Later {
			t.Errorf("a fourth series: %v", err)
		}
	}
	if err := put("three series", 9, "1"); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	more, there := Window(10, "shop", "more", Epoch.Add(time.Minute)), Window(11, "shop", "2", Epoch.Add(time.Minute))
	var quota *store.QuotaError
	if err := b.Put(context.Background(), "three series", store.Raw, Batch(profile.Run{1}, more, there, more)); !errors.As(err, &quota) || len(quota.Refused) != 2 {
		t.Errorf("one that is there between others: %v", err)
	} else if _, refused := quota.Refused[1]; refused {
		t.Errorf("one that is there is refused: %v", quota.Refused)
	}
	if n := len(b.scan(t, "three series", always())); n != 4 {
		t.Errorf("%d windows are there, want those that were acknowledged, 4", n)
	}
	for i := range uint64(5) {
		if err := put(tenant, i, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// testCountsCame has what windows were added up to not count against the limit: as
// many come of other services as there may be.
func testCountsCame(t *testing.T, b *bench) {
	const tenant = "three series"
	put := func(labels profile.Labels) error {
		w := Window(1, "", "", Epoch)
		w.Target = labels
		return b.Put(context.Background(), tenant, store.Raw, Batch(profile.Run{1}, w))
	}
	of := func(service string) profile.Labels {
		return profile.Labels{store.ServiceLabel: service, "instance": "one"}
	}
	for _, service := range []string{"shop", "cart", "mail"} {
		if err := put(of(service)); err != nil {
			t.Fatalf("%s, when the others were added up: %v", service, err)
		}
		b.rollOf(t, tenant)
	}
	for _, labels := range []profile.Labels{of("search"), {store.ServiceLabel: "shop"}} {
		if err := put(labels); !errors.As(err, new(*store.QuotaError)) {
			t.Errorf("%v, a fourth: %v", labels, err)
		}
	}
}

// limited is a tenant of the property below, and what must be there of it.
type limited struct {
	name string
	kept []*profile.Window // acknowledged, and not dropped since
	full int               // answers
}

// testBytesQuota has tenants put windows at random, add them up, and drop the
// oldest day when there is no room: nobody exceeds its quota by more than what was
// put last, what was acknowledged is there until it is dropped, and one who is
// full stops nobody else.
func testBytesQuota(t *testing.T, b *bench) {
	ctx, r := context.Background(), rand.New(rand.NewPCG(5, 5))
	tenants := []*limited{{name: "small"}, {name: "smaller"}, {name: "without"}}
	usage := func(of *limited) *store.Usage {
		t.Helper()
		u, err := b.Usage(ctx, of.name)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	// within holds what one commit did against the quota.
	within := func(of *limited, level store.Level, before int64, err error) {
		t.Helper()
		quota := quotas(of.name)
		var full *store.QuotaError
		switch refused := errors.As(err, &full); {
		case err != nil && !refused:
			t.Fatal(err)
		case refused && (!full.Later || full.What != "bytes" || full.Limit != quota.Bytes || usage(of).Bytes() > before):
			t.Fatalf("%s: %v, and takes %d bytes after %d", of.name, full, usage(of).Bytes(), before)
		case !refused && quota.Full(level, before) && usage(of).Bytes() > before+100: // a mark is no window
			t.Fatalf("%s: had %d bytes of %d, and more was kept", of.name, before, quota.Bytes)
		case refused && before < quota.Bytes*9/10:
			t.Fatalf("%s: had %d bytes of %d, and no more was kept", of.name, before, quota.Bytes)
		}
	}
	for i := range uint64(400) {
		of := tenants[r.IntN(len(tenants))]
		today := Epoch.Add(time.Duration(i/40) * 24 * time.Hour)
		if i%20 == 19 && b.settle == nil { // one that shows windows late adds up late
			steps, err := b.Stale(ctx, of.name)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range steps[:min(len(steps), 5)] {
				before := usage(of).Bytes()
				within(of, step.Level, before, b.Roll(ctx, of.name, step))
			}
			continue
		}
		w := Window(2000+i%6, "shop", fmt.Sprint(r.IntN(4)), today.Add(time.Duration(i)*time.Second))
		before := usage(of).Bytes()
		err := b.Put(ctx, of.name, store.Raw, Batch(profile.Run{1}, w))
		within(of, store.Raw, before, err)
		if err == nil {
			of.kept = append(of.kept, w)
			continue
		}
		of.full++
		level, until, ok := usage(of).Oldest(today)
		if !ok {
			continue // all of it is today's
		}
		if err := b.Drop(ctx, of.name, level, until); err != nil {
			t.Fatal(err)
		}
		if dropped, err := b.Dropped(ctx, of.name); err != nil || !dropped[level].Equal(until) {
			t.Fatalf("%s: dropped %v, %v, want before %v", of.name, dropped, err, until)
		}
		if after := usage(of).Bytes(); after >= before {
			t.Fatalf("%s: took %d bytes, and after a day was dropped %d", of.name, before, after)
		}
		if level == store.Raw {
			of.kept = slices.DeleteFunc(of.kept, func(w *profile.Window) bool { return w.Start.Before(until) })
		}
	}
	for _, of := range tenants {
		t.Logf("%s: %d windows are there, %d were refused, %d bytes", of.name, len(of.kept), of.full, usage(of).Bytes())
		if limit := quotas(of.name).Bytes; (limit > 0) != (of.full > 0) || len(of.kept) == 0 {
			t.Errorf("%s: a quota of %d, and %d answers that it is full", of.name, limit, of.full)
		}
		q := always()
		q.To = Epoch.Add(30 * 24 * time.Hour)
		got := b.scan(t, of.name, q)
		if len(got) != len(of.kept) {
			t.Errorf("%s: %d windows are there, want %d", of.name, len(got), len(of.kept))
		}
		for _, want := range of.kept {
			at := slices.IndexFunc(got, func(w *profile.Window) bool { return w.Start.Equal(want.Start) })
			if at < 0 {
				t.Fatalf("%s: what was put of %v is not there", of.name, want.Start)
			}
			if diff := profiletest.DiffKept(want, got[at]); diff != "" {
				t.Errorf("%s: %v:\n%s", of.name, want.Start, diff)
			}
		}
	}
}
