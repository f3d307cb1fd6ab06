package upkeep

import (
	"log/slog"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
)

// left counts the records of a tenant.
func left(t *testing.T, s *mem.Store) (n int) {
	t.Helper()
	s.Settle()
	q := store.RecordQuery{From: noon.Add(-1000 * time.Hour), To: noon.Add(1000 * time.Hour)}
	if err := s.ScanRecords(t.Context(), "default", q, func(*profile.Record) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func putRecord(t *testing.T, s *mem.Store, at time.Time, bytes int) {
	t.Helper()
	r := profile.Record{Series: profile.Labels{"service": "shop"}, Kind: "decision", Start: at, Payload: make([]byte, bytes)}
	if err := s.PutRecords(t.Context(), "default", []profile.Record{r}); err != nil {
		t.Fatal(err)
	}
}

// TestRecordsRetention drops records together with raw windows.
func TestRecordsRetention(t *testing.T) {
	kept, now := mem.New(1), noon
	u := New(Options{Store: kept, Retention: Retention{store.Raw: 48 * time.Hour, store.Service1m: time.Hour}, Tidy: func() {}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	putRecord(t, kept, noon, 1)
	putRecord(t, kept, noon.Add(-24*time.Hour), 1)
	for days, want := range []int{2, 2, 1, 0} {
		now = noon.Add(time.Duration(days) * 24 * time.Hour)
		if err := u.drop(t.Context(), "default", now); err != nil {
			t.Fatal(err)
		}
		if n := left(t, kept); n != want {
			t.Errorf("after %d days %d records are left, want %d", days, n, want)
		}
	}
}

// TestRecordsQuota drops the oldest records if they take most of a quota.
func TestRecordsQuota(t *testing.T) {
	kept := mem.New(1)
	quotas := store.Quotas(func(string) store.Quota { return store.Quota{Bytes: 100_000} })
	kept.Quotas = quotas
	u := New(Options{Store: kept, Quotas: quotas, Tidy: func() {}, Now: func() time.Time { return noon }, Log: slog.New(slog.DiscardHandler)})
	for day := range 10 {
		putRecord(t, kept, noon.Add(time.Duration(day-9)*24*time.Hour), 9_000)
	}
	if _, err := u.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	usage, err := kept.Usage(t.Context(), "default")
	if n := left(t, kept); err != nil || n < 8 || n > 9 || usage.Bytes() > 90_000 {
		t.Errorf("%d records are left, of %d bytes, %v", n, usage.Bytes(), err)
	}
}
