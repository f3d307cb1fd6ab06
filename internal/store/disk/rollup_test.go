package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
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
	m, err := s.Merge(context.Background(), tenantName, storetest.Of("cpu", store.Query{Level: minute.Level, From: minute.Start, To: minute.Start.Add(time.Minute)}), store.Grouping{})
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

// nth is the key of the n-th window at a level.
func nth(t *testing.T, s *Store, level store.Level, n int) key {
	t.Helper()
	prefix := levelKey(tenantName, level)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		t.Fatal(err)
	}
	for valid := it.First(); valid && n > 0; n-- {
		valid = it.Next()
	}
	if !it.Valid() {
		t.Fatal("there are not so many")
	}
	at := slices.Clone(it.Key())
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return at
}

// scratched has the n-th window at a level be other bytes.
func scratched(t *testing.T, s *Store, level store.Level, n int) {
	t.Helper()
	if err := s.db.Set(nth(t, s, level, n), []byte("?"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// torn has the n-th window at a level lie under a key that none has.
func torn(t *testing.T, s *Store, level store.Level, n int) {
	t.Helper()
	at := nth(t, s, level, n)
	if err := errors.Join(s.db.Delete(at, pebble.Sync), s.db.Set(append(at, 0), nil, pebble.Sync)); err != nil {
		t.Fatal(err)
	}
}

// rollDamaged adds up all that is stale, and gives how many parts are told to be damaged.
func rollDamaged(t *testing.T, s *Store) (parts int) {
	t.Helper()
	for _, step := range stale(t, s) {
		var damaged *store.DamagedError
		switch err := s.Roll(context.Background(), tenantName, step); {
		case errors.As(err, &damaged):
			parts += damaged.Parts
		case err != nil:
			t.Fatal(err)
		}
	}
	return parts
}

// rolled is how many windows of a service a level has, and how many parts it says
// were damaged when they were added up.
func rolled(t *testing.T, s *Store, level store.Level, service string) (windows int, lost int64) {
	t.Helper()
	q := store.Query{Level: level, From: storetest.Epoch.Add(-48 * time.Hour), To: storetest.Epoch.Add(48 * time.Hour)}
	if service != "" {
		q.Select = spec.Selector{{Label: store.ServiceLabel, Op: spec.Equal, Value: service}}
	}
	m, err := s.Merge(context.Background(), tenantName, storetest.Of("cpu", q), store.Grouping{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Columns {
		windows += c.Windows
		lost += c.Head.LossOf(profile.LossStoreDamage).N
	}
	return windows, lost
}

// TestRollDamaged adds up what can be read where one window is damaged, says so at
// each level, and still does once what it was added up from was dropped.
func TestRollDamaged(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const each = 30
	for i := range uint64(each) {
		at := storetest.Epoch.Truncate(time.Hour).Add(time.Duration(i) * 10 * time.Second)
		keep(t, s, storetest.Window(i, "bank", "one", at), storetest.Window(100+i, "shop", "two", at))
	}
	scratched(t, s, store.Raw, 3)
	if parts := rollDamaged(t, s); parts != 2 { // of the minute, and of the ten minutes of the series
		t.Errorf("%d parts are said to be damaged", parts)
	}
	if steps := stale(t, s); len(steps) > 0 {
		t.Errorf("to be added up again: %v", steps)
	}
	for _, level := range []store.Level{store.Raw, store.Series10m, store.Service1m} {
		if err := s.Drop(context.Background(), tenantName, level, storetest.Epoch.Add(48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	s = reopened(t, s)
	defer s.Close()
	for _, level := range []store.Level{store.Series1h, store.Service10m, store.Service1h, store.Service1d} {
		if windows, lost := rolled(t, s, level, "bank"); windows != each-1 || lost != 1 {
			t.Errorf("%v: %d windows, %d lost", level, windows, lost)
		}
		if windows, lost := rolled(t, s, level, "shop"); windows != each || lost != 0 {
			t.Errorf("%v: %d windows of another service, %d lost", level, windows, lost)
		}
	}
}

// TestRollNothingLeft has a service be told of of which nothing can be read, with
// no window of it.
func TestRollNothingLeft(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	keep(t, s, storetest.Window(1, "bank", "one", storetest.Epoch), storetest.Window(2, "shop", "two", storetest.Epoch))
	scratched(t, s, store.Raw, 0)
	rollDamaged(t, s)
	for _, level := range store.RolledUp() {
		if windows, lost := rolled(t, s, level, "bank"); windows != 0 || lost != 1 {
			t.Errorf("%v: %d windows, %d lost", level, windows, lost)
		}
		if windows, lost := rolled(t, s, level, ""); windows != 1 || lost != 1 {
			t.Errorf("%v: %d windows of all services, %d lost", level, windows, lost)
		}
	}
	var problems []string
	if err := s.Check(context.Background(), func(problem string) { problems = append(problems, problem) }); err != nil || len(problems) != 1 {
		t.Errorf("a check says %q, %v", problems, err)
	}
}

// TestRollStays has a window become damaged that was added up: what was made of it
// stays when something late comes, but where more came than was lost.
func TestRollStays(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range uint64(4) {
		keep(t, s, storetest.Window(i, "shop", "one", storetest.Epoch.Add(time.Duration(i)*time.Second)))
	}
	rollAll(t, s)
	scratched(t, s, store.Raw, 0)
	scratched(t, s, store.Raw, 1)
	for i, want := range []int{4, 4, 5} {
		keep(t, s, storetest.Window(uint64(10+i), "shop", "late", storetest.Epoch.Add(time.Duration(i)*time.Second)))
		if parts := rollDamaged(t, s); parts == 0 {
			t.Error("nobody says that something is damaged")
		}
		if windows, _ := rolled(t, s, store.Service1m, "shop"); windows != want {
			t.Errorf("%d windows after %d came late, want %d", windows, i+1, want)
		}
	}
}

// TestTells has a list of series, and a scan that is ended, say what is damaged.
func TestTells(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, instance := range []string{"one", "two"} {
		keep(t, s, storetest.Window(uint64(i), "shop", instance, storetest.Epoch), storetest.Window(uint64(9+i), "shop", instance, storetest.Epoch.Add(step)))
	}
	ctx, damaged := context.Background(), &store.DamagedError{}
	torn(t, s, store.Raw, 0)
	if all, err := s.Series(ctx, tenantName, everything()); err != nil || len(all) != 2 {
		t.Errorf("series that have other windows: %v, %v", all, err)
	}
	torn(t, s, store.Raw, 1)
	if all, err := s.Series(ctx, tenantName, everything()); !errors.As(err, &damaged) || damaged.Parts != 2 || len(all) != 1 || all[0]["instance"] != "two" {
		t.Errorf("a series that has no other windows: %v, %v", all, err)
	}
	enough := errors.New("one is enough")
	err = s.Scan(ctx, tenantName, everything(), func(*profile.Window, profile.Run) error { return enough })
	if !errors.Is(err, enough) || !errors.As(err, &damaged) || damaged.Parts != 2 {
		t.Errorf("a scan that is ended: %v", err)
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

// TestCountsCameAgain has what was added up not count against a quota after the store
// is opened again, and what came count: also of a series that has no label but its
// service's, once it comes.
func TestCountsCameAgain(t *testing.T) {
	o := Options{Dir: t.TempDir(), Reserve: 1, Quotas: func(string) store.Quota { return store.Quota{Series: 3} }}
	put := func(s *Store, labels profile.Labels) error {
		w := storetest.Window(1, "", "", storetest.Epoch)
		w.Target = labels
		return s.Put(t.Context(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, w))
	}
	shop, cart := profile.Labels{store.ServiceLabel: "shop"}, profile.Labels{store.ServiceLabel: "cart", "instance": "one"}
	s := openAs(t, o)
	if err := errors.Join(put(s, shop), put(s, cart)); err != nil {
		t.Fatal(err)
	}
	rollAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAs(t, o)
	defer s.Close()
	if err := errors.Join(put(s, shop), put(s, cart), put(s, profile.Labels{store.ServiceLabel: "mail"})); err != nil {
		t.Errorf("two that were there, and a third: %v", err)
	}
	if err := put(s, profile.Labels{store.ServiceLabel: "search"}); !errors.As(err, new(*store.QuotaError)) {
		t.Errorf("a fourth: %v", err)
	}
}
