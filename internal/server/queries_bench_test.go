package server

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// A service as package disk's benchmarks have it, on machines of its own, and
// what else a fleet runs: series that a question has to pass by.
const (
	askedInstances = 280
	askedOthers    = 720 // instances of other services
	askedWindows   = 12  // of each, of ten seconds
	askedShapes    = 50  // different windows, put again and again
	askedMute      = 10  // nodes that have told nothing of their machine
	askedStacks    = 20_000
	askedRows      = 800
	askedDepth     = 27
)

// BenchmarkAsk asks for flame graphs and functions as users do, of windows as they were cut:
// what comes in are bytes of a request, what goes out is compressed for a command
// or a page for a browser.
func BenchmarkAsk(b *testing.B) {
	dir := b.TempDir()
	kept := openAsked(b, dir)
	fillAsked(b, kept)
	if err := kept.Close(); err != nil {
		b.Fatal(err)
	}
	of := func(selector string) func() *http.Request {
		return func() *http.Request {
			return askOf(b, atysv1connect.QueryMergeProcedure, &atysv1.MergeRequest{Selection: askedOf(selector)})
		}
	}
	top := func(selector string) func() *http.Request {
		return func() *http.Request {
			return askOf(b, atysv1connect.QueryTopProcedure, &atysv1.TopRequest{Selection: askedOf(selector), Limit: 100})
		}
	}
	for _, ask := range []struct {
		name    string
		request func() *http.Request
	}{
		{"service", of(`{service="shop"}`)},
		{"instance", of(`{service="shop", instance="web-3"}`)},
		{"top", top(`{service="shop"}`)},
		{"top of ten instances", top(`{service="shop", instance=~"web-1."}`)},
		{"page", func() *http.Request { return httptest.NewRequest(http.MethodGet, "/flame?service=shop&last=2m", nil) }},
	} {
		b.Run(ask.name, func(b *testing.B) {
			kept := openAsked(b, dir) // the first finds nothing in memory
			defer kept.Close()
			h := askedServer(b, kept)
			var took []float64
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, ask.request())
				took = append(took, 1000*time.Since(began).Seconds())
				if w.Code != http.StatusOK || w.Body.Len() < 1000 {
					b.Fatalf("%d: %.200s", w.Code, w.Body)
				}
				b.ReportMetric(float64(w.Body.Len()), "bytes")
			}
			b.ReportMetric(took[0], "ms-first")
			if len(took) > 1 {
				middle, _ := stats.MedianInterval(took[1:])
				b.ReportMetric(middle.Value, "ms-median")
			}
		})
	}
}

func askedOf(selector string) *atysv1.Selection {
	return &atysv1.Selection{Select: selector, Kind: spec.KindCPU, FromUnixNano: noon.UnixNano(), ToUnixNano: noon.Add(2 * time.Minute).UnixNano()}
}

func askOf(b *testing.B, procedure string, message proto.Message) *http.Request {
	body, err := proto.Marshal(message)
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, procedure, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/proto")
	r.Header.Set("Accept-Encoding", "gzip")
	return r
}

func openAsked(b *testing.B, dir string) store.Store {
	s, err := disk.Open(disk.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// askedServer is one that all agents have reported to.
func askedServer(b *testing.B, kept store.Store) http.Handler {
	s, err := New(Options{Store: kept, Admission: Admission{Local: true}, Hosts: []string{"example.com"}, Now: func() time.Time { return noon.Add(2 * time.Minute) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	for i := range askedInstances + askedOthers {
		if _, err := s.Report(context.Background(), &atysv1.ReportRequest{Node: fmt.Sprintf("node-%d", i), Targets: []*atysv1.Target{{Labels: askedLabels(i)}},
			Tasks: []*atysv1.TaskState{{Id: "builtin", Phase: "running"}}}); err != nil {
			b.Fatal(err)
		}
	}
	return s.Handler()
}

func askedLabels(instance int) profile.Labels {
	service := "shop"
	if instance >= askedInstances {
		service = fmt.Sprintf("service-%02d", instance%19)
	}
	return profile.Labels{store.ServiceLabel: service, "instance": fmt.Sprintf("web-%d", instance), "node": fmt.Sprintf("node-%d", instance)}
}

func fillAsked(b *testing.B, s store.Store) {
	r := rand.New(rand.NewPCG(1, 2))
	f, leaves := profiletest.Forest(r, askedStacks, askedDepth)
	var shapes []store.Window
	for range askedShapes {
		shapes = append(shapes, askedWindow(r, askedRows))
	}
	small, none := askedWindow(r, 10), profile.RowsOf(1)
	for n := range askedWindows {
		batch := &store.Batch{Stacks: leaves, Forest: f}
		if n > 0 {
			batch.Forest = nil
		}
		add := func(w store.Window, labels profile.Labels) {
			w.Series, w.Head.Start = labels, noon.Add(time.Duration(n)*10*time.Second)
			batch.Windows = append(batch.Windows, w)
		}
		for i := range askedInstances + askedOthers {
			labels, w := askedLabels(i), small
			if i < askedInstances {
				w = shapes[(i*7+n)%askedShapes]
			}
			add(w, labels)
			if i >= askedMute {
				w.Rows = none
				add(w, profile.Labels{"node": labels["node"]})
			}
		}
		if err := s.Put(context.Background(), auth.DefaultTenant, store.Raw, batch); err != nil {
			b.Fatal(err)
		}
	}
}

// askedWindow has some stacks that are hot in all windows, and some of its own.
func askedWindow(r *rand.Rand, rows int) store.Window {
	const period, scale = 52631579, 52631579 / 2
	zipf, swap, counts := rand.NewZipf(r, 1.05, 3, askedStacks-1), r.Perm(askedStacks), map[uint32]int64{}
	w := store.Window{Scales: []int64{scale}, Rows: profile.RowsOf(1), Head: profile.Head{Task: "builtin", Duration: 10 * time.Second, Design: profile.DesignRandomised,
		Types: []profile.ValueType{{Kind: spec.KindCPU, Unit: "nanoseconds", Period: period}}, Exact: profile.Exact{CPU: time.Duration(r.Int64N(4e10)), Source: "schedstat"}}}
	for len(counts) < rows {
		at := int(zipf.Uint64())
		if r.IntN(4) == 0 {
			at = swap[at]
		}
		counts[uint32(at)]++
	}
	for stack, n := range counts {
		value := (2*n + r.Int64N(n+1)) * scale
		squares := profile.Alike(n, value) + float64(r.Int64N(n))*scale*scale
		w.Rows.Append(profile.Row{Stack: profile.StackID(stack), N: n, Values: []int64{value}, Squares: []float64{squares}})
	}
	return w
}
