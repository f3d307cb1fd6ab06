package disk

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/storetest"
)

// TestServicesEnd has each day's services be others: what the store has of a tenant
// does not grow, over restarts too, and stacks of a service that ended are asked for.
func TestServicesEnd(t *testing.T) {
	ctx, dir, today := context.Background(), t.TempDir(), storetest.Epoch.Truncate(day)
	windowOf := func(d, service int) *profile.Window {
		return storetest.Window(uint64(service), fmt.Sprint("service-", d, "-", service), "one", today.Add(time.Duration(d)*day))
	}
	const days, services = 8, 5
	calls := 0
	for d := range days {
		s := openOn(t, dir, vfs.Default)
		for service := range services {
			w := windowOf(d, service)
			if err := s.Put(ctx, tenantName, store.Raw, storetest.Batch(profile.Run{1}, w)); err != nil {
				t.Fatal(err)
			}
			if service == 0 && d > 2 { // one that ended, by who believes it is known
				b := storetest.Batch(profile.Run{1}, windowOf(d-3, 0))
				b.Forest = nil
				if err := s.Put(ctx, tenantName, store.Raw, b); !errors.As(err, new(*store.UnknownError)) {
					t.Errorf("day %d: stacks of a service that ended are not asked for: %v", d, err)
				}
			}
		}
		err := s.Drop(ctx, tenantName, store.Raw, today.Add(time.Duration(d)*day))
		if err := errors.Join(err, s.Tidy(ctx, tenantName), s.Tidy(ctx, tenantName)); err != nil {
			t.Fatal(err)
		}
		stat, err := s.Stat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		of := stat.Tenants[0]
		if calls == 0 {
			calls = of.Calls
		}
		if of.Series != services || of.Dictionaries != services || of.Calls != calls || len(s.tenants[tenantName].series) > 2*services {
			t.Errorf("day %d: %d series of %d numbers, %d dictionaries, %d calls of %d", d, of.Series, len(s.tenants[tenantName].series), of.Dictionaries, of.Calls, calls)
		}
		seen := 0
		err = s.Scan(ctx, tenantName, store.Query{From: today, To: today.Add(days * day)}, func(w *profile.Window, _ profile.Run) error {
			for service := range services {
				if want := windowOf(d, service); want.Target.String() == w.Target.String() {
					if diff := profiletest.DiffKept(want, w); diff != "" {
						t.Errorf("%s:\n%s", w.Target, diff)
					}
					seen++
				}
			}
			return nil
		})
		if err := errors.Join(err, s.Close()); err != nil || seen != services {
			t.Errorf("day %d: %d windows, %v", d, seen, err)
		}
	}
}

// TestTidiesMeanwhile puts a window of a series, and begins to put another one,
// while it is looked for whether anything is left of it.
func TestTidiesMeanwhile(t *testing.T) {
	ctx := context.Background()
	s := openOn(t, t.TempDir(), vfs.Default)
	defer s.Close()
	if err := errors.Join(put(s, 0), s.Drop(ctx, tenantName, store.Raw, storetest.Epoch.Add(day))); err != nil {
		t.Fatal(err)
	}
	db, tenant := s.db, s.tenants[tenantName]
	r, err := s.resolver(tenantName, storetest.Batch(profile.Run{1}, numbered(1)))
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.encode(store.Raw)
	if err != nil {
		t.Fatal(err)
	}
	r.shelf.putBack()
	db.release()
	suspects := s.suspects(tenant)
	if err := db.search(ctx, tenant, suspects); err != nil || len(suspects["shop"]) != 1 {
		t.Fatalf("%d series have no windows, %v", len(suspects["shop"]), err)
	}
	if err := s.commit(ctx, before); !errors.Is(err, errTidied) {
		t.Errorf("numbers of before are written: %v", err)
	}
	if err := put(s, 2); err != nil {
		t.Fatal(err)
	}
	tenant.mu.Lock()
	tenant.giveBack(suspects)
	tenant.mu.Unlock()
	if seen := there(t, s, everything()); !seen[2] || len(seen) != 1 {
		t.Errorf("windows %v are there", seen)
	}
}
