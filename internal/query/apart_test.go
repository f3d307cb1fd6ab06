package query

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
)

// apartBy is values by column, instance and call.
type apartBy map[string]map[string]map[int]int64

func (a apartBy) add(column, instance string, call int, value int64) {
	if a[column] == nil {
		a[column] = map[string]map[int]int64{}
	}
	if a[column][instance] == nil {
		a[column][instance] = map[int]int64{}
	}
	a[column][instance][call] += value
}

// of is what a store says of a column.
func (a apartBy) of(column string, most int) []store.OfInstance {
	if len(a[column]) > most {
		return nil
	}
	all := []store.OfInstance{}
	for _, name := range slices.Sorted(maps.Keys(a[column])) {
		one := store.OfInstance{Name: name}
		for _, call := range slices.Sorted(maps.Keys(a[column][name])) {
			one.Values = append(one.Values, store.StackValue{Call: call, Value: a[column][name][call]})
		}
		all = append(all, one)
	}
	return all
}

// eachOnce has sums as a store gives them: one per stack.
func eachOnce(sums []store.Sum) (out []store.Sum) {
	slices.SortStableFunc(sums, func(a, b store.Sum) int { return a.Call - b.Call })
	for _, s := range sums {
		n := len(out) - 1
		if n < 0 || out[n].Call != s.Call {
			out = append(out, s)
			continue
		}
		out[n].N, out[n].Value, out[n].Squares = out[n].N+s.N, out[n].Value+s.Value, out[n].Squares+s.Squares
		for g, v := range s.Groups {
			out[n].Groups[g] += v
		}
	}
	return out
}

// together is a store that tells no instances apart, as none did before.
type together struct{ source }

func (s together) Merge(ctx context.Context, tenant string, parts []store.Query, g store.Grouping) (*store.Merged, error) {
	g.MaxInstances = 0
	return s.source.Merge(ctx, tenant, parts, g)
}

// randomFleet is instances that call functions at shares of their own. Some are of
// two series, as are programs that run others.
func randomFleet(r *rand.Rand, instances int) *shelf {
	s := &shelf{}
	stacks := []string{"main;a", "main;a;b", "main;c", "main;c;b", "d"}
	for i := range instances {
		for range 1 + r.IntN(2) {
			labels := profile.Labels{"service": "shop", "node": fmt.Sprint("n", i), "instance": fmt.Sprintf("%0*d", 1+i%7, i), "executable": fmt.Sprint(r.IntN(2))}
			of := map[string]int64{stacks[r.IntN(len(stacks))]: 1 + r.Int64N(50)}
			for _, stack := range stacks {
				if r.IntN(3) > 0 {
					of[stack] = 1 + r.Int64N(50)
				}
			}
			s.windows = append(s.windows, written{labels, head(r.IntN(3)), "http-#", of})
		}
	}
	return s
}

// clustersOf works out from windows what each instance has of a function, and of all.
func (s *shelf) clustersOf(function string) (c stats.Clusters) {
	at := map[string]int{}
	c.Apart = true
	for _, w := range s.windows {
		name := w.labels["node"]
		if _, ok := at[name]; !ok {
			at[name] = len(c.Whole)
			c.Part, c.Whole = append(c.Part, 0), append(c.Whole, 0)
		}
		for stack, n := range w.stacks {
			c.Whole[at[name]] += float64(10 * n)
			if stack[len(stack)-1:] == function {
				c.Part[at[name]] += float64(10 * n)
			}
		}
	}
	return c
}

// TestApart asks fleets of any size with instances told apart and without: what is
// estimated is the same. With thirty and more so are all intervals; with fewer they
// are those of instances by themselves, and never narrower than of the selection.
func TestApart(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		instances := 1 + r.IntN(40)
		s := randomFleet(r, instances)
		asked, before := ask(t, Asker{Tenant: "x", Store: s}), ask(t, Asker{Tenant: "x", Store: together{s}})
		if len(asked) != len(before) {
			t.Fatalf("%d answers, before %d", len(asked), len(before))
		}
		for key, a := range asked {
			b := before[key]
			if a.N != b.N || a.Value != b.Value || a.Share != b.Share {
				t.Fatalf("%d instances, %s: %+v, before %+v", instances, key, a, b)
			}
			switch {
			case instances > mostApart && a != b:
				t.Errorf("%d instances, %s: %+v, before %+v", instances, key, a, b)
			case a.ServiceKnown != (instances >= fewestApart):
				t.Errorf("%d instances, %s: known %v", instances, key, a.ServiceKnown)
			case a.ServiceKnown && (a.Service.Low > a.Share.Low || a.Service.High < a.Share.High):
				t.Errorf("%d instances, %s: the service's interval %v, the selection's %v", instances, key, a.Service, a.Share)
			}
			if function, ok := key.(string); ok && fewestApart <= instances && instances <= mostApart {
				want, _ := s.clustersOf(function).ServiceShare(a.Share)
				if math.Abs(want.Low-a.Service.Low)+math.Abs(want.High-a.Service.High) > 1e-9 {
					t.Errorf("%d instances, %s: %v, want %v", instances, key, a.Service, want)
				}
			}
		}
	}
}

// ask gives a fleet's functions by what they are called, and what its parts are.
func ask(t *testing.T, a Asker) map[any]Amount {
	t.Helper()
	all := map[any]Amount{}
	top, err := a.Top(t.Context(), about(t, `{service="shop"}`), View{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range top.Functions {
		all[f.Frame.Function] = f.Self
	}
	for _, by := range []Split{{By: "service"}, {By: "service", Function: "a"}} {
		parts, _, err := a.Split(t.Context(), about(t, `{service="shop"}`), by)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			all[[2]string{p.By, by.Function}] = Amount{N: p.N, Value: p.Value, Share: p.Share, Service: p.Service, ServiceKnown: p.ServiceKnown}
		}
	}
	return all
}

// TestApartOverTime has other instances in each step: as long as all are few, steps
// are parts of all of them.
func TestApartOverTime(t *testing.T) {
	for instances, apart := range map[int]bool{5: true, 20: false} { // in each of three steps
		s := &shelf{}
		for i := range 3 * instances {
			labels := profile.Labels{"service": "shop", "instance": fmt.Sprintf("%0*d", 1+i/3%4, i), "node": fmt.Sprint("n", i)}
			s.windows = append(s.windows, written{labels, head(i % 3), "", map[string]int64{"main": int64(i + 1), "gc": 5}})
		}
		for _, by := range []Split{{Step: time.Minute}, {Step: time.Minute, Function: "gc"}} {
			parts, _, err := Asker{Tenant: "x", Store: s}.Split(t.Context(), about(t, `{service="shop"}`), by)
			before, _, errBefore := Asker{Tenant: "x", Store: together{s}}.Split(t.Context(), about(t, `{service="shop"}`), by)
			if err != nil || errBefore != nil || len(parts) != 3 || len(before) != 3 {
				t.Fatal(parts, err, before, errBefore)
			}
			for i, p := range parts {
				if p.Share != before[i].Share || p.N != before[i].N {
					t.Errorf("step %d: %+v, before %+v", i, p, before[i])
				}
				if same := p.Service == before[i].Service; same != (!apart && by.Function == "") {
					t.Errorf("%d instances, of %q, step %d: the service's interval %v, before %v", instances, by.Function, i, p.Service, before[i].Service)
				}
			}
		}
	}
}

// rolled is a store in which all is added up, of so many instances.
type rolled struct {
	store.Windows
	instances int
	dropped   map[store.Level]time.Time
}

func (s rolled) Series(context.Context, string, store.Query) (all []profile.Labels, err error) {
	for i := range s.instances {
		all = append(all, profile.Labels{"service": "shop", "instance": fmt.Sprint(i)})
	}
	return append(all, all...), nil
}

func (rolled) Stale(context.Context, string) ([]store.Step, error) { return nil, nil }

func (s rolled) Dropped(context.Context, string) (map[store.Level]time.Time, error) {
	return s.dropped, nil
}

// TestTellApart reads windows of series where these are few.
func TestTellApart(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		rolled
		selector string
		last     time.Duration
		by       string
		step     time.Duration
		want     bool
	}{
		"ten":            {rolled{instances: 10}, `{service="shop"}`, time.Hour, "", 0, true},
		"two":            {rolled{instances: 2}, `{service="shop"}`, time.Hour, "", 0, false},
		"three":          {rolled{instances: 3}, `{service="shop"}`, time.Hour, "", 0, true},
		"29":             {rolled{instances: 29}, `{service="shop"}`, 80 * time.Minute, "", 0, true},
		"thirty":         {rolled{instances: 30}, `{service="shop"}`, time.Hour, "", 0, false},
		"a day of ten":   {rolled{instances: 10}, `{service="shop"}`, day + 3*time.Minute, "", 0, true},
		"a day of 29":    {rolled{instances: 29}, `{service="shop"}`, day, "", 0, false},
		"30 days of six": {rolled{instances: 6}, `{service="shop"}`, 30 * day, "", 0, false},
		"ten years":      {rolled{instances: 6}, `{service="shop"}`, 3650 * day, "", time.Minute, false},
		"seconds":        {rolled{instances: 10}, `{service="shop"}`, 40 * time.Second, "", 0, false}, // raw windows are read anyway
		"of a label":     {rolled{instances: 10}, `{service="shop",zone="a"}`, time.Hour, "", 0, false},
		"by a label":     {rolled{instances: 10}, `{service="shop"}`, time.Hour, "zone", 0, false},
		"by service":     {rolled{instances: 10}, `{service="shop"}`, time.Hour, "service", 0, true},
		"by thread":      {rolled{instances: 10}, `{service="shop"}`, time.Hour, ByThread, 0, false},
		"by minutes":     {rolled{instances: 10}, `{service="shop"}`, time.Hour, "", time.Minute, true},
		"a day of them":  {rolled{instances: 10}, `{service="shop"}`, day, "", time.Minute, false},
		"series dropped": {rolled{instances: 10, dropped: map[store.Level]time.Time{store.Series1h: noon.Add(day), store.Series10m: noon.Add(day), store.Raw: noon.Add(day)}},
			`{service="shop"}`, time.Hour, "", 0, false},
		"hours dropped": {rolled{instances: 10, dropped: map[store.Level]time.Time{store.Series1h: noon.Add(day)}}, `{service="shop"}`, time.Hour, "", 0, true},
	} {
		s := about(t, test.selector)
		s.To = s.From.Add(test.last)
		q := Asker{Tenant: "x", Store: test.rolled}.question(s)
		if err := q.tellApart(t.Context(), test.by, test.step); err != nil || q.bySeries != test.want {
			t.Errorf("%s: by series %v, %v", name, q.bySeries, err)
		}
	}
}
