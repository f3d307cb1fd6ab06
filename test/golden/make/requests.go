package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/relay"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/golden"
)

// life is how long agents and relays live that are recorded.
const life = 7 * time.Second

// makeRequests records what agents and relays ask a server: one agent ships to it, one
// to a relay that passes windows on, two to one that adds them up.
func makeRequests(ctx context.Context, dir, scratch string) (err error) {
	began, recorder := time.Now(), &golden.Recorder{Dir: dir}
	now := func() time.Time { return golden.Now().Add(time.Since(began)) }
	kept, err := disk.Open(disk.Options{Dir: filepath.Join(scratch, "kept"), Reserve: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	at, err := golden.Serve(kept, "", now, func(next http.Handler) http.Handler { return bySender(recorder, next) })
	if err != nil {
		return err
	}
	defer at.Close()
	control := atysv1connect.NewControlClient(at.As(auth.Operator), at.URL, golden.Asking())
	order := `{"kind":"Profile","name":"always","window":"1s","kinds":["cpu"],"frequency":{"min":19,"max":99,"policy":"auto"},"events":["page-faults"]}`
	if _, err := control.Apply(ctx, &atysv1.ApplyRequest{Objects: []string{order}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	passing := relayOf(ctx, &running, at, now, "passing", nil)
	defer passing.Close()
	adding := relayOf(ctx, &running, at, now, "adding", []string{"service", "zone"})
	defer adding.Close()
	failed := make(chan error, 4)
	for node, to := range map[string]*remote.Server{"n1": remote.New(sending(at.As(auth.Agent), "agent"), at.URL),
		"n2": remote.New(passing.Client(), passing.URL), "n3": remote.New(adding.Client(), adding.URL), "n4": remote.New(adding.Client(), adding.URL)} {
		running.Go(func() { failed <- runAgent(ctx, node, to, filepath.Join(scratch, node), now) })
	}
	for range 4 {
		err = errors.Join(err, <-failed)
	}
	cancel()
	return errors.Join(err, recorder.Err())
}

// senderHeader tells the recorder who sends. It is not part of what is recorded.
const senderHeader = "Golden-Sender"

// bySender records what agents and relays ask; what people ask passes.
func bySender(r *golden.Recorder, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		sender := q.Header.Get(senderHeader)
		q.Header.Del(senderHeader)
		if sender == "" {
			next.ServeHTTP(w, q)
			return
		}
		r.Of(sender, next).ServeHTTP(w, q)
	})
}

// sending is a client whose requests are recorded.
func sending(c *http.Client, sender string) *http.Client {
	return &http.Client{Transport: sends{sender, c.Transport}}
}

type sends struct {
	sender string
	next   http.RoundTripper
}

// RoundTrip says who sends.
func (s sends) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Header.Set(senderHeader, s.sender)
	return s.next.RoundTrip(q)
}

// relayOf runs a relay. Whoever reaches its socket may ship: who may is tested elsewhere.
func relayOf(ctx context.Context, running *sync.WaitGroup, at *golden.Served, now func() time.Time, name string, keep []string) *httptest.Server {
	upstream := remote.New(sending(at.As(auth.Relay), name), at.URL)
	r := relay.New(relay.Options{Offer: &atysv1.OfferRequest{Name: name, Address: "http://127.0.0.1:1", Version: "golden", Labels: map[string]string{"zone": name}},
		Upstream: upstream, Gather: 300 * time.Millisecond, Keep: keep, Now: now})
	running.Go(func() { r.Run(ctx) })
	return httptest.NewServer(golden.RelayHandler(r))
}

// runAgent runs one until the context ends.
func runAgent(ctx context.Context, node string, to *remote.Server, dir string, now func() time.Time) (err error) {
	waiting, err := spool.Open(filepath.Join(dir, "spool"), 8<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	waiting.Lose(spool.Losses{Dropped: 3, Refused: 1}) // by an earlier life
	builtin := spec.Builtin()
	builtin.Window = time.Second
	a, err := agent.New(agent.Options{Node: node, Labels: profile.Labels{"zone": "z-" + node}, Version: "golden", Builtin: builtin, Spool: waiting, Intake: to, Fleet: to,
		Metrics: "127.0.0.1:1", Now: now, Look: time.Second,
		Record: func(w agent.Wanted) (sampler.Sampler, error) {
			return &recording{wanted: w, node: node, now: now, last: now()}, nil
		}})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// recording is a sampler without a kernel: it cuts windows of this process, whose rows
// are of every shape.
type recording struct {
	wanted agent.Wanted
	node   string
	now    func() time.Time

	mu   sync.Mutex // guards all below
	last time.Time
	cuts int
}

// Cut gives what was sampled since the last.
func (r *recording) Cut(sampler.Edge) ([]*profile.Window, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	p := program{service: "shop", shape: func(m *maker) {
		h := m.Head()
		h.Target, h.Duration, h.Slot, h.Watched, h.Idle = nil, now.Sub(r.last), r.wanted.Slot, 2*now.Sub(r.last), now.Sub(r.last)
		if r.wanted.Event != "" && r.wanted.Event != "cpu-clock" {
			h.Types = []profile.ValueType{{Kind: r.wanted.Event, Unit: "count", Period: 1}}
		}
		h.AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "ring full", N: 2, Value: 2 * period})
		m.rows(12, func(row *profile.Row) {
			row.Thread = m.Thread(profile.Thread{PID: []int{os.Getpid(), 999_999}[m.r.IntN(2)], TID: 10 + m.r.IntN(3), Process: "shop", Name: "http-exec-1"})
			row.Context = m.Context(profile.Context{Endpoint: "GET /"})
			row.Stack = m.stack([]profile.End{profile.EndComplete, profile.EndComplete, profile.EndNotLoaded, profile.EndStarting}[m.r.IntN(4)])
		})
	}}
	w := make1(p, r.node, r.last, r.cuts)
	w.Start = r.last
	r.last = now
	r.cuts++
	return []*profile.Window{w}, nil
}

// Aim aims at nothing new.
func (r *recording) Aim([]int, []int) bool { return false }

// Full is never so.
func (r *recording) Full() float64 { return 0.1 }

// SetFrequency changes nothing.
func (r *recording) SetFrequency(float64) error { return nil }

// SetRates changes nothing.
func (r *recording) SetRates(map[int]float64) error { return nil }

// Spent is little.
func (r *recording) Spent() (bpf, interrupts time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.cuts) * time.Millisecond, time.Duration(r.cuts) * 100 * time.Microsecond, nil
}

// Close ends it.
func (r *recording) Close() error { return nil }
