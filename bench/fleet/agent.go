package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Habits of a real agent: see package agent.
const (
	jitter      = windowLength / 2
	reportEvery = 20 * time.Second
)

// agent is one machine with one instance of a service, as the server sees it.
type agent struct {
	load *load

	number   int
	service  *service
	build    *build
	instance string
	run      profile.Run
	message  *atysv1.Series
	series   []byte // packed
	next     int    // of the build's shapes
	guess    wire.Guess
	known    []bool        // stacks that the server is thought to know
	told     []bool        // and those that it was told of by this agent
	waited   time.Duration // for answers about a window

	client    *http.Client
	server    *remote.Server
	functions *promexport.Functions
	registry  *prometheus.Registry
}

// newAgent is the life-th of the instances in one place: those that follow each
// other have names of their own, as pods have.
func newAgent(l *load, number, life int, s *service, b *build) (*agent, error) {
	a := &agent{load: l, number: number, service: s, build: b, instance: fmt.Sprintf("%s-%d-%d", s.name, number, life),
		next: rand.IntN(windowsOf), known: make([]bool, len(b.number)), told: make([]bool, len(b.number))}
	for i := range a.run {
		a.run[i] = byte(rand.UintN(256))
	}
	a.message = &atysv1.Series{Labels: a.labels()}
	var err error
	if a.series, err = packSeries(a.message); err != nil {
		return nil, err
	}
	u, err := url.Parse(l.server)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: address(number)}} // limits are of each address
	a.client = &http.Client{Transport: &auth.Bearer{Token: l.token, Scheme: u.Scheme, Host: u.Host,
		Next: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second}}}
	a.server = remote.New(a.client, l.server)
	if l.prometheus != 0 {
		a.functions, a.registry = promexport.NewFunctions(nil), prometheus.NewRegistry()
		if err := a.registry.Register(a.functions); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *agent) labels() profile.Labels {
	return profile.Labels{store.ServiceLabel: a.service.name, "instance": a.instance, "node": a.node(), "zone": fmt.Sprintf("zone-%d", a.number%3)}
}

func (a *agent) node() string { return fmt.Sprintf("node-%d", a.number) }

// address is one of this machine's own that no other agent has.
func address(number int) net.IP {
	number++
	return net.IPv4(127, byte(1+number/62500), byte(number/250%250), byte(1+number%250))
}

// live attends, reports, and sends windows until the context ends; what is on
// its way then is waited for.
func (a *agent) live(ctx context.Context) {
	defer a.client.CloseIdleConnections()
	go remote.Stand(ctx, a.attend, func(int, error) { a.load.counts.add(func(c *counts) { c.Reconnects++ }) })
	go a.report(ctx)
	for start := time.Now().Truncate(windowLength); ; start = start.Add(windowLength) {
		due := start.Add(windowLength + time.Duration(rand.Int64N(int64(jitter))))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		a.send(start)
		if a.functions != nil {
			a.functions.Add(a.hot(start), topFunctions)
		}
	}
}

func (a *agent) attend(ctx context.Context, heard func()) error {
	request := &atysv1.AttendRequest{Node: a.node(), Run: a.run[:], Version: "bench", Labels: map[string]string{"zone": a.message.GetLabels()["zone"]}}
	return a.server.AttendTo(ctx, request, func(*atysv1.Orders) error {
		heard()
		return nil
	})
}

func (a *agent) report(ctx context.Context) {
	every := time.NewTicker(reportEvery)
	defer every.Stop()
	for {
		r := &atysv1.ReportRequest{Node: a.node(), Run: a.run[:], Version: "bench", Targets: []*atysv1.Target{{Labels: a.message.GetLabels(), Processes: 1}},
			Tasks: []*atysv1.TaskState{{Id: task, Phase: "running", Targets: 1}}, State: &atysv1.NodeState{MetricsAddress: a.load.metricsAddress(a.number)}}
		if _, err := a.server.Report(ctx, r); err != nil && ctx.Err() == nil {
			a.load.counts.failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// send sends a window until the server has it, and notes how long that took: all
// trips, and pauses between them, but not to put requests together, for which real
// agents have machines of their own.
func (a *agent) send(start time.Time) {
	s := a.build.shapes[a.next%windowsOf]
	a.next++
	began := time.Now()
	a.waited = 0
	for failures := 0; ; {
		err := a.sendOnce(s, start)
		if err == nil {
			a.load.counts.took(a.instance, began.Sub(a.load.from), a.waited)
			return
		}
		failures++
		a.load.counts.failed(err)
		if time.Since(a.load.until) > patience {
			a.load.counts.add(func(c *counts) { c.Unsent++ })
			return
		}
		pause := remote.Backoff(failures)
		time.Sleep(pause)
		a.waited += pause
	}
}

// sendOnce explains what a real agent would: see shipper.push.
func (a *agent) sendOnce(s *shape, start time.Time) error {
	manner, known := a.guess.Next(), a.known
	if manner == wire.ExplainAll {
		known = a.told
	}
	var doubtful []int
	for _, n := range s.stacks {
		if !known[n] {
			doubtful = append(doubtful, n)
		}
	}
	explained := doubtful
	if manner == wire.ExplainNothing {
		explained = nil
	}
	unknown, err := a.push(s, start, explained, false)
	if err != nil {
		return err
	}
	if manner == wire.ExplainNothing && len(doubtful) > 0 {
		a.guess.Learn(len(unknown), len(doubtful))
	}
	if len(unknown) > 0 {
		explained = explained[:0]
		for _, h := range unknown {
			explained = append(explained, a.build.number[h])
		}
		if unknown, err = a.push(s, start, explained, true); err != nil {
			return err
		}
		if len(unknown) > 0 {
			return fmt.Errorf("%d stacks are not known that were just explained", len(unknown))
		}
	}
	for _, n := range explained {
		a.told[n] = true
	}
	for _, n := range s.stacks {
		a.known[n] = true
	}
	return nil
}

// push sends a window once, with what explains some stacks, in case they are
// unknown or anyway.
func (a *agent) push(s *shape, start time.Time, explained []int, ifUnknown bool) (unknown []profile.Hash, err error) {
	body := a.request(s, start, explained, ifUnknown)
	a.load.counts.add(func(c *counts) { c.Bytes += int64(len(body)) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.load.server+atysv1connect.IntakePushProcedure, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/proto")
	r.Header.Set("Content-Encoding", wire.ZstdName)
	r.Header.Set("Connect-Protocol-Version", "1")
	began := time.Now()
	defer func() { a.waited += time.Since(began) }()
	answer, err := a.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.Header.Get("Content-Encoding") == wire.ZstdName { // as the request was
		text, err = unpacker().DecodeAll(text, nil)
	}
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", answer.Status, text)
	}
	m := &atysv1.PushResponse{}
	if err := proto.Unmarshal(text, m); err != nil {
		return nil, err
	}
	return wire.Hashes(m.GetUnknown())
}

// request is put together of parts that were packed before, but for what explains
// some of its stacks. One that has to explain most of them explains all.
func (a *agent) request(s *shape, start time.Time, explained []int, ifUnknown bool) []byte {
	if len(explained) == 0 {
		return s.packed.request(a.series, nil, a.run, start)
	}
	a.load.counts.add(func(c *counts) { c.Explained++ })
	dictionary := s.packed.dictionary
	if 2*len(explained) < len(s.stacks) {
		dictionary = a.build.explaining(explained)
	}
	return s.packed.request(a.series, explains(dictionary, ifUnknown), a.run, start)
}

// topFunctions is how many functions of its instance an agent shows to Prometheus.
const topFunctions = 10

// hot is a window with as many functions as are shown, and a few more.
func (a *agent) hot(start time.Time) *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: task, Start: start, Duration: windowLength, Target: a.labels(),
		Types: []profile.ValueType{profile.CPUTime(1)}})
	for i := range int64(topFunctions + 2) {
		f := profile.Frame{Function: fmt.Sprintf("github.com/acme/shop/internal/%s.(*Handler).function%04d", a.service.name, i), File: "/src/handler.go", Kind: profile.KindNative}
		used := rand.Int64N(int64(windowLength) / (i + 2))
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{b.Named(f)}, profile.EndComplete), N: 1, Values: []int64{used}, Squares: []float64{float64(used) * float64(used)}})
	}
	return b.Window()
}

// patience is how long windows are tried after the load has ended.
const patience = time.Minute
