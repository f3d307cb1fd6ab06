package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// works is a pipeline with one line, and what it has delivered.
type works struct {
	*Pipeline
	line  *Line
	spool *spool.Spool
	now   func() time.Time // set before anything is added

	mu        sync.Mutex // guards all below
	delivered []Delivery
}

func newWorks(t *testing.T, line Line, rules refine.Rules) *works {
	t.Helper()
	at, err := spool.Open(t.TempDir(), 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	w := &works{line: &line, spool: at, now: time.Now}
	line.Delivered = func(d Delivery) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delivered = append(w.delivered, d)
	}
	w.Pipeline = New(Options{Machine: profile.Labels{"node": "a"}, Rules: rules, Spool: at, Now: func() time.Time { return w.now() }, Log: slog.New(slog.DiscardHandler),
		Unspooled: func(spool.ID, [][]byte) { t.Error("the disk has taken nothing") }})
	w.Start(t.Context())
	return w
}

// spooled returns the samples on disk, and in how many bundles they are.
func (w *works) spooled(t *testing.T) (samples int64, bundles int) {
	t.Helper()
	ids := w.spool.Oldest(1000)
	for _, id := range ids {
		records, err := w.spool.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			m := &atysv1.Spooled{}
			if err := proto.Unmarshal(record, m); err != nil {
				t.Fatal(err)
			}
			for _, n := range m.GetWindow().GetRows().GetN() {
				samples += n
			}
		}
	}
	return samples, len(ids)
}

// slow names nothing before it is released, whatever becomes of the context.
type slow struct {
	released chan struct{}
	began    chan struct{}
	once     sync.Once
}

func newSlow() *slow { return &slow{released: make(chan struct{}), began: make(chan struct{})} }

func (s *slow) Name(_ context.Context, w *profile.Window) (*profile.Window, error) {
	s.once.Do(func() { close(s.began) })
	<-s.released
	for i := range w.Names { // also long after nobody waits for it
		w.Names[i] = []profile.Frame{{Function: "named"}}
	}
	return w, nil
}

// cutOf returns a cut of a process, which a target has been.
func cutOf(w *profile.Window, target string, namer *slow) *Cut {
	targets := make([]profile.Labels, len(w.Threads))
	for i := range targets {
		targets[i] = profile.Labels{"service": target}
	}
	c := &Cut{Window: w, Targets: TargetsOf(w.Threads, targets)}
	if namer != nil {
		c.Namer = namer
	}
	return c
}

// fill adds windows at once, of a second each, and returns their samples.
func (w *works) fill(windows int, namer *slow) (samples int64) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range windows {
		window := profiletest.Random(r)
		window.Start, window.Duration = time.Unix(int64(i), 0), time.Second
		samples += window.N()
		ends := &profile.Head{Cost: profile.Cost{User: time.Second}}
		w.Add(w.line, &Piece{Cuts: []*Cut{cutOf(window, []string{"shop", "cart"}[i/10%2], namer)}, Ends: ends})
	}
	return samples
}

// TestSlowNames has names take minutes: no window waits to be added, those that find no
// place are merged and counted, and nothing is lost once the names are there.
func TestSlowNames(t *testing.T) {
	w, names := newWorks(t, Line{}, nil), newSlow()
	const windows = 60
	began := time.Now()
	want := w.fill(windows, names)
	if took := time.Since(began); took > testwait.Longest(t)/2 {
		t.Errorf("adding took %v", took)
	}
	<-names.began
	if got, _ := w.spooled(t); got != 0 {
		t.Errorf("%d samples are there without names", got)
	}
	w.settled(t)
	close(names.released)
	<-w.Finish(testwait.Longest(t))
	got, bundles := w.spooled(t)
	if merged := int(w.Merged()); got != want || bundles+merged != windows || merged == 0 {
		t.Errorf("%d samples of %d in %d windows, %d merged", got, want, bundles, merged)
	}
	var cost time.Duration
	all := 0
	for _, d := range w.delivered {
		all += d.Windows
		cost += d.Unspent.User
		for _, part := range d.Parts {
			cost += part.Cost.User
			if part.Target["service"] != "" && part.Rows.Len() > 0 && len(part.Names) > 0 && part.Names[0][0].Function != "named" {
				t.Errorf("a window of %v has no names", part.Target)
			}
		}
	}
	if all != windows || cost != windows*time.Second {
		t.Errorf("%d windows are delivered, which cost %v; want %d of a second each", all, cost, windows)
	}
}

// settled waits until no queue has too much.
func (w *works) settled(t *testing.T) {
	t.Helper()
	for _, q := range []*queue{w.added, w.identified} {
		testwait.Until(t, "what waits is merged", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.waiting) <= mostWaiting
		})
	}
}

// TestFinish has the names that are waited for never come: at the end all windows are
// spooled without, within a bound.
func TestFinish(t *testing.T) {
	w, names := newWorks(t, Line{}, nil), newSlow()
	t.Cleanup(func() { close(names.released) })
	want := w.fill(9, names)
	select {
	case <-w.Finish(10 * time.Millisecond):
	case <-time.After(testwait.Longest(t)):
		t.Fatal("it waits for names")
	}
	if got, _ := w.spooled(t); got != want {
		t.Errorf("%d samples of %d", got, want)
	}
}

// TestNumberReused has a number become another process while windows are merged: each
// target has its own samples.
func TestNumberReused(t *testing.T) {
	w, names := newWorks(t, Line{}, nil), newSlow()
	want := map[string]int64{}
	for i := range 20 {
		b := profile.NewBuilder(profile.Head{Start: time.Unix(int64(i), 0), Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
		thread := b.Thread(profile.Thread{PID: 1, TID: 1, Process: "x"})
		b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), Thread: thread, N: 1, Values: []int64{1}})
		target := fmt.Sprint(i / 7)
		want[target]++
		w.Add(w.line, &Piece{Cuts: []*Cut{cutOf(b.Window(), target, names)}, Ends: &profile.Head{}})
	}
	close(names.released)
	<-w.Finish(testwait.Longest(t))
	got := map[string]int64{}
	for _, d := range w.delivered {
		for _, part := range d.Parts {
			got[part.Target["service"]] += part.N()
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSlowTargets has /proc take minutes to say whose processes were sampled, or for ever:
// windows are merged meanwhile, and none is lost. If a task selects some targets, samples of
// those that it may have meant are a loss.
func TestSlowTargets(t *testing.T) {
	for name, answers := range map[string]bool{"late": true, "late, and some are selected": true, "never": false, "never, and some are selected": false} {
		t.Run(name, func(t *testing.T) {
			var kept []*Kept
			if strings.Contains(name, "selected") {
				kept = []*Kept{{Means: func(l profile.Labels) bool { return l["service"] == "service of 1" || l["service"] == "1" }}}
			}
			w, released := newWorks(t, Line{}, nil), make(chan struct{})
			identify := func(threads []profile.Thread) ([]profile.Labels, int) {
				<-released
				each := make([]profile.Labels, len(threads))
				for i, thread := range threads {
					each[i] = profile.Labels{"service": "service of " + thread.Process}
				}
				return each, 0
			}
			const windows, every = 60, 3
			want, wantLost := map[string]int64{}, int64(0)
			for i := range windows {
				b := profile.NewBuilder(profile.Head{Start: time.Unix(int64(i), 0), Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
				process := fmt.Sprint(i % every)
				thread := b.Thread(profile.Thread{PID: 1 + i%every, TID: 1, Process: process, Exact: profile.Exact{CPU: 1}})
				b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), Thread: thread, N: 1, Values: []int64{1}})
				w.Add(w.line, &Piece{Cuts: []*Cut{{Window: b.Window(), Identify: identify, Kept: kept}}, Ends: &profile.Head{}})
				service := "service of " + process
				if !answers {
					service = process
				}
				switch {
				case kept == nil || process == "1":
					want[service]++
				case !answers:
					wantLost++
				}
			}
			w.settled(t)
			patience := testwait.Longest(t)
			if answers {
				close(released)
			} else {
				t.Cleanup(func() { close(released) })
				patience = 10 * time.Millisecond
			}
			<-w.Finish(patience)
			got, sampled, exact, lost, all := map[string]int64{}, int64(0), int64(0), profile.Loss{}, 0
			for _, d := range w.delivered {
				all += d.Windows
				for _, part := range d.Parts {
					if n := part.N(); n > 0 {
						got[part.Target["service"]] += n
						sampled += n
					}
					exact += int64(part.Exact.CPU)
					l := part.LossOf(profile.LossDropped)
					lost.N, lost.Value = lost.N+l.N, lost.Value+l.Value
				}
			}
			if !maps.Equal(got, want) || exact != sampled || lost.N != wantLost || lost.Value != wantLost || all != windows || w.Merged() == 0 {
				t.Errorf("%v, want %v; %d lost, want %d; %d ns exactly, %d windows, %d of them merged", got, want, lost.N, wantLost, exact, all, w.Merged())
			}
		})
	}
}

// TestIdentifiedAtTheEnd has /proc answer soon, and the agent end before: targets are known all
// the same.
func TestIdentifiedAtTheEnd(t *testing.T) {
	w := newWorks(t, Line{}, nil)
	ending := make(chan struct{})
	identify := func(threads []profile.Thread) ([]profile.Labels, int) {
		<-ending
		time.Sleep(time.Millisecond)
		return slices.Repeat([]profile.Labels{{"service": "shop"}}, len(threads)), 0
	}
	for i := range 3 {
		b := profile.NewBuilder(profile.Head{Start: time.Unix(int64(i), 0), Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
		thread := b.Thread(profile.Thread{PID: 1, TID: 1, Process: "x"})
		b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), Thread: thread, N: 1, Values: []int64{1}})
		w.Add(w.line, &Piece{Cuts: []*Cut{{Window: b.Window(), Identify: identify}}, Ends: &profile.Head{}})
	}
	w.giveUp()
	close(ending)
	<-w.Finish(testwait.Longest(t))
	for _, d := range w.delivered {
		for _, part := range d.Parts {
			if part.Target["service"] != "shop" {
				t.Errorf("a window is of %v", part.Target)
			}
		}
	}
}

// TestKeptIsShared merges thousands of cuts for which the same is kept, and some for which
// something else is.
func TestKeptIsShared(t *testing.T) {
	first, second := &Kept{}, &Kept{}
	of := func(k *Kept) *Cut {
		return &Cut{Window: profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(1)}}).Window(), Kept: []*Kept{k}}
	}
	c := of(first)
	for range 1000 {
		if !c.absorb(of(first)) || !c.absorb(of(second)) {
			t.Fatal("they are not merged")
		}
	}
	if !slices.Equal(c.Kept, []*Kept{first, second}) {
		t.Errorf("%d are remembered", len(c.Kept))
	}
}

// TestApartUnidentified has other profilers' windows of two processes wait for their targets:
// each covers its own time, so that they are not merged with each other.
func TestApartUnidentified(t *testing.T) {
	of := func(pid int) *Cut {
		b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(1)}})
		b.Thread(profile.Thread{PID: pid, TID: pid, Process: "x"})
		return &Cut{Window: b.Window(), Apart: true}
	}
	if of(1).absorb(of(2)) || !of(1).absorb(of(1)) {
		t.Error("windows are merged by process")
	}
}

// TestMergedRates keeps of the rates of merged windows what they have in common.
func TestMergedRates(t *testing.T) {
	rates := func(shop, cart float64) *Rates {
		return &Rates{Of: map[string]profile.Rate{"shop": {Hertz: shop, Policy: "auto"}, "cart": {Hertz: cart, Policy: "auto"}}}
	}
	r := rates(50, 99)
	r.absorb(rates(50, 19))
	if r.Of["shop"] != (profile.Rate{Hertz: 50, Policy: "auto"}) || r.Of["cart"] != (profile.Rate{Policy: "auto"}) {
		t.Errorf("%+v", r)
	}
}

// TestTold has windows of targets say how often each was sampled.
func TestTold(t *testing.T) {
	slow := &profile.Window{Head: profile.Head{Target: profile.Labels{"service": "shop"}, Types: []profile.ValueType{{Kind: "cpu", Period: 1e6}}}}
	of := func(r profile.Rate) *Rates { return &Rates{Of: map[string]profile.Rate{slow.Target.String(): r}} }
	if of(profile.Rate{Hertz: 50}).set([]*profile.Window{slow}); slow.Rate.Hertz != 50 || slow.Types[0].Period != 2e7 {
		t.Errorf("a target at 50 Hz among faster ones says %g Hz, a sample each %d ns", slow.Rate.Hertz, slow.Types[0].Period)
	}
	part := &profile.Window{Head: profile.Head{Target: slow.Target, Rate: profile.Rate{Hertz: 100}}}
	if of(profile.Rate{Hertz: 99.5, By: profile.ByServer}).set([]*profile.Window{part}); part.Rate != (profile.Rate{Hertz: 100, By: profile.ByServer}) {
		t.Errorf("another profiler's window says %+v", part.Rate)
	}
}

// TestRefine has a rule derive contexts from names, when they are there.
func TestRefine(t *testing.T) {
	rule := func(frames []profile.Frame, c profile.Context) profile.Context {
		if len(frames) > 0 && frames[0].Function == "named" {
			c.Endpoint = "found"
		}
		return c
	}
	w, names := newWorks(t, Line{}, refine.Rules{"cpu": {rule}}), newSlow()
	close(names.released)
	want := w.fill(3, names)
	<-w.Finish(testwait.Longest(t))
	found, all := int64(0), int64(0)
	for _, d := range w.delivered {
		for _, part := range d.Parts {
			for _, row := range part.Rows.All() {
				if all += row.N; row.Context != 0 && part.Contexts[row.Context-1].Endpoint == "found" {
					found += row.N
				}
			}
		}
	}
	if all != want || found == 0 {
		t.Errorf("%d samples of %d, %d of them with the context that their names show", all, want, found)
	}
}

// TestCostIsApportioned has the parts of a window carry all of its cost.
func TestCostIsApportioned(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		parts := []*profile.Window{profiletest.Random(r), profiletest.Random(r), {}}
		cost, sum := profile.Cost{User: time.Duration(r.IntN(1e6)), BPF: time.Duration(r.IntN(1e6))}, profile.Cost{}
		apportion(cost, parts)
		for _, p := range parts {
			sum.Add(p.Cost)
			if p.Cost.User < 0 || p.Rows.Len() == 0 && p.Cost != (profile.Cost{}) {
				t.Errorf("a part of %d samples costs %+v", p.N(), p.Cost)
			}
		}
		if sum != cost {
			t.Fatalf("the parts cost %+v, the whole %+v", sum, cost)
		}
	}
}

// counter remembers what it was asked to name.
type counter struct{ stacks int }

func (c *counter) Name(_ context.Context, w *profile.Window) (*profile.Window, error) {
	c.stacks += len(w.Stacks)
	return w, nil
}

// twoServices is a window of one busy service and one that does little. Each has a
// thread that is sampled once in a hundred times; they are of no process of this
// machine.
func twoServices() *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(10)}})
	for i, service := range []string{"busy", "small"} {
		for tid, n := range map[int]int64{1: 99, 2: 1} {
			n *= []int64{100, 1}[i]
			id := b.Thread(profile.Thread{PID: 1<<30 + i, TID: tid, Process: service, Name: []string{"", "main", "rare-7"}[tid], Exact: profile.Exact{CPU: time.Duration(10 * n)}})
			leaf, caller := b.Named(profile.Frame{Function: service + ".work"}), b.Named(profile.Frame{Function: service + []string{"", ".run", ".rest"}[tid]})
			b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf, caller}, profile.EndTooDeep), Thread: id, N: n, Values: []int64{10 * n}})
		}
	}
	return b.Window()
}

// TestPrunedByTarget prunes each target by itself, before anything is named, however
// threads are told apart in what is shipped.
func TestPrunedByTarget(t *testing.T) {
	for threads, want := range map[spec.Threads][]string{spec.ThreadsEach: {"main", prune.Name}, spec.ThreadsPattern: {"main", prune.Name}, spec.ThreadsNone: nil} {
		t.Run(string(threads), func(t *testing.T) {
			w, from := newWorks(t, Line{Pruning: 99, Threads: threads}, nil), &counter{}
			window := twoServices()
			targets := make([]profile.Labels, len(window.Threads))
			for i, thread := range window.Threads {
				targets[i] = profile.Labels{"service": thread.Process}
			}
			w.Add(w.line, &Piece{Cuts: []*Cut{{Window: window, Targets: TargetsOf(window.Threads, targets), Namer: from}}, Ends: &profile.Head{}})
			<-w.Finish(testwait.Longest(t))
			parts := w.delivered[0].Parts
			if from.stacks != 4 { // of both that stay, and what the others did, of which no caller is
				t.Errorf("%d stacks were named", from.stacks)
			}
			if len(parts) != 2 {
				t.Fatalf("%d parts", len(parts))
			}
			for _, part := range parts {
				n := map[string]int64{"busy": 100, "small": 1}[part.Target["service"]]
				if part.N() != 100*n || part.Total(0) != 1000*n || part.Exact.CPU != time.Duration(1000*n) || prune.Share(part, 0) != 0.01 {
					t.Errorf("%v: %d samples, %v used, %g pruned", part.Target, part.N(), part.Exact.CPU, prune.Share(part, 0))
				}
				if l := part.LossOf(profile.LossPruned); l.N != n || l.Value != 10*n || part.LossOf(profile.LossTruncated).N != 99*n {
					t.Errorf("%v: losses %+v", part.Target, part.Losses)
				}
				var names []string
				for _, thread := range part.Threads {
					names = append(names, thread.Name)
				}
				if !slices.Equal(names, want) {
					t.Errorf("%v: threads %v, want %v", part.Target, names, want)
				}
			}
		})
	}
}
