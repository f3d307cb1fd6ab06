package query

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// shelf is a store of a few windows that are written by hand.
type shelf struct {
	store.Windows
	windows []written
	dropped map[store.Level]time.Time
}

// written is a window: stacks as "main;run;parse", outermost first, and how
// often each was sampled, at a value of 10 each.
type written struct {
	labels profile.Labels
	head   profile.Head
	part   string // the thread that it is of, or the number of its slot
	stacks map[string]int64
}

func (s *shelf) chosen(q store.Query) (all []written) {
	for _, w := range s.windows {
		if q.Level == store.Raw && q.Select.Matches(w.labels) &&
			(q.Task == "" || q.Task == w.head.Task) && !w.head.Start.Before(q.From) && w.head.Start.Before(q.To) {
			all = append(all, w)
		}
	}
	return all
}

func (s *shelf) Series(_ context.Context, _ string, q store.Query) (all []profile.Labels, err error) {
	for _, w := range s.chosen(q) {
		all = append(all, w.labels)
	}
	return all, nil
}

// Stale has nothing be added up.
func (s *shelf) Stale(context.Context, string) (steps []store.Step, err error) {
	for _, w := range s.windows {
		steps = append(steps, store.Steps(w.head.Start)...)
	}
	return steps, nil
}

func (s *shelf) Dropped(context.Context, string) (map[store.Level]time.Time, error) {
	return s.dropped, nil
}

func (s *shelf) Scan(_ context.Context, _ string, q store.Query, each func(*profile.Window, profile.Run) error) error {
	for _, w := range s.chosen(q) {
		if err := each(&profile.Window{Head: w.head}, profile.Run{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Heads(_ context.Context, _ string, parts []store.Query, each func(store.Head) error) error {
	for _, q := range parts {
		for _, w := range s.chosen(q) {
			n := int64(0)
			for _, count := range w.stacks {
				n += count
			}
			if err := each(store.Head{Series: w.labels, Head: &w.head, N: n, Of: 1}); err != nil {
				return err
			}
		}
	}
	return store.Damage{Parts: 1}.Err()
}

func (s *shelf) Merge(_ context.Context, _ string, parts []store.Query, g store.Grouping) (*store.Merged, error) {
	m := &store.Merged{Forest: &profile.Forest{Calls: []profile.Call{{Caller: -1, Place: -1}}}, Damaged: store.Damage{Parts: 1}}
	calls, places := map[string]int{"": 0}, map[string]int{}
	columns, whole, apart := map[string]*store.Column{}, store.Column{}, apartBy{}
	var chosen []written
	for _, q := range parts {
		chosen = append(chosen, s.chosen(q)...)
	}
	for _, w := range chosen {
		m.Summary.Add(w.labels, &w.head)
		var by []string
		for _, d := range g.By {
			value := w.part
			if label, ok := d.Label(); ok {
				value = w.labels[label]
			} else if d == store.BySlot {
				slot, _ := strconv.Atoi(w.part)
				value = g.Slots.Part(&w.head, uint32(slot))
			}
			by = append(by, value)
		}
		head, start := w.head, g.StepOf(&w.head)
		key := fmt.Sprint(start, by)
		if g.Divides() {
			whole.Head.Absorb(&head)
			whole.Windows++
			head.Losses, head.Cost = nil, profile.Cost{}
		}
		c := columns[key]
		if c == nil {
			c = &store.Column{By: by, Start: start, Head: head}
			columns[key] = c
		} else {
			c.Head.Absorb(&head)
		}
		c.Windows++
		for stack, n := range w.stacks {
			at, path := 0, ""
			for _, name := range strings.Split(stack, ";") {
				path += ";" + name
				call, ok := calls[path]
				if !ok {
					place, ok := places[name]
					if !ok {
						place = len(m.Forest.Places)
						places[name] = place
						m.Forest.Places = append(m.Forest.Places, profile.Place{Location: profile.Location{Name: name}, Names: []profile.Frame{frameOf(name)}})
					}
					call = len(m.Forest.Calls)
					calls[path] = call
					m.Forest.Calls = append(m.Forest.Calls, profile.Call{Caller: at, Place: place})
				}
				at = call
			}
			sum := store.Sum{Call: at, Sum: profile.Sum{N: n, Value: 10 * n, Squares: float64(100 * n)}}
			sum.Groups[len(w.labels["instance"])] = 10 * n
			c.Sums = append(c.Sums, sum)
			apart.add(key, store.Instance(w.labels), at, 10*n)
		}
	}
	for key, c := range columns {
		c.Sums = eachOnce(c.Sums)
		if !g.Divides() {
			c.Instances = apart.of(key, g.MaxInstances)
		}
		m.Columns = append(m.Columns, *c)
	}
	if g.Divides() {
		m.Divided(whole)
	}
	m.Sort()
	return m, nil
}

// frameOf is a function of a name such as lib:parse, whose class is a library's.
func frameOf(name string) profile.Frame {
	class, _, found := strings.Cut(name, ":")
	if !found {
		return profile.Frame{Function: name}
	}
	return profile.Frame{Function: name, Kind: profile.KindPython, Class: map[string]profile.Class{"app": profile.ClassApplication,
		"lib": profile.ClassLibrary, "run": profile.ClassRuntime, "k": profile.ClassKernel}[class]}
}

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func head(minute int) profile.Head {
	return profile.Head{Task: "t", Start: noon.Add(time.Duration(minute) * time.Minute), Duration: time.Minute,
		Types: []profile.ValueType{profile.CPUTime(10)}, Exact: profile.Exact{CPU: 100 * time.Second}}
}

// machineHead is that of a window of a machine itself, all of which was watched.
func machineHead(minute int) profile.Head {
	h := head(minute)
	h.Watched = 8 * h.Duration
	return h
}

// shop is two instances of a service, over three minutes, on a node that was
// watched for two of them, and one of another service.
func shop() Asker {
	one := profile.Labels{"service": "shop", "node": "n", "instance": "a"}
	two := profile.Labels{"service": "shop", "node": "n", "instance": "bb"}
	lost := head(2)
	lost.Losses = []profile.Loss{{Reason: profile.LossTruncated, N: 3}}
	machine := profile.Labels{"node": "n"}
	return Asker{Tenant: "x", Now: func() time.Time { return noon.Add(3 * time.Minute) }, Store: &shelf{windows: []written{
		{one, head(0), "http-#", map[string]int64{"main;serve;parse": 60, "main;serve": 20}},
		{two, head(0), "http-#", map[string]int64{"main;serve;parse;parse": 40, "main;gc": 20}},
		{one, lost, "gc-#", map[string]int64{"main;gc": 60}},
		{machine, machineHead(0), "", nil},
		{machine, machineHead(2), "", nil},
		{profile.Labels{"service": "cart", "node": "m"}, head(1), "", map[string]int64{"main": 5}},
	}}}
}

// shops is shop with a third instance.
func shops() Asker {
	a := shop()
	s := a.Store.(*shelf)
	three := profile.Labels{"service": "shop", "node": "n", "instance": "ccc"}
	s.windows = append(s.windows, written{three, head(0), "http-#", map[string]int64{"main;serve;parse": 30, "main;gc": 10}})
	return a
}

func about(t *testing.T, selector string) Selection {
	t.Helper()
	s, err := spec.ParseSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return Selection{Select: s, Kinds: []string{"cpu"}, From: noon, To: noon.Add(time.Hour)}
}

// TestTopOfService has three instances, which differ: of the service less is sure
// than of the selection.
func TestTopOfService(t *testing.T) {
	top, err := shops().Top(t.Context(), about(t, `{service="shop"}`), View{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range top.Functions {
		if !f.Self.ServiceKnown || f.Self.Service.Low > f.Self.Share.Low || f.Self.Service.High < f.Self.Share.High {
			t.Errorf("%s: the service's interval %+v, the selection's %+v", f.Frame.Function, f.Self.Service, f.Self.Share)
		}
		if f.Frame.Function == "parse" && (f.Self.Service.Width() <= f.Self.Share.Width() || math.Abs(f.Self.Service.Value-130.0/240) > 1e-9) {
			t.Errorf("the service's interval %+v, the selection's %+v", f.Self.Service, f.Self.Share)
		}
	}
}

func TestTop(t *testing.T) {
	top, err := shop().Top(t.Context(), about(t, `{service="shop"}`), View{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if top.N != 200 || top.Value != 2000 || top.Exact.CPU != 300*time.Second {
		t.Errorf("%d samples, %d, %v", top.N, top.Value, top.Exact)
	}
	want := map[string][2]int64{"parse": {100, 100}, "gc": {80, 80}, "serve": {20, 120}, "main": {0, 200}}
	for i, f := range top.Functions {
		w, ok := want[f.Frame.Function]
		if !ok || f.Self.N != w[0] || f.Total.N != w[1] {
			t.Errorf("%s: self %d, total %d; want %v", f.Frame.Function, f.Self.N, f.Total.N, w)
		}
		if i > 0 && f.Self.Value > top.Functions[i-1].Self.Value {
			t.Errorf("%s comes after less", f.Frame.Function)
		}
		if math.Abs(f.Self.Seconds-300*float64(w[0])/200) > 1e-9 || !f.Self.Share.Contains(float64(w[0])/200) {
			t.Errorf("%s: %g s, share %+v", f.Frame.Function, f.Self.Seconds, f.Self.Share)
		}
		if f.Self.ServiceKnown {
			t.Errorf("%s: two instances tell how others differ: %+v", f.Frame.Function, f.Self.Service)
		}
	}
	if len(top.Functions) != len(want) {
		t.Errorf("%d functions", len(top.Functions))
	}
	if few, err := shop().Top(t.Context(), about(t, ""), View{}, 2); err != nil || len(few.Functions) != 2 || few.N != 205 {
		t.Errorf("two of all: %+v, %v", few, err)
	}
	if none, err := shop().Top(t.Context(), about(t, `{service="none"}`), View{}, 0); err != nil || len(none.Functions) != 0 {
		t.Errorf("of nothing: %+v, %v", none, err)
	}
}

// TestDropped asks for what was dropped in part: the answer says of what times.
func TestDropped(t *testing.T) {
	a := shop()
	kept := a.Store.(*shelf)
	kept.dropped = map[store.Level]time.Time{store.Raw: noon.Add(90 * time.Second), store.Service1h: noon.Add(time.Hour)}
	s := about(t, `{service="shop"}`)
	_, c, err := a.Merge(t.Context(), s)
	if want := (Span{s.From, noon.Add(90 * time.Second)}); err != nil || len(c.Dropped) != 1 || c.Dropped[0] != want {
		t.Errorf("%v, %v, want %v", c.Dropped, err, want)
	}
	s.From = noon.Add(2 * time.Minute)
	if _, c, err = a.Merge(t.Context(), s); err != nil || len(c.Dropped) != 0 {
		t.Errorf("of a time that is kept: %v, %v", c.Dropped, err)
	}
}

func TestCoverage(t *testing.T) {
	w, c, err := shop().Merge(t.Context(), about(t, `{service="shop"}`))
	if err != nil || w.N() != 200 {
		t.Fatalf("%v, %v", w, err)
	}
	gap := Span{noon.Add(time.Minute), noon.Add(2 * time.Minute)}
	if c.Windows != 3 || c.Damaged != 1 || c.N != 200 || len(c.Losses) != 1 || c.Losses[0].N != 3 || len(c.Nodes) != 1 {
		t.Fatalf("%+v", c)
	}
	if n := c.Nodes[0]; n.Node != "n" || n.Task != "t" || n.Watched != 2*time.Minute || !n.First.Equal(noon) || !n.Last.Equal(noon.Add(3*time.Minute)) ||
		len(n.Missing) != 1 || !n.Missing[0].From.Equal(gap.From) || !n.Missing[0].To.Equal(gap.To) {
		t.Errorf("%+v", n)
	}
	if w, _, err := shop().Merge(t.Context(), about(t, `{service="none"}`)); w != nil || err != nil {
		t.Errorf("of nothing: %v, %v", w, err)
	}
}

// TestNeverCame has a machine tell, in a window of another task, of windows that
// never came: answers about whatever runs on it say so, once.
func TestNeverCame(t *testing.T) {
	a := shop()
	told := head(1)
	told.Task, told.Losses = "other", []profile.Loss{{Reason: profile.LossSpoolLimit, N: 4}, {Reason: profile.LossDropped, N: 9}}
	kept := a.Store.(*shelf)
	kept.windows = append(kept.windows, written{profile.Labels{"node": "n"}, told, "", nil})
	for selector, want := range map[string]int64{`{service="shop"}`: 4, `{service="cart"}`: 0, `{node="n"}`: 4, "": 4} {
		for _, task := range []string{"", "t"} {
			s := about(t, selector)
			s.Task = task
			_, c, err := a.Merge(t.Context(), s)
			h := profile.Head{Losses: c.Losses}
			if got := h.LossOf(profile.LossSpoolLimit).N; err != nil || got != want {
				t.Errorf("%q, task %q: %d windows never came, want %d: %v", selector, task, got, want, err)
			}
			if task != "" && slices.ContainsFunc(c.Nodes, func(n NodeCoverage) bool { return n.Task != task }) {
				t.Errorf("%q: watched were %+v", selector, c.Nodes)
			}
		}
	}
}

// TestTrust tells of profiles that recorded some instances, and of clocks.
func TestTrust(t *testing.T) {
	some, fewer, off := head(0), head(1), head(2)
	some.Instances, fewer.Instances = profile.Instances{Recorded: 3, Eligible: 12}, profile.Instances{Recorded: 2, Eligible: 12}
	off.Task, off.ClockError = "u", 2*time.Minute
	labels := profile.Labels{"service": "shop", "node": "n"}
	a := Asker{Tenant: "x", Store: &shelf{windows: []written{
		{labels, some, "", map[string]int64{"main": 60}}, {labels, fewer, "", map[string]int64{"main": 60}}, {labels, off, "", map[string]int64{"main": 60}}}}}
	ask := func(name string, c Coverage, err error) {
		t.Helper()
		if err != nil || c.Doubtful != 1 || len(c.Tasks) != 1 || c.Tasks[0] != (TaskCoverage{"t", fewer.Instances}) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	w, c, err := a.Merge(t.Context(), about(t, ""))
	ask("merge", c, err)
	if w.Instances != fewer.Instances {
		t.Errorf("%+v", w.Instances)
	}
	top, err := a.Top(t.Context(), about(t, ""), View{}, 0)
	ask("top", top.Coverage, err)
	_, c, err = a.Split(t.Context(), about(t, ""), Split{By: "node"})
	ask("split", c, err)
	unknown, wild := head(0), head(1)
	unknown.ClockError, wild.ClockError, wild.ClockOffset = profile.ClockUnknown, profile.ClockUnknown, -time.Hour
	b := Asker{Tenant: "x", Store: &shelf{windows: []written{{labels, unknown, "", nil}, {labels, wild, "", nil}, {labels, head(2), "", nil}}}}
	if _, c, err := b.Merge(t.Context(), about(t, "")); err != nil || c.Doubtful != 2 {
		t.Errorf("of two windows nobody knows when they were: %+v, %v", c, err)
	}
	if _, c, err := shop().Merge(t.Context(), about(t, "")); err != nil || c.Doubtful != 0 || c.Tasks != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSplitInTurns takes a selection apart into more parts than are merged at once:
// each is there once, and shares are of all of them.
func TestSplitInTurns(t *testing.T) {
	const instances = 2*atOnce + 3
	s := &shelf{}
	for i := range instances {
		labels := profile.Labels{"service": "shop", "node": "n", "instance": fmt.Sprintf("%03d", i)}
		s.windows = append(s.windows, written{labels, head(0), "", map[string]int64{"main": int64(i + 1)}})
	}
	parts, c, err := Asker{Tenant: "x", Store: s}.Split(t.Context(), about(t, ""), Split{By: "instance"})
	if err != nil || len(parts) != instances || c.Windows != instances {
		t.Fatalf("%d parts of %d windows, want %d of each: %v", len(parts), c.Windows, instances, err)
	}
	for i, p := range parts {
		if want := float64(i+1) / (instances * (instances + 1) / 2); p.By != fmt.Sprintf("%03d", i) || p.N != int64(i+1) || math.Abs(p.Share.Value-want) > 1e-9 {
			t.Errorf("part %d is %+v, want a share of %g", i, p, want)
		}
	}
}

// TestSplitByThread lacks as much as other answers do, and is of as many windows.
func TestSplitByThread(t *testing.T) {
	_, want, err := shop().Split(t.Context(), about(t, `{service="shop"}`), Split{})
	if err != nil {
		t.Fatal(err)
	}
	parts, got, err := shop().Split(t.Context(), about(t, `{service="shop"}`), Split{By: ByThread})
	if err != nil || len(parts) < 2 {
		t.Fatal(parts, err)
	}
	if !reflect.DeepEqual(got, want) || len(got.Losses) == 0 {
		t.Errorf("by thread %+v, want %+v", got, want)
	}
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		by   Split
		want string
	}{
		{Split{Step: time.Minute}, "12:00  140/200s 12:02  60/100s"},
		{Split{Step: 2 * time.Minute}, "12:00  140/200s 12:02  60/100s"},
		{Split{Step: time.Hour}, "12:00  200/300s"},
		{Split{By: "instance"}, " a 140/200s  bb 60/100s"},
		{Split{By: "colour"}, "  200/300s"},
		{Split{By: ByThread}, " gc-# 60/100s  http-# 140/200s"},
		{Split{By: "instance", Function: "parse"}, " a 60/200s  bb 40/100s"},
		{Split{By: "instance", Function: "serve"}, " a 80/200s  bb 40/100s"},
		{Split{Function: "nobody"}, "  0/300s"},
	} {
		parts, _, err := shop().Split(t.Context(), about(t, `{service="shop"}`), test.by)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range parts {
			at := ""
			if !p.Start.IsZero() {
				at = p.Start.Format("15:04")
			}
			got = append(got, fmt.Sprintf("%s %s %d/%.0fs", at, p.By, p.N, p.CPU.Seconds()))
		}
		for _, p := range parts {
			if test.by.Function == "" && !p.Share.Contains(float64(p.N)/200) {
				t.Errorf("%+v: share %+v of part %+v", test.by, p.Share, p)
			}
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%+v: %q, want %q", test.by, text, test.want)
		}
	}
}

func TestLabels(t *testing.T) {
	labels, c, err := shop().Labels(t.Context(), about(t, `{service=~"shop|cart"}`))
	if len(c.Nodes) != 1 || len(c.Nodes[0].Missing) != 1 {
		t.Errorf("coverage %+v", c)
	}
	if err != nil || fmt.Sprint(labels) != "map[instance:[a bb] node:[m n] service:[cart shop]]" {
		t.Errorf("%v, %v", labels, err)
	}
}

// TestLostWindows has a machine tell in one of its windows of others that never
// came: they count once, also where that window is listed.
func TestLostWindows(t *testing.T) {
	a := shop()
	told := head(1)
	told.Task, told.Losses = "other", []profile.Loss{{Reason: profile.LossSpoolLimit, N: 4}}
	kept := a.Store.(*shelf)
	kept.windows = append(kept.windows, written{profile.Labels{"node": "n"}, told, "", nil})
	for i := range kept.windows {
		kept.windows[i].head.Types = head(0).Types // machines have some too, where idle time is sampled
	}
	list, err := a.Windows(t.Context(), about(t, ""), 100)
	if err != nil {
		t.Fatal(err)
	}
	if h := (profile.Head{Losses: list.Coverage.Losses}); h.LossOf(profile.LossSpoolLimit).N != 4 {
		t.Errorf("of 4 windows that never came %d are told", h.LossOf(profile.LossSpoolLimit).N)
	}
}

// TestOverlappingTasks has profiles record a service at the same time, and one take
// the place of another.
func TestOverlappingTasks(t *testing.T) {
	windows := func(task, service string, from, to int) (all []written) {
		for minute := from; minute < to; minute++ {
			h := head(minute)
			h.Task = task
			all = append(all, written{profile.Labels{"service": service, "node": "n"}, h, "", map[string]int64{"main": 1}})
		}
		return all
	}
	for name, test := range map[string]struct {
		windows [][]written
		want    string
	}{
		"one":                        {[][]written{windows("a", "shop", 0, 50)}, "[]"},
		"one after the other":        {[][]written{windows("a", "shop", 0, 20), windows("b", "shop", 20, 50)}, "[]"},
		"at once":                    {[][]written{windows("a", "shop", 0, 50), windows("b", "shop", 20, 25)}, "[a b]"},
		"a short one within":         {[][]written{windows("c", "shop", 0, 50), windows("b", "shop", 2, 3), windows("a", "shop", 45, 60)}, "[a c]"},
		"at once, of other services": {[][]written{windows("a", "shop", 0, 50), windows("b", "cart", 20, 25)}, "[]"},
	} {
		a := Asker{Store: &shelf{windows: slices.Concat(test.windows...)}, Now: func() time.Time { return noon.Add(time.Hour) }}
		_, c, err := a.Merge(t.Context(), about(t, ""))
		if got := fmt.Sprint(c.Overlapping); err != nil || got != test.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, test.want)
		}
	}
}

// TestMergeOfWhatIsThere adds up what began a while before the rest, as what was added
// up to ten minutes of which a server ran four: it is as long as there is something.
func TestMergeOfWhatIsThere(t *testing.T) {
	early, late := head(0), head(10)
	early.Duration = 226 * time.Second // of a step of ten minutes
	labels := profile.Labels{"service": "shop", "node": "n"}
	a := Asker{Tenant: "x", Now: func() time.Time { return noon.Add(11 * time.Minute) }, Store: &shelf{windows: []written{
		{labels, early, "", map[string]int64{"main": 5}}, {labels, late, "", map[string]int64{"main": 5}},
	}}}
	s := about(t, `{service="shop"}`)
	s.To = noon.Add(11 * time.Minute)
	g, _, err := a.Merge(t.Context(), s)
	if err != nil || g == nil {
		t.Fatalf("%v, %v", g, err)
	}
	if want := 286 * time.Second; g.Head.Duration != want {
		t.Errorf("it is over %v, want %v", g.Head.Duration, want)
	}
}
