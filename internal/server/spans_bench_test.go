package server

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// BenchmarkSpans draws the largest service of a thousand instances, over ten minutes, an hour
// and a day that ended five minutes ago: from roll-ups, as a server keeps them.
func BenchmarkSpans(b *testing.B) {
	kept := openAsked(b, b.TempDir())
	defer kept.Close()
	fillSpans(b, kept)
	h := askedServer(b, kept)
	of := func(span time.Duration) *atysv1.Selection {
		return &atysv1.Selection{Select: `{service="shop"}`, Kind: spec.KindCPU, FromUnixNano: spansEnd.Add(-span).UnixNano(), ToUnixNano: spansEnd.UnixNano()}
	}
	asks := map[string]func() *http.Request{}
	for name, span := range map[string]time.Duration{"10m": 10 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour} {
		asks["merge of "+name] = func() *http.Request {
			return askOf(b, atysv1connect.QueryMergeProcedure, &atysv1.MergeRequest{Selection: of(span)})
		}
		asks["page of "+name] = func() *http.Request {
			return httptest.NewRequest(http.MethodGet, "/flame?service=shop&to="+spansEnd.Format(time.RFC3339)+"&last="+name, nil)
		}
		asks["flame of "+name] = func() *http.Request {
			return askOf(b, atysv1connect.QueryFlameProcedure, &atysv1.FlameRequest{Selection: of(span)})
		}
	}
	day := of(24 * time.Hour)
	asks["split of 24h"] = func() *http.Request { // one line of what series has of services
		return askOf(b, atysv1connect.QuerySplitProcedure, &atysv1.SplitRequest{Selection: day, By: "service", StepNs: int64(10 * time.Minute)})
	}
	asks["split of 24h, a function"] = func() *http.Request { // one line of what series has of functions
		return askOf(b, atysv1connect.QuerySplitProcedure, &atysv1.SplitRequest{Selection: day, Function: "f1", StepNs: int64(10 * time.Minute)})
	}
	asks["series of 24h, services"] = func() *http.Request {
		return askOf(b, atysv1connect.QuerySeriesProcedure, &atysv1.SeriesRequest{Selection: day, By: "service", StepNs: int64(10 * time.Minute)})
	}
	asks["series of 24h, functions"] = func() *http.Request {
		return askOf(b, atysv1connect.QuerySeriesProcedure, &atysv1.SeriesRequest{Selection: day, StepNs: int64(10 * time.Minute)})
	}
	for name, ask := range asks {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, ask())
				if w.Code != http.StatusOK || w.Body.Len() < 1000 {
					b.Fatalf("%d: %.200s", w.Code, w.Body)
				}
				b.ReportMetric(float64(w.Body.Len()), "bytes")
			}
		})
	}
}

var spansEnd = noon.Add(5 * time.Minute)

// fillSpans puts a day of roll-ups, and five minutes of windows of a minute.
func fillSpans(b *testing.B, s store.Store) {
	r := rand.New(rand.NewPCG(1, 2))
	f, leaves := profiletest.Forest(r, askedStacks, askedDepth)
	put := func(level store.Level, from, to time.Time) {
		for at := from; at.Before(to); at = at.Add(level.Length()) {
			batch := &store.Batch{Stacks: leaves, Forest: f, Windows: []store.Window{rolledWindow(r, at, level.Length())}}
			if err := s.Put(context.Background(), auth.DefaultTenant, level, batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	put(store.Service1m, noon.Add(-time.Hour), spansEnd)
	put(store.Service10m, noon.Add(-25*time.Hour), noon)
	put(store.Service1h, noon.Add(-25*time.Hour), noon)
}

// rolledWindow is what a service of askedInstances adds up to.
func rolledWindow(r *rand.Rand, start time.Time, length time.Duration) store.Window {
	const period, scale = 52631579, 52631579 / 2
	windows := askedInstances * int(length/(10*time.Second))
	w := store.Window{Of: windows, Series: profile.Labels{store.ServiceLabel: "shop"}, Scales: []int64{scale}, Rows: profile.RowsOf(1),
		Head: profile.Head{Task: "builtin", Start: start, Duration: length, Design: profile.DesignRandomised,
			Types: []profile.ValueType{{Kind: spec.KindCPU, Unit: "nanoseconds", Period: period}}, Exact: profile.Exact{CPU: time.Duration(windows) * 20 * time.Second, Source: "schedstat"}}}
	for stack := range askedStacks {
		n, value := int64(0), int64(0)
		for range store.Groups {
			mean := float64(windows*askedRows) / store.Groups / float64(stack+3) / 10
			of := max(0, int64(mean+math.Sqrt(mean)*r.NormFloat64()))
			n, value = n+of, value+2*of
			w.Groups = append(w.Groups, 2*of*scale)
		}
		if n == 0 {
			w.Groups = w.Groups[:len(w.Groups)-store.Groups]
			continue
		}
		value *= scale
		w.Rows.Append(profile.Row{Stack: profile.StackID(stack), N: n, Values: []int64{value}, Squares: []float64{1.08 * profile.Alike(n, value)}})
	}
	return w
}
