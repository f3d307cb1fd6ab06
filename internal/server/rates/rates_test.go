package rates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/server/fleet"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire/atysv1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	adapting = `{"kind":"Profile","name":"adapting","select":"{service=~\"shop|cart\"}","frequency":{"min":19,"max":999,"policy":"atys"}}`
	length   = 10 * time.Second // of its windows
)

// What a program does, in samples by function.
var (
	serving    = map[string]int64{"serve": 600, "parse": 400}
	collecting = map[string]int64{"collect": 900, "serve": 100}
)

// tenant is what a server holds of a tenant, with its requests.
type tenant struct {
	rates *Rates
	fleet *fleet.Fleet
	*fleet.Service
}

// deciding is the rates of some tenants, where decisions are made when a test says so.
type deciding struct {
	*Decider
	tenants map[string]*tenant
	kept    *mem.Store
	now     *time.Time
	last    time.Time // until when windows were pushed
	hertz   float64   // at which these are sampled
	tenant  string    // whose they are
}

// decide starts tenants "default" and "other", which keep profiles in a directory.
func decide(t testing.TB, kept *mem.Store, dir string, now time.Time) *deciding {
	t.Helper()
	d := &deciding{tenants: map[string]*tenant{}, kept: kept, now: &now, last: now, hertz: 100, tenant: "default"}
	clock, log := func() time.Time { return *d.now }, slog.New(slog.DiscardHandler)
	for _, name := range []string{"default", "other"} {
		one := &tenant{rates: New(clock, nil)}
		var err error
		if one.fleet, err = fleet.New(fleet.Options{Tenant: name, Profiles: filepath.Join(dir, name), Rates: one.rates, Now: clock, Log: log}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.fleet.Close)
		one.rates.Start()
		one.Service = &fleet.Service{Of: func(context.Context) (*fleet.Fleet, error) { return one.fleet, nil }, Now: clock}
		d.tenants[name] = one
	}
	d.Decider = NewDecider(Options{Store: kept, Now: clock, Log: log, Failed: func(what string, err error) { t.Log(what, err) }, Tenants: func() map[string]Tenant {
		all := map[string]Tenant{}
		for name, one := range d.tenants {
			all[name] = Tenant{one.rates, one.fleet}
		}
		return all
	}})
	return d
}

// of is the same as another tenant sees it.
func (d *deciding) of(tenant string) *deciding {
	other := *d
	other.tenant = tenant
	return &other
}

func (d *deciding) own() *tenant { return d.tenants[d.tenant] }

func (d *deciding) rates() *Rates { return d.own().rates }

// close ends the fleets, as a server does that is to start again.
func (d *deciding) close() {
	for _, one := range d.tenants {
		one.fleet.Close()
	}
}

func (d *deciding) apply(t *testing.T, objects ...string) {
	t.Helper()
	if _, err := d.own().Apply(t.Context(), &atysv1.ApplyRequest{Objects: objects}); err != nil {
		t.Fatal(err)
	}
}

// status gives a profile as clients get it.
func (d *deciding) status(t *testing.T, name string) *atysv1.ProfileStatus {
	t.Helper()
	response, err := d.own().Get(t.Context(), &atysv1.GetRequest{Kind: "profiles", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetObjects()[0].GetProfile()
}

// told is what an agent hears first.
func (d *deciding) told(t *testing.T, node string) (first *atysv1.Orders) {
	t.Helper()
	heard := errors.New("heard")
	if err := d.own().AttendTo(t.Context(), &atysv1.AttendRequest{Node: node}, func(o *atysv1.Orders) error { first = o; return heard }); err != heard {
		t.Fatal(err)
	}
	return first
}

// begin is a tenant with the profile adapting, to which agents x and y have told of
// instances of shop and of cart.
func begin(t *testing.T) *deciding {
	t.Helper()
	d := decide(t, mem.New(1), t.TempDir(), noon)
	d.apply(t, adapting)
	d.tell(t, "x", "shop")
	d.tell(t, "y", "cart")
	return d
}

// tell reports the services of a node, of each an instance.
func (d *deciding) tell(t *testing.T, node string, services ...string) {
	t.Helper()
	r := &atysv1.ReportRequest{Node: node}
	for _, service := range services {
		r.Targets = append(r.Targets, &atysv1.Target{Labels: map[string]string{"node": node, "service": service}})
	}
	if _, err := d.own().Report(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// ratedWindow is a window of the profile adapting.
func ratedWindow(node, service string, start time.Time, rate profile.Rate, did map[string]int64) *profile.Window {
	period := int64(float64(time.Second) / rate.Hertz)
	b := profile.NewBuilder(profile.Head{Task: "adapting", Start: start, Duration: length, Target: profile.Labels{"node": node, "service": service},
		Types: []profile.ValueType{profile.CPUTime(period)}, Design: profile.DesignRandomised, Rate: rate, Exact: profile.Exact{CPU: length, Source: "schedstat"}})
	for name, n := range did {
		at := b.Location(profile.Location{Kind: profile.KindNative, BuildID: "0123", Offset: uint64(name[0])}, profile.Frame{Function: name, Kind: profile.KindNative})
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{at}, profile.EndComplete), N: n, Values: []int64{n * period}, Squares: []float64{float64(n) * float64(period) * float64(period)}})
	}
	return b.Window()
}

// push stores windows one by one, as they arrive.
func (d *deciding) push(t *testing.T, windows ...*profile.Window) {
	t.Helper()
	for _, w := range windows {
		b := storetest.Batch(profile.Run{1}, w)
		if err := d.kept.Put(t.Context(), d.tenant, store.Raw, b); err != nil {
			t.Fatal(err)
		}
		d.rates().Note(b.Windows)
	}
	d.kept.Settle()
}

// window has nodes send windows of shop that end a second ago, and decides.
func (d *deciding) window(t *testing.T, did map[string]int64, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		d.push(t, ratedWindow(node, "shop", d.last, profile.Rate{Hertz: d.hertz}, did))
	}
	d.last = d.last.Add(length)
	*d.now = d.last.Add(time.Second)
	d.Round(t.Context())
}

// waited is how long no more windows of the last interval are waited for.
const waited = length/2 + decideAfter

// wait waits for no more windows of the last interval, and decides.
func (d *deciding) wait(t *testing.T) {
	t.Helper()
	*d.now = d.last.Add(waited)
	d.Round(t.Context())
}

// rate is that of a service as people are told of it.
func (d *deciding) rate(t *testing.T, service string) string {
	t.Helper()
	for _, r := range d.status(t, "adapting").GetRates() {
		if r.GetService() == service {
			return fmt.Sprintf("%.4g %s", r.GetRate().GetHertz(), r.GetRate().GetReason())
		}
	}
	return ""
}

// TestRatesAreOrdered has two agents attend while rates are decided: who has no target
// of a service hears nothing of its rate.
func TestRatesAreOrdered(t *testing.T) {
	d := begin(t)
	heard := map[string]chan *atysv1.Orders{}
	for _, node := range []string{"x", "y"} {
		orders := make(chan *atysv1.Orders, 100)
		heard[node] = orders
		ctx, leave := context.WithCancel(t.Context())
		t.Cleanup(leave)
		go func() {
			_ = d.own().AttendTo(ctx, &atysv1.AttendRequest{Node: node}, func(o *atysv1.Orders) error { orders <- o; return nil })
		}()
		if o := <-orders; len(o.GetTasks()) != 1 || len(o.GetTasks()[0].GetRates()) != 0 {
			t.Fatalf("%s: first orders %v", node, o)
		}
	}
	expect := func(want string) {
		t.Helper()
		o := <-heard["x"]
		rates := o.GetTasks()[0].GetRates()
		if len(rates) != 1 || rates[0].GetService() != "shop" {
			t.Fatalf("ordered is %v", o)
		}
		r := rates[0].GetRate()
		if got := fmt.Sprintf("%.4g %s", r.GetHertz(), r.GetReason()); got != want || r.GetPolicy() != "atys" || r.GetBy() != profile.ByServer || r.GetWhy() != "" || d.rate(t, "shop") != want {
			t.Errorf("ordered is %v, want %s", r, want)
		}
	}
	d.window(t, serving, "x")
	if got := d.rate(t, "shop"); got != "" {
		t.Errorf("it is not known yet who there is, and decided is %s", got)
	}
	d.wait(t)
	expect("999 began")
	for range 5 {
		d.window(t, serving, "x")
	}
	expect("799.2 steady")
	d.window(t, collecting, "x")
	expect("999 changed")
	for node, orders := range heard {
		select {
		case o := <-orders:
			t.Errorf("%s is woken for nothing: %v", node, o)
		case <-time.After(50 * time.Millisecond):
		}
	}
	d.tell(t, "y", "cart", "shop") // it hears of what it has now
	if o := <-heard["y"]; len(o.GetTasks()[0].GetRates()) != 1 {
		t.Errorf("of a service that is new on it y hears %v", o)
	}
}

// TestSilentInstances has one of three fall silent: the others' windows are decided by
// once it is late, and from then on as soon as they are there.
func TestSilentInstances(t *testing.T) {
	d := begin(t)
	d.window(t, serving, "x", "y", "z")
	d.wait(t)
	d.window(t, collecting, "x", "y", "z")
	if got := d.rate(t, "shop"); got != "999 changed" {
		t.Fatalf("all are there, and decided is %s", got)
	}
	for range 4 {
		d.window(t, collecting, "x", "y", "z")
	}
	d.window(t, collecting, "x", "y")
	if got := d.rate(t, "shop"); got != "999 changed" {
		t.Errorf("one is waited for, and decided is %s", got)
	}
	d.wait(t)
	if got := d.rate(t, "shop"); got != "799.2 steady" {
		t.Errorf("one is late, and decided is %s", got)
	}
	d.window(t, serving, "x", "y")
	if got := d.rate(t, "shop"); got != "999 changed" {
		t.Errorf("one is silent for good, and decided is %s", got)
	}
	late := ratedWindow("z", "shop", d.last.Add(-2*length), profile.Rate{Hertz: 100}, serving)
	d.push(t, late) // it is kept, and changes nothing
	d.window(t, serving, "x", "y")
	if got := d.rate(t, "shop"); got != "999 changed" {
		t.Errorf("a window came late, and decided is %s", got)
	}
}

// TestRatesAreForgotten has profiles and services go, and with them what was decided.
func TestRatesAreForgotten(t *testing.T) {
	d := begin(t)
	d.window(t, serving, "x")
	d.wait(t)
	r := d.rates()
	d.apply(t, strings.Replace(adapting, "999", "499", 1))
	if got := d.rate(t, "shop"); got != "" || len(r.courses) != 0 || r.series != 0 {
		t.Errorf("the profile is another one, and there are %s, %d courses and %d series", got, len(r.courses), r.series)
	}
	d.window(t, serving, "x")
	d.wait(t)
	if got := d.rate(t, "shop"); got != "499 began" {
		t.Errorf("by the other profile decided is %s", got)
	}
	*d.now = d.now.Add(forgetService + time.Second)
	d.Round(t.Context())
	if got := d.rate(t, "shop"); got != "" || len(r.courses) != 0 || r.series != 0 {
		t.Errorf("the service is gone, and there are %s, %d courses and %d series", got, len(r.courses), r.series)
	}
	d.last = d.now.Truncate(length)
	d.window(t, serving, "x")
	if _, err := d.own().Delete(t.Context(), &atysv1.DeleteRequest{Kind: "profiles", Name: "adapting"}); err != nil {
		t.Fatal(err)
	}
	d.window(t, serving, "x")
	if len(r.courses) != 0 || r.series != 0 || len(r.profiles) != 0 {
		t.Errorf("the profile is gone, and there are %d courses and %d series", len(r.courses), r.series)
	}
}

// doing is what a program does: one thing for a while, then another: by the number of the window.
func doing(window int) map[string]int64 {
	if window/13%2 == 0 {
		return serving
	}
	return collecting
}

// TestRatesOutliveTheServer has one server start again and again, and one not: they
// decide the same, and no agent hears of another rate meanwhile.
func TestRatesOutliveTheServer(t *testing.T) {
	stays, dir := begin(t), t.TempDir()
	again := decide(t, mem.New(1), dir, noon)
	again.apply(t, adapting)
	again.tell(t, "x", "shop")
	for window := range 40 {
		for _, d := range []*deciding{stays, again} {
			d.window(t, doing(window), "x", "z")
			d.wait(t)
		}
		want := stays.rate(t, "shop")
		if got := again.rate(t, "shop"); got != want {
			t.Fatalf("window %d: %s, and where the server started again %s", window, want, got)
		}
		if window%7 != 3 {
			continue
		}
		again.close()
		last := again.last
		again = decide(t, again.kept, dir, again.now.Add(time.Millisecond))
		again.last = last
		again.tell(t, "x", "shop")
		if o := again.told(t, "x"); !o.GetUnchanged() || len(o.GetTasks()) != 0 {
			t.Errorf("window %d: before it knows what was decided, the server orders %v", window, o)
		}
		again.Round(t.Context())
		if got := again.rate(t, "shop"); got != want {
			t.Errorf("window %d: decided was %s, and after a restart %s", window, want, got)
		}
		if rates := again.told(t, "x").GetTasks()[0].GetRates(); len(rates) != 1 {
			t.Errorf("window %d: after a restart ordered is %v", window, rates)
		}
	}
}

// TestRatesOutliveTheServerOfEach has two tenants, whose services have one name and do
// other things: each has its own rates, and has them again after the server has started anew.
func TestRatesOutliveTheServerOfEach(t *testing.T) {
	dir := t.TempDir()
	d := decide(t, mem.New(1), dir, noon)
	other := d.of("other")
	both := []*deciding{d, other}
	for _, of := range both {
		of.apply(t, adapting)
		of.tell(t, "x", "shop")
	}
	for window := range 30 {
		other.push(t, ratedWindow("x", "shop", d.last, profile.Rate{Hertz: d.hertz}, doing(window)))
		d.window(t, serving, "x")
		d.wait(t)
	}
	var want []string
	for _, of := range both {
		want = append(want, of.rate(t, "shop"))
	}
	if want[0] == want[1] || slices.Contains(want, "") {
		t.Fatalf("they have the rates %q", want)
	}
	d.close()
	d = decide(t, d.kept, dir, d.now.Add(time.Millisecond))
	both = []*deciding{d, d.of("other")}
	for _, of := range both {
		of.tell(t, "x", "shop")
	}
	d.Round(t.Context())
	for i, of := range both {
		if got := of.rate(t, "shop"); got != want[i] {
			t.Errorf("tenant %s had %s, and has %s", of.tenant, want[i], got)
		}
	}
}

// TestRatesOutliveManyWindows has a server start again after more windows than a policy
// is told again: it goes on at the rate that was reached.
func TestRatesOutliveManyWindows(t *testing.T) {
	dir := t.TempDir()
	d := decide(t, mem.New(1), dir, noon)
	d.apply(t, strings.Replace(adapting, `"min":19,"max":999`, `"min":90,"max":20000`, 1))
	d.hertz = 20000
	for range 2 * replayed {
		d.window(t, serving, "x")
		d.wait(t)
		if rate, ok := d.rates().Of("adapting", "shop"); ok {
			d.hertz = rate.Hertz
		}
	}
	want := d.rate(t, "shop")
	d.close()
	d = decide(t, d.kept, dir, *d.now)
	d.Round(t.Context())
	if got := d.rate(t, "shop"); got != want || !strings.HasPrefix(got, "90 ") {
		t.Errorf("the rate had fallen to %s, and is after a restart %s", want, got)
	}
}

// TestRatesOfNewServices has a service appear long after the profile did, on an agent
// that is over its budget: its rate begins at the top of the range all the same.
func TestRatesOfNewServices(t *testing.T) {
	d := begin(t)
	d.last = noon.Add(time.Hour)
	*d.now = d.last
	d.window(t, serving, "x") // at 100 Hz
	d.wait(t)
	if got := d.rate(t, "shop"); got != "999 began" {
		t.Errorf("of a service that is new decided is %s", got)
	}
}

// TestRatesOfTheLastWindows has a server find no time to tell policies again, before
// agents have to hear their orders: they keep the rates of their last windows.
func TestRatesOfTheLastWindows(t *testing.T) {
	dir := t.TempDir()
	d := decide(t, mem.New(1), dir, noon)
	d.apply(t, adapting)
	for i, hertz := range []float64{999, 799.2, 799.2} {
		d.push(t, ratedWindow("x", "shop", noon.Add(time.Duration(i)*length), profile.Rate{Hertz: hertz, Policy: "atys", Reason: "steady", Why: "so it was", By: profile.ByServer}, serving))
	}
	d.close()
	d = decide(t, d.kept, dir, noon.Add(3*length+time.Second))
	d.rates().began = d.now.Add(-holdOrders)
	d.Round(t.Context())
	if got := d.rate(t, "shop"); got != "799.2 steady" {
		t.Errorf("after a restart the rate is %s", got)
	}
}

// TestRatesByWhoComesFirst has windows of some instances come in any order, at several
// rates: what is decided is the same.
func TestRatesByWhoComesFirst(t *testing.T) {
	run := func(seed uint64) (decided []string) {
		order, did := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(1, 2))
		d := begin(t)
		for window := range 12 {
			var windows []*profile.Window
			for i := range 7 {
				some := map[string]int64{}
				for _, name := range slices.Sorted(maps.Keys(doing(3 * window))) {
					some[name] = doing(3 * window)[name]/10 + did.Int64N(20)
				}
				windows = append(windows, ratedWindow(fmt.Sprint(i), "shop", d.last, profile.Rate{Hertz: 19 + 100*did.Float64()}, some))
			}
			order.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
			d.push(t, windows...)
			d.window(t, nil)
			d.wait(t)
			decided = append(decided, fmt.Sprint(d.status(t, "adapting").GetRates()))
		}
		return decided
	}
	want := run(0)
	for seed := range uint64(10) {
		if got := run(seed + 1); !slices.Equal(got, want) {
			t.Fatalf("in another order decided is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestRatesArePassed has the server be so busy that windows are over before it comes to
// decide by those before.
func TestRatesArePassed(t *testing.T) {
	d := begin(t)
	d.window(t, serving, "x")
	d.wait(t)
	for range 3 {
		*d.now = d.last.Add(length)
		d.push(t, ratedWindow("x", "shop", d.last, profile.Rate{Hertz: 100}, collecting))
		d.last = d.last.Add(length)
	}
	_, skipped, _ := d.rates().due(d.last.Add(waited))
	if skipped != 2 {
		t.Errorf("%d windows are passed, want 2", skipped)
	}
	d.wait(t)
	if got := d.rate(t, "shop"); got != "999 changed" {
		t.Errorf("by the last of them decided is %s", got)
	}
}

// TestRatesWithoutTheStore has windows not be readable when they are to be decided by:
// they are passed, and nothing waits for them.
func TestRatesWithoutTheStore(t *testing.T) {
	d := begin(t)
	d.window(t, serving, "x")
	if err := d.kept.Close(); err != nil {
		t.Fatal(err)
	}
	d.wait(t)
	c := d.rates().courses[serviceKey{"adapting", "shop"}]
	if got := d.rate(t, "shop"); got != "" || !c.next.Equal(d.last) {
		t.Errorf("decided is %q, and the next to decide by is of %v", got, c.next)
	}
}

// TestRatesHaveAWidth asks by what answers are pooled: the width that the profile of a task wants.
func TestRatesHaveAWidth(t *testing.T) {
	d := decide(t, mem.New(1), t.TempDir(), noon)
	d.apply(t, `{"kind":"Profile","name":"adapting","select":"{service=\"shop\"}","frequency":{"min":19,"max":999,"policy":"auto","width":0.02}}`)
	if own, none, others := d.rates().Width("adapting"), d.rates().Width("another"), d.of("other").rates().Width("adapting"); own != 0.02 || none != 0 || others != 0 {
		t.Errorf("its own is %g, that of no profile %g, that of another tenant %g", own, none, others)
	}
}
