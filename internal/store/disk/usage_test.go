package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/storetest"
)

// TestUsage has many put at once until there is no room. What is counted is no
// less than the files have, while windows are in memory and after a restart, and
// the limit holds to one commit of each who puts.
func TestUsage(t *testing.T) {
	const quota, writers = 4 << 20, 8
	dir, ctx := t.TempDir(), context.Background()
	open := func() *Store {
		s, err := Open(Options{Dir: dir, Reserve: 1, Quotas: func(name string) store.Quota {
			if name == tenantName {
				return store.Quota{Bytes: quota}
			}
			return store.Quota{}
		}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	const block = 256 << 10 // a commit, or the edges of files
	var kept atomic.Int64
	put := func(s *Store, name string, n int) error {
		var all []*profile.Window
		for i := range 20 {
			all = append(all, storetest.Window(uint64(n*20+i), "shop", fmt.Sprint(i), storetest.Epoch.Add(time.Duration(n)*time.Second)))
		}
		return s.Put(ctx, name, store.Raw, storetest.Batch(profile.Run{1}, all...))
	}
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for n := writer; ; n += writers {
				err := put(s, tenantName, n)
				var full *store.QuotaError
				if errors.As(err, &full) {
					return
				}
				if err != nil || n > 10_000 {
					t.Errorf("window %d: %v", n, err)
					return
				}
				kept.Add(20)
			}
		})
	}
	all.Wait()
	usage := func(s *Store) int64 {
		t.Helper()
		u, err := s.Usage(ctx, tenantName)
		if err != nil {
			t.Fatal(err)
		}
		return u.Bytes()
	}
	if full := usage(s); full < quota*9/10 || full > quota+block {
		t.Errorf("%d bytes are counted when it is full, of %d", full, quota)
	}
	if err := put(s, "another", 0); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	if again := usage(s); bytes == 0 || again < bytes*9/10 || again > bytes+block {
		t.Errorf("%d bytes are counted after a restart, and files of %d are there", again, bytes)
	}
	stat, err := s.Stat(ctx)
	if err != nil || len(stat.Tenants) != 2 || stat.Tenants[0].Quota != quota || int64(stat.Tenants[0].Levels[0].Windows) != kept.Load() {
		t.Errorf("statistics are %+v, %v, and %d windows were kept", stat, err, kept.Load())
	}
}

// TestUsageOfFlushed holds that what was just written out counts once, though its
// table in memory is still there, and that of another tenant does not count at all.
func TestUsageOfFlushed(t *testing.T) {
	ctx := context.Background()
	s, err := Open(Options{Dir: t.TempDir(), Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill := func(name string, from int) {
		t.Helper()
		for n := from; n < from+40; n++ {
			var all []*profile.Window
			for i := range 20 {
				all = append(all, storetest.Window(uint64(n*20+i), "shop", fmt.Sprint(i), storetest.Epoch.Add(time.Duration(n)*time.Second)))
			}
			if err := s.Put(ctx, name, store.Raw, storetest.Batch(profile.Run{1}, all...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	usage := func() int64 {
		t.Helper()
		u, err := s.Usage(ctx, tenantName)
		if err != nil {
			t.Fatal(err)
		}
		return u.Bytes()
	}
	near := func(what string, got, want int64) {
		t.Helper()
		const margin = 2 * stride // what was written is known by strides, and files by blocks
		if got < want*9/10-margin || got > want*11/10+margin {
			t.Errorf("%s: %d bytes are counted, want about %d", what, got, want)
		}
	}
	fill(tenantName, 0)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	files := int64(s.db.Metrics().Total().TablesSize)
	if files < 500_000 {
		t.Fatalf("files of %d bytes only", files)
	}
	near("it was flushed", usage(), files)
	fill("another", 0)
	near("another one puts", usage(), files)
	before := s.db.written
	fill(tenantName, 100)
	near("it puts more", usage(), files+s.db.written-before)
}

// TestLargest tells which service has the most stacks, of those that have some.
func TestLargest(t *testing.T) {
	s := openOn(t, t.TempDir(), nil)
	defer s.Close()
	if service, bytes, err := s.Largest(t.Context(), tenantName); service != "" || bytes != 0 || err != nil {
		t.Errorf("of nothing: %q, %d bytes, %v", service, bytes, err)
	}
	for i, service := range []string{"shop", "cart", "cart", "cart"} {
		keep(t, s, storetest.Window(uint64(i), service, "one", storetest.Epoch))
	}
	if service, bytes, err := s.Largest(t.Context(), tenantName); service != "cart" || bytes == 0 || err != nil {
		t.Errorf("%q, %d bytes, %v", service, bytes, err)
	}
}
