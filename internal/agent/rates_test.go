package agent

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// adaptive leaves the rates of two services to a policy.
const adaptive = `{"kind":"Profile","name":"x","select":"{service=~\"shop|cart\"}","frequency":{"min":19,"max":999,"policy":"atys","streak":1}}`

// chorus is a take that samples all that it is aimed at: each process runs a function of its own.
type chorus struct {
	*take
	running map[int]string
	n       int64
}

func (c *chorus) Cut(sampler.Edge) ([]*profile.Window, error) {
	c.n++
	b := profile.NewBuilder(profile.Head{Start: time.Unix(c.n, 0), Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
	for pid := range c.aimed {
		thread := b.Thread(profile.Thread{PID: pid, TID: pid, Process: "x"})
		stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: cmp.Or(c.running[pid], "usual")})}, profile.EndComplete)
		b.Add(profile.Row{Stack: stack, Thread: thread, N: 100, Values: []int64{100}, Squares: []float64{100}})
	}
	return []*profile.Window{b.Window()}, nil
}

// staged is a site whose task adapts, with a chorus in place of its recording.
type staged struct {
	*site
	*chorus
	of *recording
}

// Numbers that no process has: two instances of one service, and one of another.
const shop1, shop2, cart1 = noProcess + 1, noProcess + 2, noProcess + 3

func stage(t *testing.T) *staged {
	t.Helper()
	s := &staged{site: newSiteOf(t, adaptive)}
	s.come(t, "shop", shop1)
	s.come(t, "cart", cart1)
	s.of = s.task.recordings[0]
	s.chorus = &chorus{take: s.of.instrument.Sampler().(*take), running: map[int]string{}}
	s.put(s.of, s.chorus)
	return s
}

// come has a process be an instance of a service.
func (s *staged) come(t *testing.T, service string, pid int) {
	t.Helper()
	labels := profile.Labels{"service": service, "instance": fmt.Sprint(pid - noProcess)}
	s.residents.know(pid, labels)
	s.residents.present[labels.String()] = &targets.Present{Labels: labels, PIDs: []int{pid}}
	s.aim()
	s.settle(t)
}

// order has the server decide on rates.
func (s *staged) order(t *testing.T, rates map[string]float64) {
	t.Helper()
	m := &atysv1.Task{Id: "1", Profile: adaptive}
	for service, hz := range rates {
		m.Rates = append(m.Rates, &atysv1.ServiceRate{Service: service, Rate: wire.Rate(profile.Rate{Hertz: hz, Policy: freq.Atys, Reason: "steady", Why: "0.01"})})
	}
	s.follow(append(s.understand(ordered(1, m)), s.tasks[1]))
	s.settle(t)
}

// expect compares what processes are sampled at from the next edge on.
func (s *staged) expect(t *testing.T, what string, want map[int]float64) {
	t.Helper()
	if got := s.chorus.take.rates; !maps.Equal(got, want) {
		t.Errorf("%s: rates %v, want %v", what, got, want)
	}
}

// told cuts, and gives the rates that windows tell, by instance.
func (s *staged) told(t *testing.T) map[string]profile.Rate {
	t.Helper()
	s.cutNow(t, s.of, atEdge)
	told, waiting := map[string]profile.Rate{}, s.options.Spool
	for _, id := range waiting.Oldest(99) {
		records, err := waiting.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			m := &atysv1.Spooled{}
			if err := proto.Unmarshal(record, m); err != nil {
				t.Fatal(err)
			}
			if instance := m.GetSeries().GetLabels()["instance"]; instance != "" {
				told[instance] = wire.RateOf(m.GetWindow().GetRate())
			}
		}
		if err := waiting.Done(id); err != nil {
			t.Fatal(err)
		}
	}
	return told
}

// TestOrderedRates has rates come and change: they hold from the next edge on, for
// those that have come meanwhile too, and are told in each window's head.
func TestOrderedRates(t *testing.T) {
	s := stage(t)
	s.expect(t, "nothing is decided", map[int]float64{shop1: 999, cart1: 999})
	s.order(t, map[string]float64{"shop": 50})
	s.expect(t, "before the edge", map[int]float64{shop1: 999, cart1: 999})
	told := s.told(t)
	if r := told["1"]; r.Hertz != 999 || r.Policy != freq.Atys || r.Reason != string(freq.Began) || r.By != "" {
		t.Errorf("the window before the order says %+v", r)
	}
	s.expect(t, "from the edge on", map[int]float64{shop1: 50, cart1: 999})
	if s.of.rate != 999 || s.of.wanted != 999 {
		t.Errorf("the highest is %g of %g Hz", s.of.rate, s.of.wanted)
	}
	s.order(t, map[string]float64{"shop": 40, "cart": 1})
	s.come(t, "shop", shop2)
	s.expect(t, "one that has come", map[int]float64{shop1: 50, shop2: 40, cart1: 999})
	told = s.told(t)
	if r, want := told["1"], (profile.Rate{Hertz: 50, Policy: freq.Atys, Reason: "steady", Why: "0.01", By: profile.ByServer}); r != want {
		t.Errorf("the window after the order says %+v, want %+v", r, want)
	}
	s.expect(t, "within what the profile allows", map[int]float64{shop1: 40, shop2: 40, cart1: 19})
	if s.of.rate != 40 || s.report().GetTasks()[0].GetMessage() != "" {
		t.Errorf("the highest is %g Hz, and it is told %v", s.of.rate, s.report().GetTasks()[0])
	}
	s.publish()
	if f := s.report().GetTasks()[0].GetFrequency(); f != 40 {
		t.Errorf("%g Hz are reported", f)
	}
	if s.of.instrument.Sampler() != sampler.Sampler(s.chorus) || s.task.recordings[0] != s.of {
		t.Error("it was begun anew because of its rates")
	}
	clear(s.residents.present) // all end before the edge
	s.aim()
	if told = s.told(t); told["2"].Hertz != 40 {
		t.Errorf("the last window of one that has ended says %+v", told["2"])
	}
}

// TestRatesWithinBudget has the agent's budget leave less than was decided.
func TestRatesWithinBudget(t *testing.T) {
	s := stage(t)
	s.order(t, map[string]float64{"shop": 50, "cart": 400})
	s.told(t)
	s.spending.governor = budget.Governor{Budget: budget.Budget{Cores: 0.02}, Limits: budget.Limits{Cap: 100}}
	if !s.spending.pending(s.tasks) {
		t.Error("the cap holds already")
	}
	s.told(t)
	s.expect(t, "under the cap", map[int]float64{shop1: 50, cart1: 100})
	asked, most := asks(s.tasks)
	if s.spending.pending(s.tasks) || s.of.rate != 100 || s.of.wanted != 400 || asked[0].Hertz != 400 || most != s.of.task.profile.Frequency {
		t.Errorf("%g of %g Hz, pending %v, wanted %v and %g at most", s.of.rate, s.of.wanted, s.spending.pending(s.tasks), asked, most)
	}
	if said := s.spending.restraint(s.of); !strings.HasPrefix(said, "samples at 100 Hz instead of 400") {
		t.Errorf("it is told %q", said)
	}
	told := s.told(t)
	if r := told["3"]; r.Hertz != 100 || r.By != profile.ByBudget || r.Reason != "steady" || !strings.Contains(r.Why, "less than the 400 Hz that were decided") || !strings.Contains(r.Why, "2% of a core") {
		t.Errorf("the window under the cap says %+v", r)
	}
	if r := told["1"]; r.Hertz != 50 || r.By != profile.ByServer {
		t.Errorf("one that the cap does not touch says %+v", r)
	}
}

// TestAlone has the server fall silent: each target has its own policy then, which
// goes on from what was ordered last, until the server is heard again.
func TestAlone(t *testing.T) {
	s := stage(t)
	s.order(t, map[string]float64{"shop": 200, "cart": 300})
	s.told(t)
	s.heard = time.Now().Add(-aloneAfter)
	s.told(t) // the first window of each
	s.told(t) // which did the same in the second
	s.running[cart1] = "another"
	s.told(t)
	s.expect(t, "one window without a change", map[int]float64{shop1: 160, cart1: 240})
	told := s.told(t)
	if r := told["1"]; r.Hertz != 160 || r.By != profile.ByAgent || r.Policy != freq.Atys || r.Reason != string(freq.Steady) || r.Why == "" {
		t.Errorf("the window after it says %+v", r)
	}
	s.expect(t, "one has changed", map[int]float64{shop1: 128, cart1: 300})
	if len(s.of.soloists) != 2 {
		t.Errorf("%d policies of two targets", len(s.of.soloists))
	}
	maps.DeleteFunc(s.residents.present, func(_ string, p *targets.Present) bool { return p.Labels["service"] == "cart" })
	s.aim()
	if s.told(t); len(s.of.soloists) != 1 {
		t.Errorf("%d policies of one target", len(s.of.soloists))
	}
	s.hear()
	if s.told(t); len(s.of.soloists) != 0 || s.take.rates[shop1] != 200 {
		t.Errorf("the server is heard again: %d policies, rates %v", len(s.of.soloists), s.take.rates)
	}
	if told = s.told(t); told["1"].By != profile.ByServer {
		t.Errorf("the window after it says %+v", told["1"])
	}
}

// TestAloneAfter waits for three windows, and for what a server that is there says.
func TestAloneAfter(t *testing.T) {
	a := newBoard()
	for window, after := range map[time.Duration]time.Duration{time.Second: 30 * time.Second, 10 * time.Second: 30 * time.Second, time.Minute: 3 * time.Minute} {
		if a.heard = time.Now().Add(time.Second - after); a.alone(window) {
			t.Errorf("windows of %v: alone before %v", window, after)
		}
		if a.heard = time.Now().Add(-after); !a.alone(window) {
			t.Errorf("windows of %v: not alone after %v", window, after)
		}
	}
}

// TestOrdersAreRemembered has rates outlive the agent, within what a profile allows.
func TestOrdersAreRemembered(t *testing.T) {
	a := still(t, Options{State: filepath.Join(t.TempDir(), "orders")})
	rate := func(service string, hz float64) *atysv1.ServiceRate {
		return &atysv1.ServiceRate{Service: service, Rate: &atysv1.Rate{Hertz: hz, Policy: freq.Atys}}
	}
	all := []*atysv1.ServiceRate{rate("low", 0.1), rate("right", 99), rate("high", 1e9), rate("none", 0), rate("odd", math.NaN()), rate("less", -1)}
	a.remember(ordered(1, &atysv1.Task{Id: "1", Profile: adaptive, Rates: all}, &atysv1.Task{Id: "2", Profile: `{"kind":"Profile","name":"y"}`, Rates: all}))
	tasks := a.remembered()
	if len(tasks) != 2 || tasks[1].rates != nil {
		t.Fatalf("remembered are %+v", tasks)
	}
	got := map[string]float64{}
	for service, rate := range tasks[0].rates {
		got[service] = rate.Hertz
	}
	if want := map[string]float64{"low": 19, "right": 99, "high": 999}; !maps.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

// TestWhatAdapts has clocks follow a policy, and other events keep the highest rate.
func TestWhatAdapts(t *testing.T) {
	p, err := spec.ParseJSON([]byte(`{"kind":"Profile","name":"x","kinds":["cpu"],"events":["page-faults","task-clock:u"],"frequency":{"min":19,"max":999}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true} {
		r := newTask("1", p, time.Time{}).recordings[i]
		if r.adapts() != want || r.aims() != want {
			t.Errorf("%s adapts: %v, is aimed: %v; want %v", r.Event, r.adapts(), r.aims(), want)
		}
		if told := r.sampledAt(rates{all: pace{Rate: profile.Rate{Hertz: 999}}}); want != (told != nil && told.All.Hertz == 999 && told.Of == nil) {
			t.Errorf("windows of %s say %+v", r.Event, told)
		}
	}
}

// TestFunctionsOf counts by the innermost function, and less where samples differ.
func TestFunctionsOf(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}})
	add := func(n, value int64, squares float64, locations ...profile.LocationID) {
		b.Add(profile.Row{Stack: b.Stack(locations, profile.EndComplete), N: n, Values: []int64{value}, Squares: []float64{squares}})
	}
	caller := b.Named(profile.Frame{Function: "main", File: "m.go"})
	inlined := b.Location(profile.Location{Kind: profile.KindNative, Offset: 1}, profile.Frame{Function: "in", File: "a.go", Inlined: true}, profile.Frame{Function: "out", File: "a.go"})
	add(4, 40, 400, inlined, caller)
	add(6, 60, 600, inlined)
	add(2, 20, 250, caller)
	add(3, 30, 300)
	got := map[string]float64{}
	for _, f := range functionsOf(b.Window()) {
		got[f.Name] = f.N
	}
	worth := 150.0 / 1550 // of a value of one: all of it, by the sum of squares
	if want := map[string]float64{"in": 100 * worth, "main": 20 * worth, "[no frames]": 30 * worth}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
