package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// gathered is what a scrape returns.
func gathered(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// watched tells what is done to a store.
type watched struct {
	*mem.Store
	rolled  []store.Step
	dropped map[store.Level]time.Time
	tidied  int
}

func (w *watched) Roll(ctx context.Context, tenant string, step store.Step) error {
	w.rolled = append(w.rolled, step)
	return w.Store.Roll(ctx, tenant, step)
}

func (w *watched) Drop(ctx context.Context, tenant string, level store.Level, before time.Time) error {
	w.dropped[level] = before
	return w.Store.Drop(ctx, tenant, level, before)
}

func (w *watched) Tidy(ctx context.Context, tenant string) error {
	w.tidied++
	return w.Store.Tidy(ctx, tenant)
}

func TestUpkeep(t *testing.T) {
	ctx := context.Background()
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := begin
	kept := &watched{Store: mem.New(1), dropped: map[store.Level]time.Time{}}
	u := New(Options{Store: kept, Now: func() time.Time { return now },
		Retention: Retention{store.Raw: 48 * time.Hour, store.Service1h: 0}, Log: slog.New(slog.DiscardHandler)})
	put := func(instance string, at time.Duration) {
		t.Helper()
		b := storetest.Batch(profile.Run{1}, storetest.Window(uint64(at), "shop", instance, begin.Add(at)))
		if err := kept.Put(ctx, "default", store.Raw, b); err != nil {
			t.Fatal(err)
		}
		kept.Settle()
	}
	// rolls gives the levels of the steps that are added up at a time.
	rolls := func(at time.Duration) (levels []store.Level) {
		t.Helper()
		now, kept.rolled = begin.Add(at), nil
		if _, err := u.Round(ctx); err != nil {
			t.Fatal(err)
		}
		for _, step := range kept.rolled {
			levels = append(levels, step.Level)
		}
		return levels
	}
	put("one", time.Second)
	for _, step := range []struct {
		at   time.Duration
		want []store.Level
	}{
		{89 * time.Second, nil},
		{90 * time.Second, []store.Level{store.Service1m}},
		{100 * time.Second, nil},
		{10*time.Minute + 29*time.Second, nil},
		{10*time.Minute + 30*time.Second, []store.Level{store.Series10m, store.Service10m}},
		{60*time.Minute + 30*time.Second, []store.Level{store.Series1h, store.Service1h}},
	} {
		if got := rolls(step.at); !slices.Equal(got, step.want) {
			t.Errorf("%v after: levels %v are added up, want %v", step.at, got, step.want)
		}
	}
	put("late", 2*time.Second)
	all := []store.Level{store.Series10m, store.Series1h, store.Service1m, store.Service10m, store.Service1h}
	if got := rolls(80 * time.Minute); !slices.Equal(got, all) {
		t.Errorf("after a late window levels %v are added up", got)
	}
	put("later", 3*time.Second)
	if got := rolls(81 * time.Minute); len(got) != 0 {
		t.Errorf("and a minute later %v once more", got)
	}
	if got := rolls(90 * time.Minute); !slices.Equal(got, all) {
		t.Errorf("and then %v", got)
	}
	if want := map[store.Level]time.Time{store.Raw: begin.Add(80*time.Minute - 48*time.Hour)}; !maps.Equal(kept.dropped, want) {
		t.Errorf("dropped are %v, want %v", kept.dropped, want)
	}
	if kept.tidied == 0 {
		t.Error("the store is never tidied")
	}
	if got := rolls(12*time.Hour + 30*time.Second); !slices.Equal(got, []store.Level{store.Service1d}) {
		t.Errorf("once the day is over %v are added up", got)
	}
}

// measured counts how often tenants are.
type measured struct {
	*mem.Store
	times int
}

func (m *measured) Usage(ctx context.Context, tenant string) (*store.Usage, error) {
	m.times++
	return m.Store.Usage(ctx, tenant)
}

// TestScrapesMeasureNothing has Prometheus be told what upkeep has measured, and
// when that was.
func TestScrapesMeasureNothing(t *testing.T) {
	kept, now := &measured{Store: mem.New(1)}, noon
	u := New(Options{Store: kept, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	registry := prometheus.NewRegistry()
	registry.MustRegister(u)
	b := storetest.Batch(profile.Run{1}, storetest.Window(1, "shop", "one", noon))
	if err := kept.Put(t.Context(), "default", store.Raw, b); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	if told := gathered(t, registry); kept.times != 0 || strings.Contains(told, "atys_server_store_bytes") {
		t.Errorf("measured %d times before upkeep:\n%s", kept.times, told)
	}
	for _, step := range []struct {
		after time.Duration
		times int
	}{{0, 1}, {roundEvery, 1}, {measureEvery, 2}} {
		now = noon.Add(step.after)
		if _, err := u.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := noon.Unix()
		if step.times == 2 {
			at = now.Unix()
		}
		told := gathered(t, registry)
		if want := fmt.Sprintf("atys_server_store_measured_timestamp_seconds{tenant=\"default\"} %v\n", float64(at)); kept.times != step.times || !strings.Contains(told, want) || !strings.Contains(told, `atys_server_store_bytes{of="raw",tenant="default"}`) {
			t.Errorf("%v after: measured %d times, want %s in\n%s", step.after, kept.times, want, told)
		}
	}
}

// worn says of each step that something below it is damaged.
type worn struct{ *mem.Store }

func (w worn) Roll(ctx context.Context, tenant string, step store.Step) error {
	if err := w.Store.Roll(ctx, tenant, step); err != nil {
		return err
	}
	return store.Damage{Parts: 1}.Err()
}

// TestUpkeepOfDamaged has no round fail for what was added up but for what is
// damaged, and no level wait for the one below it.
func TestUpkeepOfDamaged(t *testing.T) {
	kept := worn{mem.New(1)}
	u := New(Options{Store: kept, Now: func() time.Time { return noon }, Log: slog.New(slog.DiscardHandler)})
	b := storetest.Batch(profile.Run{1}, storetest.Window(1, "shop", "one", noon.Add(-48*time.Hour)))
	if err := kept.Put(t.Context(), "default", store.Raw, b); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	if more, err := u.Round(t.Context()); err != nil || more {
		t.Errorf("more %v, %v", more, err)
	}
	if left, err := kept.Stale(t.Context(), "default"); err != nil || len(left) > 0 {
		t.Errorf("to be added up still: %v, %v", left, err)
	}
}

// slowly takes a second for each step, by a clock of its own.
type slowly struct {
	*mem.Store
	now    time.Time
	rolled map[string]int
}

func (s *slowly) Roll(ctx context.Context, tenant string, step store.Step) error {
	s.now = s.now.Add(time.Second)
	s.rolled[tenant]++
	return s.Store.Roll(ctx, tenant, step)
}

// TestTurns has a tenant whose windows are of many hours not hold up another one.
func TestTurns(t *testing.T) {
	kept := &slowly{Store: mem.New(1), now: noon, rolled: map[string]int{}}
	u := New(Options{Store: kept, Now: func() time.Time { return kept.now }, Log: slog.New(slog.DiscardHandler)})
	for tenant, windows := range map[string]int{"busy": 100, "quiet": 1} {
		for i := range windows {
			b := storetest.Batch(profile.Run{1}, storetest.Window(uint64(i), "shop", "one", noon.Add(-time.Duration(i+2)*time.Hour)))
			if err := kept.Put(t.Context(), tenant, store.Raw, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept.Settle()
	more, err := u.Round(t.Context())
	if err != nil || !more || kept.rolled["busy"] != int(turn/time.Second) || kept.rolled["quiet"] == 0 {
		t.Errorf("one round: %v steps, more %v, %v", kept.rolled, more, err)
	}
	for rounds := 0; more; rounds++ {
		if more, err = u.Round(t.Context()); err != nil || rounds > 1000 {
			t.Fatalf("round %d: %v", rounds, err)
		}
	}
	if kept.rolled["busy"] != 504 || kept.rolled["quiet"] != 5 {
		t.Errorf("in the end %v steps were added up", kept.rolled)
	}
}

func TestParseRetention(t *testing.T) {
	got, err := ParseRetention("raw=2d, 1h=400d")
	day := 24 * time.Hour
	if want := (Retention{store.Raw: 2 * day, store.Series1h: 400 * day, store.Service1h: 400 * day}); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := ParseRetention(DefaultRetention); err != nil || len(got) != 7 {
		t.Errorf("the default is %v, %v", got, err)
	}
	for _, text := range []string{"", "raw", "raw=", "raw=2", "raw=2h", "raw=0d", "raw=-1d", "2m=2d", "raw=99999d", "raw=2d,", "raw=2d,raw=3d"} {
		if got, err := ParseRetention(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}
