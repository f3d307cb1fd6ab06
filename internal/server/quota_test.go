package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// TestRoom fills a tenant's quota over days: the oldest windows are dropped, by
// and by, what came today never; who is full of that is told to wait, and
// another tenant hears nothing of it.
func TestRoom(t *testing.T) {
	var log bytes.Buffer
	quotas := store.Quotas(func(tenant string) store.Quota {
		if tenant == "small" {
			return store.Quota{Bytes: 150_000}
		}
		return store.Quota{}
	})
	kept := mem.New(1)
	kept.Quotas = quotas
	now := noon
	s, err := New(Options{Store: kept, Quotas: quotas, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	as := func(tenant string) context.Context {
		return auth.With(t.Context(), auth.Identity{Tenant: tenant, Role: auth.Agent})
	}
	push := func(tenant string, i int, start time.Time) error {
		p, _ := request(t, false, "shop", start)
		p.Windows[0].Task = fmt.Sprint(i)
		_, err := s.Push(as(tenant), p)
		return err
	}
	for day := range 6 {
		now = noon.Add(time.Duration(day) * 24 * time.Hour)
		for i := range 12 {
			for _, tenant := range []string{"small", "large"} {
				if err := push(tenant, i, now.Add(-time.Hour)); err != nil {
					t.Fatalf("day %d, window %d of %s: %v", day, i, tenant, err)
				}
			}
			kept.Settle()
			if _, err := s.Upkeep.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	dropped, err := kept.Dropped(t.Context(), "small")
	if err != nil || !dropped[store.Raw].After(noon) || dropped[store.Raw].After(now) || !strings.Contains(log.String(), "its oldest windows are dropped") {
		t.Errorf("dropped %v, %v; the log says\n%s", dropped, err, log.String())
	}
	if dropped, err := kept.Dropped(t.Context(), "large"); err != nil || len(dropped) != 0 {
		t.Errorf("another tenant: dropped %v, %v", dropped, err)
	}
	if err := push("small", 1, noon); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "--quota") {
		t.Errorf("what is of a time that was dropped: %v", err)
	}
	var full error
	for i := 100; full == nil && i < 300; i++ {
		full = push("small", i, now)
		kept.Settle()
		if _, err := s.Upkeep.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if connect.CodeOf(full) != connect.CodeUnavailable || !strings.Contains(full.Error(), "quota of 150000 bytes") {
		t.Errorf("full of today's windows: %v", full)
	}
	if n := strings.Count(log.String(), "nothing to drop but what came today"); n != 1 {
		t.Errorf("it is logged %d times that nothing can be dropped:\n%s", n, log.String())
	}
	if err := push("large", 100, now); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	now = now.Add(24 * time.Hour)
	if _, err := s.Upkeep.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := push("small", 300, now); err != nil {
		t.Errorf("the day after: %v", err)
	}
	metrics := gathered(t, s.options.Registry)
	for _, want := range []string{`atys_server_over_quota_total{tenant="small"} 1`, `atys_server_quota_bytes{tenant="small"} 150000`,
		`atys_server_quota_dropped_bytes_total{level="raw",tenant="small"}`, `atys_server_store_bytes{of="raw",tenant="large"}`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
}

// TestCrowded has upkeep begin as soon as somebody finds no room.
func TestCrowded(t *testing.T) {
	quotas := store.Quotas(func(string) store.Quota { return store.Quota{Bytes: 20_000} })
	kept := mem.New(1)
	kept.Quotas = quotas
	s, err := New(Options{Store: kept, Quotas: quotas, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		s.Upkeep.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	time.Sleep(300 * time.Millisecond) // its first round is over
	for i := 0; ; i++ {
		b := storetest.Batch(profile.Run{1}, storetest.Window(1, "shop", "one", noon.Add(-48*time.Hour+time.Duration(i)*time.Second)))
		if err := kept.Put(t.Context(), "default", store.Raw, b); err != nil {
			break
		}
	}
	kept.Settle()
	p, _ := request(t, false, "shop", noon)
	crowded := time.Now()
	testwait.Until(t, "there is room", func() bool {
		_, err = s.Push(t.Context(), p)
		return err == nil
	}, func() string { return err.Error() })
	if took := time.Since(crowded); took > 15*time.Second/2 { // three quarters of the pause between rounds
		t.Errorf("there was no room for %v: upkeep was not early", took)
	}
}

// gathered is what Prometheus would be told.
func gathered(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// TestRefusedByName has a request hold windows of series that there is no room for,
// and of a time that is not kept: who can be told which has the others kept; to who
// cannot, an older agent, all are refused.
func TestRefusedByName(t *testing.T) {
	quotas := store.Quotas(func(string) store.Quota { return store.Quota{Series: 2} })
	for partly, want := range map[bool]int{true: 3, false: 0} {
		kept := mem.New(1)
		kept.Quotas = quotas
		s, err := New(Options{Store: kept, Quotas: quotas, Now: func() time.Time { return noon }, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		starts := []time.Time{noon, noon.Add(-time.Second), noon.Add(24 * time.Hour), noon.Add(-2 * time.Second), noon.Add(-3 * time.Second)}
		r, _ := request(t, false, "shop", starts...)
		for i, instance := range []string{"one", "two", "two", "more", "two"} {
			r.Windows[i].Series = uint32(len(r.Series))
			r.Series = append(r.Series, &atysv1.Series{Labels: map[string]string{"service": "shop", "instance": instance}})
		}
		r.Partly = partly
		response, err := s.Push(auth.With(t.Context(), auth.Identity{Tenant: "default", Role: auth.Agent}), r)
		if (err == nil) != partly || !partly && connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("partly %v: %v", partly, err)
		}
		var refused []uint32
		for _, one := range response.GetRefused() {
			refused = append(refused, one.GetWindow())
			if one.GetWhy() == "" || len(one.GetParts()) > 0 {
				t.Errorf("refused is %v", one)
			}
		}
		if partly && !slices.Equal(refused, []uint32{2, 3}) {
			t.Errorf("refused are %v, want the third and the fourth", refused)
		}
		if counted := testutil.ToFloat64(s.metrics.windows); counted != float64(want) {
			t.Errorf("partly %v: %v windows are counted, want %d", partly, counted, want)
		}
		if got, _ := held(t, kept); got != want {
			t.Errorf("partly %v: %d windows are there, want %d", partly, got, want)
		}
	}
}
