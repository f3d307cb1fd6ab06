package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/storetest"
)

func keep(t *testing.T, s *Store, windows ...*profile.Window) {
	t.Helper()
	if err := s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, windows...)); err != nil {
		t.Fatal(err)
	}
}

func stale(t *testing.T, s *Store) []store.Step {
	t.Helper()
	steps, err := s.Stale(context.Background(), tenantName)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func rollAll(t *testing.T, s *Store) {
	t.Helper()
	for _, step := range stale(t, s) { // those of a level come behind those below it
		if err := s.Roll(context.Background(), tenantName, step); err != nil {
			t.Fatal(err)
		}
	}
}

func reopened(t *testing.T, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{Dir: s.options.Dir})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestStaleStays has marks be there after the store is opened again, and gone
// once their steps are added up.
func TestStaleStays(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, storetest.Window(1, "shop", "one", storetest.Epoch))
	want := stale(t, s)
	s = reopened(t, s)
	if got := stale(t, s); len(got) != len(store.RolledUp()) || !slices.Equal(got, want) {
		t.Errorf("these are stale: %v, before %v", got, want)
	}
	rollAll(t, s)
	s = reopened(t, s)
	if got := stale(t, s); len(got) != 0 {
		t.Errorf("these are stale again: %v", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRollsWhilePut adds a step up again and again while its windows come: at
// the end nothing is missing of it.
func TestRollsWhilePut(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	minute := store.Step{Level: store.Service1m, Start: storetest.Epoch}
	var windows []*profile.Window
	for i := range uint64(200) {
		windows = append(windows, storetest.Window(i, "shop", fmt.Sprint(i), storetest.Epoch.Add(time.Second)))
	}
	var writers sync.WaitGroup
	for part := range slices.Chunk(windows, 20) {
		writers.Go(func() {
			for _, w := range part {
				keep(t, s, w)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if err := s.Roll(context.Background(), tenantName, minute); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(stale(t, s), minute) {
		t.Error("the step is stale with nobody left who writes")
	}
	var want int64
	for _, w := range windows {
		want += w.Total(0)
	}
	m, err := s.Merge(context.Background(), tenantName, []store.Query{{Level: minute.Level, From: minute.Start, To: minute.Start.Add(time.Minute)}}, "cpu", store.Grouping{})
	if err != nil {
		t.Fatal(err)
	}
	var got int64
	for _, sum := range m.Columns[0].Sums {
		got += sum.Value
	}
	if got != want || m.Columns[0].Windows != len(windows) {
		t.Errorf("%d of %d windows: %d, want %d", m.Columns[0].Windows, len(windows), got, want)
	}
}

// TestBackup copies a store that is written to, and damages the copy.
func TestBackup(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := Open(Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range uint64(50) {
		keep(t, s, storetest.Window(i, "shop", fmt.Sprint(i%5), storetest.Epoch.Add(time.Duration(i)*time.Minute)))
	}
	rollAll(t, s)
	dir := filepath.Join(t.TempDir(), "backup")
	if err := s.Backup(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(dir); err == nil {
		t.Error("a backup went over another")
	}
	keep(t, s, storetest.Window(99, "shop", "later", storetest.Epoch))
	want, err := s.Stat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	got, err := copied.Stat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if w, g := want.Tenants[0], got.Tenants[0]; g.Levels[0].Windows != 50 || w.Levels[0].Windows != 51 || g.Series != w.Series-1 || g.Calls == 0 || g.Levels[1].Windows != w.Levels[1].Windows {
		t.Errorf("the copy has %+v, the store %+v", g, w)
	}
	check := func() (problems []string, err error) {
		err = copied.Check(ctx, func(problem string) { problems = append(problems, problem) })
		return problems, err
	}
	if problems, err := check(); err != nil || len(problems) != 0 {
		t.Errorf("a fresh copy is damaged: %q, %v", problems, err)
	}
	if err := copied.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, dir)
	copied, err = Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if problems, err := check(); err == nil && len(problems) == 0 {
		t.Error("a damaged copy is called whole")
	}
}

// damage turns a byte over in the middle of each table of a database.
func damage(t *testing.T, dir string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, name := range tables {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 0xff
		if err := os.Remove(name); err != nil { // the store may share it
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRollDamaged leaves a step stale of which something cannot be read.
func TestRollDamaged(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	keep(t, s, storetest.Window(1, "shop", "one", storetest.Epoch))
	w := storetest.Window(1, "shop", "one", storetest.Epoch)
	key := windowKey(tenantName, store.Raw, "shop", 0, w.Head.Start, w.Head.Task, profile.Run{2})
	if err := s.db.Set(key, []byte(strings.Repeat("?", 99)), nil); err != nil {
		t.Fatal(err)
	}
	minute := store.Step{Level: store.Service1m, Start: storetest.Epoch}
	var bad *store.DamagedError
	if err := s.Roll(context.Background(), tenantName, minute); !errors.As(err, &bad) {
		t.Errorf("a step with a damaged window is added up: %v", err)
	}
	if !slices.Contains(stale(t, s), minute) {
		t.Error("it is not stale any more")
	}
}

// TestSeriesQuota has a tenant ask for more series than it may have: those that
// are there go on.
func TestSeriesQuota(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Quotas: func(string) store.Quota { return store.Quota{Series: 3} }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range uint64(3) {
		keep(t, s, storetest.Window(i, "shop", fmt.Sprint(i), storetest.Epoch))
	}
	for i := range uint64(2) {
		var quota *store.QuotaError
		err := s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, storetest.Window(i, "shop", "more", storetest.Epoch)))
		if !errors.As(err, &quota) || quota.Limit != 3 {
			t.Errorf("a fourth series: %v", err)
		}
	}
	keep(t, s, storetest.Window(9, "shop", "1", storetest.Epoch.Add(time.Minute)))
	rollAll(t, s)
	other := storetest.Batch(profile.Run{1}, storetest.Window(5, "shop", "of another tenant", storetest.Epoch))
	if err := s.Put(context.Background(), "another", store.Raw, other); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}
