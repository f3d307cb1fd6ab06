package upkeep

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
)

func TestParseQuotas(t *testing.T) {
	got, err := ParseQuotas([]string{"50GB", "team-a=1.5TB", "free=0", "team-b=50GiB"}, []string{"team-a=1000"})
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]store.Quota{
		"other":  {Bytes: 50e9, Series: store.DefaultSeries},
		"team-a": {Bytes: 1.5e12, Series: 1000},
		"free":   {Bytes: 0, Series: store.DefaultSeries},
		"team-b": {Bytes: 50 << 30, Series: store.DefaultSeries},
	} {
		if q := got.Of(tenant); q != want {
			t.Errorf("%s: %+v, want %+v", tenant, q, want)
		}
	}
	if none, err := ParseQuotas(nil, nil); err != nil || none.Of("any") != (store.Quota{Series: store.DefaultSeries}) {
		t.Errorf("without flags: %v", err)
	}
	for _, text := range []string{"", "50", "GB", "-1GB", "99MB", "50gb", "NaNGB", "InfTB", "99999999TB", "../x=50GB", "a=", "a=b=1GB"} {
		if _, err := ParseQuotas([]string{text}, nil); err == nil {
			t.Errorf("%q is taken for a quota", text)
		}
	}
	if _, err := ParseQuotas([]string{"1GB", "2GB"}, nil); err == nil {
		t.Error("two for the same tenants are taken")
	}
	for _, text := range []string{"0", "-1", "1GB", "x"} {
		if _, err := ParseQuotas(nil, []string{text}); err == nil {
			t.Errorf("%q is taken for a number of series", text)
		}
	}
}

// filled is a store of a tenant whose stacks take as much as it may have.
type filled struct {
	*mem.Store
	stacks int64
	drops  int
}

func (f *filled) Usage(context.Context, string) (*store.Usage, error) {
	return &store.Usage{Stacks: f.stacks, Levels: map[store.Level]store.LevelUsage{
		store.Raw:       {Bytes: 50_000, First: noon.Add(-48 * time.Hour)},
		store.Service1h: {Bytes: 5_000, First: noon.Add(-96 * time.Hour)},
		store.Service1d: {Bytes: 5_000, First: noon.Add(-96 * time.Hour)},
	}}, nil
}

func (f *filled) Drop(ctx context.Context, tenant string, level store.Level, before time.Time) error {
	f.drops++
	f.stacks = 0
	return f.Store.Drop(ctx, tenant, level, before)
}

func (f *filled) Largest(context.Context, string) (string, int64, error) { return "shop", 70_000, nil }

// TestRoomOfStacks drops no window for a quota that stacks fill: it would all be gone,
// and the quota as full as before. It is told once.
func TestRoomOfStacks(t *testing.T) {
	for stacks, vain := range map[int64]bool{84_000: false, 85_000: true, 95_000: true} {
		var log bytes.Buffer
		quotas := store.Quotas(func(string) store.Quota { return store.Quota{Bytes: 100_000} })
		kept := &filled{Store: mem.New(1), stacks: stacks}
		u := New(Options{Store: kept, Quotas: quotas, Now: func() time.Time { return noon }, Log: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			if err := u.room(t.Context(), "default", noon); err != nil {
				t.Fatal(err)
			}
		}
		told := strings.Count(log.String(), "full of stacks")
		if vain && (kept.drops > 0 || told != 1 || !strings.Contains(log.String(), "\"most of\"=shop")) || !vain && (kept.drops == 0 || told > 0) {
			t.Errorf("%d bytes of stacks: %d times something was dropped; the log says\n%s", stacks, kept.drops, log.String())
		}
	}
}
