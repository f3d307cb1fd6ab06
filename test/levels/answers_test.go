package levels

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
)

var (
	firstSeed = flag.Uint64("seed", 0, "the first seed of TestAnswers")
	seeds     = flag.Uint64("seeds", 0, "number of seeds of TestAnswers; 0: 24, or 3 with -short")
)

// chain is what stands between agents and a server, the nearest to the server first.
type chain struct {
	name   string
	levels []level
}

var chains = []chain{
	{"by zone, then all", []level{{"service"}, {"service", "zone"}}},
	{"direct", nil},
	{"added up", []level{{"service", "zone"}}},
	{"forwarded twice", []level{nil, nil}},
	{"forwarded, added up", []level{{"service"}, nil}},
	{"added up, forwarded", []level{nil, {"service", "zone"}}},
	{"three levels, all add", []level{{"service"}, {"service", "zone"}, {"service", "zone", "instance"}}},
}

// kept lists the labels that are left of what the chain adds up; all is true if it adds up
// nothing.
func (c chain) kept() (labels []string, all bool) {
	labels, all = []string{"service", "zone", "instance", "executable"}, true
	for _, keep := range c.levels {
		if keep != nil {
			all = false
			labels = slices.DeleteFunc(labels, func(l string) bool { return !slices.Contains(keep, l) })
		}
	}
	return labels, all
}

// TestAnswers sends random windows through relays to a server, some of them twice or late, rolls
// them up, and asks for them in many ways: each answer is the one of a model that reads the rows as
// they were sampled. To repeat a failure, run its subtest, or pass -seed and -seeds.
func TestAnswers(t *testing.T) {
	var sums atomic.Int64 // of several types
	t.Cleanup(func() {
		if sums.Load() == 0 && !t.Failed() && *seeds == 0 {
			t.Error("relays have added up no windows of several types")
		}
	})
	n := *seeds
	if n == 0 {
		if n = 24; testing.Short() {
			n = 3
		}
	}
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		c := chains[seed%uint64(len(chains))]
		for engine, open := range engines {
			t.Run(fmt.Sprintf("seed %d, %s, %s", seed, c.name, engine), func(t *testing.T) {
				t.Parallel()
				w := newWorld(seed)
				f := start(t, open(t, seed), seed, c.levels...)
				e := &examiner{T: t, world: w, fleet: f, r: rand.New(rand.NewPCG(seed, 4))}
				e.labels, e.whole = c.kept()
				late := e.r.IntN(len(w.windows))
				f.send(t, seed, w.windows[late:])
				roll(t, f.store)
				f.send(t, seed+1, w.windows[:late])
				e.askServer(6) // while steps are stale
				roll(t, f.store)
				e.askServer(6)
				e.askStore(40)
				e.readExemplars()
				e.readRows()
				sums.Add(e.sums())
			})
		}
	}
}

// send ships windows until they are taken: one, so that relays learn what the server takes, and then
// all others at once.
func (f *fleet) send(t *testing.T, seed uint64, windows []observed) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 6))
	var agents sync.WaitGroup
	for i := 0; len(windows) > 0; i++ {
		var sealed []*wireWindow
		n := 1
		if i > 0 {
			n = min(1+r.IntN(4), len(windows))
		}
		for _, o := range windows[:n] {
			sealed = append(sealed, wire.Seal(o.sent, o.run))
		}
		windows = windows[n:]
		agents.Go(func() {
			if err := f.ship(seed*1000+uint64(i), sealed...); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			agents.Wait()
		}
	}
	agents.Wait()
	if late, ok := f.store.(*mem.Store); ok {
		late.Settle()
	}
}

// examiner asks questions, and compares answers with those of the model.
type examiner struct {
	*testing.T
	*world
	*fleet
	r      *rand.Rand
	labels []string // that can be asked for
	whole  bool     // nothing was added up by relays
}

// sums counts the windows of several types that relays have added up.
func (e *examiner) sums() (n int64) {
	e.Helper()
	q := store.Query{From: begin, To: begin.Add(time.Hour)}
	if err := e.store.Heads(e.Context(), "default", []store.Query{q}, func(h store.Head) error {
		if h.Of > 1 && len(h.Head.Types) > 1 {
			n++
		}
		return nil
	}); err != nil {
		e.Fatal(err)
	}
	return n
}

// ask is a question to a store.
type ask struct {
	level    store.Level
	kinds    []string
	selected spec.Selector
	task     string
	from, to time.Time
	by       []store.Dimension
	step     time.Duration
	where    spec.Selector
	period   time.Duration // of slots
	parts    int
}

// String writes the question for messages.
func (a *ask) String() string {
	return fmt.Sprintf("%v of %v %v task %q [%v, %v) by %q step %v where %v, %d parts of %v",
		a.kinds, a.level, a.selected, a.task, a.from.Sub(begin), a.to.Sub(begin), a.by, a.step, a.where, a.parts, a.period)
}

func (a *ask) grouping() store.Grouping {
	g := store.Grouping{By: a.by, Where: a.where, Slots: store.Slots{Start: begin, Period: a.period, Parts: a.parts}, MaxInstances: 100}
	if a.step > 0 {
		g.Start, g.Step = begin.Truncate(24*time.Hour), a.step
	}
	return g
}

func (a *ask) has(d store.Dimension) bool { return slices.Contains(a.by, d) }

func (a *ask) readsContexts() bool {
	return len(a.where) > 0 || slices.ContainsFunc(a.by, func(d store.Dimension) bool { _, ok := d.Context(); return ok })
}

func (a *ask) dividesRows() bool {
	return a.has(store.ByThread) || a.has(store.BySlot) || a.readsContexts()
}

func (a *ask) divides() bool { return a.has(store.ByKind) || a.dividesRows() }

// chooses reports whether the question is about a window.
func (a *ask) chooses(o *observed) bool {
	return (a.task == "" || o.Task == a.task || strings.HasPrefix(o.Task, a.task+"/")) && !o.Start.Before(a.from) && o.Start.Before(a.to) &&
		a.selected.Matches(o.Target) && slices.ContainsFunc(o.Types, func(t profile.ValueType) bool { return slices.Contains(a.kinds, t.Kind) })
}

// kindsAsked are kinds that are asked for together, and whether they can be added up.
var kindsAsked = [][]string{{"cpu"}, {"off-cpu"}, {"waits"}, {"page-faults"}, {"switches"}, {"heap"}, {"stacks"}, {"allocated"}, {"goroutines"},
	{"cpu", "off-cpu"}, {"cpu", "page-faults"}, {"heap", "stacks"}, {"waits", "off-cpu"}}

// askStore asks a store random questions at each of its levels.
func (e *examiner) askStore(questions int) {
	e.Helper()
	levels := append([]store.Level{store.Raw, store.Raw}, store.RolledUp()...)
	for i := range questions {
		a := e.question(levels[i%len(levels)])
		parts := []store.Query{{Level: a.level, Select: a.selected, Task: a.task, Kinds: a.kinds, From: a.from, To: a.to}}
		got, err := e.store.Merge(e.Context(), "default", parts, a.grouping())
		if err != nil {
			e.Fatalf("%v: %v", a, err)
		}
		if e.compare(a, got, e.answer(a)); e.Failed() {
			e.FailNow() // most questions would fail for one reason
		}
	}
}

// question makes a random question that a level can answer.
func (e *examiner) question(level store.Level) *ask {
	r := e.r
	a := &ask{level: level, kinds: kindsAsked[r.IntN(len(kindsAsked))], from: begin.Truncate(24 * time.Hour), to: begin.Add(48 * time.Hour)}
	levels := slices.ContainsFunc(a.kinds, func(kind string) bool { return slices.Contains([]string{"heap", "stacks", "goroutines"}, kind) })
	if r.IntN(3) == 0 {
		a.task = pick(r, "t", "memory", "allocations")
	}
	labels := e.labels
	if level.Services() {
		labels = labels[:1]
	}
	if r.IntN(3) == 0 {
		label := pick(r, labels...)
		a.selected = spec.Selector{{Label: label, Op: pick(r, spec.Equal, spec.NotEqual), Value: map[string]string{"service": pick(r, "shop", pruned), "zone": "z0", "instance": "i1", "executable": ""}[label]}}
	}
	if length := level.Length(); r.IntN(3) == 0 {
		a.from = begin.Add(time.Duration(r.IntN(300)) * 3 * time.Second).Truncate(max(length, time.Second))
		a.to = begin.Add(time.Duration(300+r.IntN(300)) * 3 * time.Second).Truncate(max(length, time.Second))
	}
	for _, label := range labels {
		if r.IntN(4) == 0 {
			a.by = append(a.by, store.ByLabel(label))
		}
	}
	if r.IntN(4) == 0 {
		a.by = append(a.by, store.ByKind)
	}
	if r.IntN(3) == 0 {
		a.by = append(a.by, store.ByContext(pick(r, store.ContextParts()...)))
	}
	if r.IntN(5) == 0 {
		a.where = spec.Selector{{Label: pick(r, store.ContextReason, store.ContextEndpoint), Op: pick(r, spec.Equal, spec.NotEqual), Value: pick(r, "", "blocked", "/1")}}
	}
	if e.whole && level == store.Raw && r.IntN(3) == 0 {
		a.by = append(a.by, store.ByThread)
		a.selected = append(a.selected, spec.Matcher{Label: store.ServiceLabel, Op: spec.NotEqual, Value: pruned}) // its threads are others
	}
	if !levels && level <= store.Series10m && r.IntN(3) == 0 {
		a.by = append(a.by, store.BySlot)
		a.period, a.parts = 10*time.Minute, pick(r, 600, 12_000)
		if level == store.Raw {
			a.period, a.parts = pick(r, time.Second, 10*time.Second, time.Minute), pick(r, 2, 10, 20)
			if !e.whole { // sums have no long slots
				a.parts = int(a.period / (500 * time.Millisecond))
			}
		}
	} else if (!levels || level == store.Raw) && r.IntN(4) == 0 { // a window that is longer than a step is in several
		a.step = max(level.Length(), time.Minute) * time.Duration(pick(r, 1, 2, 5))
		if e.whole && level == store.Raw {
			a.step = pick(r, 10*time.Second, 30*time.Second, time.Minute)
		}
	}
	r.Shuffle(len(a.by), func(i, j int) { a.by[i], a.by[j] = a.by[j], a.by[i] })
	return a
}

// compare compares the answer of a store with that of the model.
func (e *examiner) compare(a *ask, got *store.Merged, want *answer) {
	e.Helper()
	folded := e.crowded && a.level != store.Raw && a.readsContexts()
	if folded {
		e.compareFolded(a, got, want)
	}
	if a.divides() {
		if want.whole.windows == 0 && got.Whole.Windows == 0 {
			return
		}
		e.compareTotals(a, "all", &store.Column{Head: got.Whole.Head, Windows: got.Whole.Windows}, &want.whole)
	}
	if folded {
		return
	}
	missing := maps.Clone(want.columns)
	for i := range got.Columns {
		c := &got.Columns[i]
		step := ""
		if a.step > 0 {
			step = c.Start.String()
		}
		key := columnKey(step, c.By)
		w := want.columns[key]
		delete(missing, key)
		if w == nil {
			e.Fatalf("%v: nothing is known of column %s with %d stacks of %d windows", a, key, len(c.Sums), c.Windows)
		}
		e.compareColumn(a, key, got.Forest, c, w)
		if a.divides() && e.whole && a.level == store.Raw && c.Windows != len(w.seen) {
			e.Fatalf("%v: column %s: %d windows, want %d", a, key, c.Windows, len(w.seen))
		}
		if !a.divides() {
			e.compareTotals(a, key, c, &w.totals)
		}
		if a.has(store.ByThread) && !a.readsContexts() && c.Head.Exact.CPU != w.exact.CPU {
			e.Fatalf("%v: column %s: threads have used %v, want %v", a, key, c.Head.Exact.CPU, w.exact.CPU)
		}
	}
	for key := range missing {
		if len(missing[key].sums) > 0 {
			e.Fatalf("%v: column %s is missing", a, key)
		}
	}
}

// compareTotals compares what is known of windows beside their rows.
func (e *examiner) compareTotals(a *ask, key string, c *store.Column, w *totals) {
	e.Helper()
	h := &c.Head
	h.Exact.Source, w.exact.Source = "", ""
	if c.Windows != w.windows || h.Exact != w.exact || h.Idle != w.idle || h.Watched != w.watched || h.Cost != w.cost {
		e.Fatalf("%v: column %s: %d windows, %+v, idle %v, watched %v, cost %v;\nwant %+v", a, key, c.Windows, h.Exact, h.Idle, h.Watched, h.Cost, *w)
	}
	for _, reason := range []profile.LossReason{profile.LossDropped, profile.LossTruncated} {
		got, want := h.LossOf(reason), w.losses[reason]
		if got.N != want.N || got.Value != want.Value {
			e.Fatalf("%v: column %s: lost %+v, want %+v", a, key, got, want)
		}
	}
}

// compareColumn compares what is on stacks.
func (e *examiner) compareColumn(a *ask, key string, f *profile.Forest, c *store.Column, w *column) {
	e.Helper()
	got := sumsOf(f, c)
	if w.pruned {
		e.comparePruned(a, key, c, got, w, 1)
		return
	}
	e.compareStacks(a, key, got, w, 1)
	for stack, want := range w.sums {
		s := got[stack]
		if !want.nearSquares(s.squares, w.weighted) {
			e.Fatalf("%v: column %s: squares of %s are %g, want %g", a, key, stack, s.squares, want.squares)
		}
		for g := range s.groups {
			if !w.near(s.groups[g], want.groups[g], 1) {
				e.Fatalf("%v: column %s: %s has %.0f of group %d, want %.2f", a, key, stack, s.groups[g], g, want.groups[g])
			}
		}
	}
	if len(a.kinds) > 1 {
		for _, kind := range c.Kinds {
			want := w.kinds[kind.Kind]
			if want == nil {
				want = &sum{}
			}
			if !a.hasLevels() && (kind.N != want.n || kind.Value != int64(want.value)) {
				e.Fatalf("%v: column %s: %+v, want %+v", a, key, kind, *want)
			}
		}
	}
	if told := e.whole && !a.level.Services() && !a.divides(); told != (c.Instances != nil) && (told || a.level.Services()) {
		e.Fatalf("%v: column %s: %d instances are told apart", a, key, len(c.Instances))
	}
	for _, one := range c.Instances {
		value := 0.0
		for _, v := range one.Values {
			value += float64(v.Value)
		}
		if !w.near(value, w.instances[one.Name], len(one.Values)) {
			e.Fatalf("%v: column %s: instance %q has %.0f, want %.2f", a, key, one.Name, value, w.instances[one.Name])
		}
	}
}

func (a *ask) hasLevels() bool {
	return slices.ContainsFunc(a.kinds, func(kind string) bool { return slices.Contains([]string{"heap", "stacks", "goroutines"}, kind) })
}

// sumsOf lists the sums of a column by their stacks.
func sumsOf(f *profile.Forest, c *store.Column) map[string]*sum {
	got := map[string]*sum{}
	for _, s := range c.Sums {
		to := at(got, strings.Join(stackIn(f, s.Call), ";"))
		to.add(sum{n: s.N, value: float64(s.Value), squares: s.Squares}, 0)
		for g, v := range s.Groups {
			if g == 0 {
				to.groups[0] -= float64(s.Value)
			}
			to.groups[g] += float64(v)
		}
	}
	return got
}

// near compares what some stacks add up to: deltas are exact, and the means of levels are rounded.
func (c *column) near(got, want float64, stacks int) bool {
	if !c.levels {
		return got == want
	}
	return math.Abs(got-want) <= 1e-6*math.Abs(want)+float64(stacks)
}

// comparePruned compares what pruned windows add up to: nothing is lost, no stack gains, and what
// is cut counts as pruned.
func (e *examiner) comparePruned(a *ask, key string, c *store.Column, got map[string]*sum, w *column, scale int) {
	e.Helper()
	var all, want, lost sum
	for stack, s := range got {
		all.add(*s, 0)
		if cut(stack) {
			lost.add(*s, 0)
		} else if w.sums[stack] == nil || s.n > w.sums[stack].n || s.value > w.sums[stack].value && !w.near(s.value, w.sums[stack].value, scale) {
			e.Fatalf("%v: column %s: %s has %+v, more than %+v", a, key, stack, *s, w.sums[stack])
		}
	}
	for _, s := range w.sums {
		want.add(*s, 0)
	}
	if all.n != want.n || !w.near(all.value, want.value, scale*len(got)) {
		e.Fatalf("%v: column %s: pruned windows have %d samples, %.0f; want %d, %.2f", a, key, all.n, all.value, want.n, want.value)
	}
	if first := slices.Contains([]string{"cpu", "off-cpu", "allocated", "switches"}, a.kinds[0]); !a.divides() && len(a.kinds) == 1 && first {
		if loss := c.Head.LossOf(profile.LossPruned); loss.N != lost.n || loss.Value != int64(lost.value) {
			e.Fatalf("%v: column %s: %d samples, %.0f are cut, and counted as pruned are %+v", a, key, lost.n, lost.value, loss)
		}
	}
}

// nearSquares compares variances. Engines keep those from weights within a quarter at each level,
// and round measured ones to 8 bits: within 0.4% at each level.
func (s *sum) nearSquares(got float64, weighted bool) bool {
	if weighted {
		return math.Abs(got-s.squares) <= (1-0.75*0.75*0.75)*(s.squares+s.value*s.value/float64(s.n))+1e9
	}
	return math.Abs(got-s.squares) <= 0.02*s.squares+1
}

// compareFolded compares what is told of contexts in roll-ups that do not have all of them: no
// context gains, and what is not told apart counts as that.
func (e *examiner) compareFolded(a *ask, got *store.Merged, want *answer) {
	e.Helper()
	var all, wanted, other sum
	for i := range got.Columns {
		c := &got.Columns[i]
		var of sum
		for _, s := range sumsOf(got.Forest, c) {
			of.add(*s, 0)
		}
		all.add(of, 0)
		if slices.Contains(c.By, store.OtherContext.Reason) {
			other.add(of, 0)
			continue
		}
		if a.step > 0 {
			continue
		}
		var most sum
		if w := want.columns[columnKey("", c.By)]; w != nil {
			for _, s := range w.sums {
				most.add(*s, 0)
			}
		}
		if len(a.where) == 0 && (of.n > most.n || of.value > most.value*(1+1e-6)+float64(of.n)+1) {
			e.Fatalf("%v: %q has %+v, more than %+v", a, c.By, of, most)
		}
	}
	for _, w := range want.columns {
		for _, s := range w.sums {
			wanted.add(*s, 0)
		}
	}
	if len(a.where) > 0 {
		return
	}
	if all.n != wanted.n || !a.hasLevels() && all.value != wanted.value {
		e.Fatalf("%v: all contexts have %d samples, %.0f; want %d, %.0f", a, all.n, all.value, wanted.n, wanted.value)
	}
	if len(a.kinds) == 1 && got.Whole != nil {
		value := int64(other.value)
		if a.hasLevels() { // only samples are counted
			value = 0
		}
		if loss := got.Whole.Head.LossOf(profile.LossContexts); loss.N != other.n || loss.Value != value {
			e.Fatalf("%v: %d samples, %.0f are of no context, and counted as such are %+v", a, other.n, other.value, loss)
		}
	}
}

// readExemplars reads the exemplars of each level: they are those that one window of all that was
// sampled would have.
func (e *examiner) readExemplars() {
	e.Helper()
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		for _, kind := range []string{"cpu", "off-cpu", "heap", "allocated"} {
			services := spec.Selector{{Label: store.ServiceLabel, Op: spec.NotEqual, Value: pruned}}
			var got, want []traced
			q := store.Query{Level: level, Kinds: []string{kind}, Select: services, From: begin.Add(-48 * time.Hour), To: begin.Add(48 * time.Hour)}
			err := e.store.Scan(e.Context(), "default", q, func(w *profile.Window, _ profile.Run) error {
				if w.Kind() == kind {
					got = append(got, tracedIn(w)...)
				}
				return nil
			})
			if err != nil {
				e.Fatal(err)
			}
			for _, o := range e.windows {
				if o.Kind() == kind && services.Matches(o.Target) {
					want = append(want, tracedIn(o.Window)...)
				}
			}
			if e.crowded && level != store.Raw {
				for i := range got {
					got[i].context = profile.Context{}
				}
				for i := range want {
					want[i].context = profile.Context{}
				}
			}
			if got, want := chosenOf(got), chosenOf(want); !slices.Equal(got, want) {
				e.Fatalf("level %v, %s: exemplars\n%s\nwant\n%s", level, kind, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}
