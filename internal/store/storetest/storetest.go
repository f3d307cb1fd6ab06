// Package storetest is what every engine behind store.Store must do. What engines answer to all
// kinds of questions is compared with a model in test/levels.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// Engine opens a store. Settle, if not nil, has what was put be seen: an engine
// may show it late.
type Engine struct {
	Open   func(t *testing.T, quotas store.Quotas) store.Store
	Settle func(s store.Store)
}

// Run runs the suite over an engine.
func Run(t *testing.T, e Engine) {
	for name, test := range map[string]func(*testing.T, *bench){
		"gives back what was put":        testGivesBack,
		"the later one counts":           testLater,
		"keeps kinds apart":              testKinds,
		"asks for what it does not know": testUnknown,
		"takes a batch twice":            testTwice,
		"contains each once":             testOverlap,
		"contains each once in a batch":  testOverlapInBatch,
		"contains each once, at once":    testOverlapAtOnce,
		"chooses":                        testChooses,
		"ends a scan":                    testEndsScan,
		"merges":                         testMerges,
		"groups by thread":               testThreads,
		"chooses kinds":                  testChoosesKinds,
		"gives heads":                    testHeads,
		"tells instances apart":          testApart,
		"keeps tenants apart":            testTenants,
		"late names":                     testLateNames,
		"names of whoever has them":      testBetterNames,
		"drops days":                     testDrops,
		"rolls up":                       testRollsUp,
		"rolls up in order":              testRollsInOrder,
		"averages small levels":          testSmallLevels,
		"keeps origins":                  testOrigin,
		"refines late":                   testRefines,
		"keeps what is rolled up":        testKeepsRolled,
		"many at once":                   testMany,
		"series have a limit":            testSeriesQuota,
		"counts series that came":        testCountsCame,
		"gives series back":              testTidies,
		"tidies while windows come":      testTidiesBusy,
		"bytes have a limit":             testBytesQuota,
		"closed":                         testClosed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.Open(t, quotas)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, &bench{Store: s, settle: e.Settle})
		})
	}
}

// bench is a store that is tested, as one tenant has it.
type bench struct {
	store.Store
	settle func(store.Store)
}

const tenant = "tenant"

// Epoch is when windows of the tests begin.
var Epoch = time.Date(2026, 11, 20, 23, 50, 0, 0, time.UTC)

// Window is a random one of a service and an instance, whose values no rounding
// touches.
func Window(seed uint64, service, instance string, start time.Time) *profile.Window {
	r := rand.New(rand.NewPCG(seed, 3))
	w := profiletest.Random(r)
	w.Samples = nil
	w.Start, w.Task = start, "task"
	w.Target = profile.Labels{store.ServiceLabel: service, "instance": instance}
	for _, row := range w.Rows.All() {
		row.Values[0] = row.N * (r.Int64N(1e6) + 1)
		row.Squares[0] = profile.Alike(row.N, row.Values[0])
		if row.N > 1 {
			row.Squares[0] += float64(r.Int64N(1e6))
		}
	}
	return w
}

// Batch puts windows under one table, with all that explains it.
func Batch(run profile.Run, windows ...*profile.Window) *store.Batch {
	f := &forester{forest: &profile.Forest{}, calls: map[profile.Hash]int{}, places: map[profile.Hash]int{}}
	b := &store.Batch{Forest: f.forest}
	stacks := map[profile.Hash]profile.StackID{}
	for _, w := range windows {
		kept := store.Window{Series: w.Target, Head: w.Head, Run: run, Threads: w.Threads, Contexts: w.Contexts, Exemplars: slices.Clone(w.Exemplars)}
		for range w.Types {
			kept.Scales = append(kept.Scales, 1)
		}
		kept.Rows = w.Rows.Clone()
		number := func(stack profile.StackID) profile.StackID {
			h := f.stack(w, stack)
			n, ok := stacks[h]
			if !ok {
				n = profile.StackID(len(b.Stacks))
				stacks[h] = n
				b.Stacks = append(b.Stacks, h)
			}
			return n
		}
		for i, stack := range w.Rows.Stack {
			kept.Rows.Stack[i] = number(stack)
		}
		for i, peer := range w.Rows.Peer {
			if peer != 0 {
				kept.Rows.Peer[i] = profile.PeerID(number(profile.StackID(peer-1))) + 1
			}
		}
		for i, e := range w.Exemplars {
			kept.Exemplars[i].Stack = number(e.Stack)
		}
		b.Windows = append(b.Windows, kept)
	}
	return b
}

// forester builds a forest of the stacks of windows.
type forester struct {
	forest        *profile.Forest
	calls, places map[profile.Hash]int
}

func (f *forester) stack(w *profile.Window, id profile.StackID) profile.Hash {
	s := w.Stacks[id]
	hash := s.End.Hash()
	at := f.call(profile.Call{Hash: hash, Caller: -1, Place: -1, End: s.End})
	for _, l := range slices.Backward(s.Locations) {
		place := w.Locations[l].Hash()
		number, ok := f.places[place]
		if !ok {
			number = len(f.forest.Places)
			f.places[place] = number
			f.forest.Places = append(f.forest.Places, profile.Place{Hash: place, Location: w.Locations[l], Names: w.Names[l]})
		}
		hash = hash.Call(place)
		at = f.call(profile.Call{Hash: hash, Caller: at, Place: number})
	}
	return hash
}

func (f *forester) call(c profile.Call) int {
	at, ok := f.calls[c.Hash]
	if !ok {
		at = len(f.forest.Calls)
		f.calls[c.Hash] = at
		f.forest.Calls = append(f.forest.Calls, c)
	}
	return at
}

func (b *bench) put(t *testing.T, windows ...*profile.Window) {
	t.Helper()
	if err := b.Put(context.Background(), tenant, store.Raw, Batch(profile.Run{1}, windows...)); err != nil {
		t.Fatal(err)
	}
}

func always() store.Query {
	return store.Query{From: Epoch.Add(-48 * time.Hour), To: Epoch.Add(48 * time.Hour)}
}

// scan gives the windows that a query chooses.
func (b *bench) scan(t *testing.T, tenant string, q store.Query) (windows []*profile.Window) {
	t.Helper()
	if b.settle != nil {
		b.settle(b.Store)
	}
	err := b.Scan(context.Background(), tenant, q, func(w *profile.Window, _ profile.Run) error {
		windows = append(windows, w)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return windows
}

// same compares windows with those that are wanted, in any order.
func same(t *testing.T, got []*profile.Window, want ...*profile.Window) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d windows, want %d", len(got), len(want))
	}
	left := slices.Clone(want)
	for _, g := range got {
		i := slices.IndexFunc(left, func(w *profile.Window) bool { return profiletest.DiffKept(w, g) == "" })
		if i < 0 {
			near := slices.IndexFunc(left, func(w *profile.Window) bool {
				return w.Start.Equal(g.Start) && maps.Equal(w.Target, g.Target)
			})
			if near < 0 {
				t.Fatalf("nobody put the window of %v from %v on", g.Target, g.Start)
			}
			t.Fatalf("the window of %v from %v on:\n%s", g.Target, g.Start, profiletest.DiffKept(left[near], g))
		}
		left = slices.Delete(left, i, i+1)
	}
}

// some gives windows of two services on two instances, over midnight.
func some(first uint64) (windows []*profile.Window) {
	for i := range uint64(24) {
		service, instance := []string{"shop", "cart"}[i%2], []string{"one", "two"}[i/2%2]
		windows = append(windows, Window(first+i, service, instance, Epoch.Add(time.Duration(i/4)*5*time.Minute)))
	}
	return windows
}

func testGivesBack(t *testing.T, b *bench) {
	windows := some(100)
	b.put(t, windows[:10]...)
	b.put(t, windows[10:]...)
	same(t, b.scan(t, tenant, always()), windows...)
}

func testLater(t *testing.T, b *bench) {
	first, second := Window(1, "shop", "one", Epoch), Window(2, "shop", "one", Epoch)
	b.put(t, first)
	b.put(t, second)
	same(t, b.scan(t, tenant, always()), second)
	other := Batch(profile.Run{2}, first) // another life of the agent: another window
	if err := b.Put(context.Background(), tenant, store.Raw, other); err != nil {
		t.Fatal(err)
	}
	same(t, b.scan(t, tenant, always()), second, first)
}

func testUnknown(t *testing.T, b *bench) {
	windows := some(200)
	batch := Batch(profile.Run{1}, windows...)
	silent := *batch
	silent.Forest = nil
	var unknown *store.UnknownError
	if err := b.Put(context.Background(), tenant, store.Raw, &silent); !errors.As(err, &unknown) {
		t.Fatalf("put stacks that nobody explained: %v", err)
	}
	if len(unknown.Stacks) != len(batch.Stacks) {
		t.Errorf("%d stacks are unknown, want all %d", len(unknown.Stacks), len(batch.Stacks))
	}
	same(t, b.scan(t, tenant, always()))
	if err := b.Put(context.Background(), tenant, store.Raw, batch); err != nil {
		t.Fatal(err)
	}
	if b.settle != nil {
		b.settle(b.Store)
	}
	if err := b.Put(context.Background(), tenant, store.Raw, &silent); err != nil {
		t.Errorf("what was explained once is not known: %v", err)
	}
	same(t, b.scan(t, tenant, always()), windows...)
}

func testTwice(t *testing.T, b *bench) {
	windows := some(300)
	b.put(t, windows...)
	slices.Reverse(windows)
	b.put(t, windows...)
	b.put(t, windows[3:7]...)
	same(t, b.scan(t, tenant, always()), windows...)
}

func testChooses(t *testing.T, b *bench) {
	windows := some(400)
	windows[0].Task, windows[1].Task, windows[2].Task = "other", "other/page-faults", "others"
	b.put(t, windows...)
	for name, test := range map[string]struct {
		change func(*store.Query)
		keeps  func(*profile.Window) bool
	}{
		"service": {func(q *store.Query) {
			q.Select = spec.Selector{{Label: store.ServiceLabel, Op: spec.Equal, Value: "cart"}}
		}, func(w *profile.Window) bool { return w.Target["service"] == "cart" }},
		"instance": {func(q *store.Query) { q.Select = spec.Selector{{Label: "instance", Op: spec.Equal, Value: "two"}} }, func(w *profile.Window) bool { return w.Target["instance"] == "two" }},
		"task":     {func(q *store.Query) { q.Task = "other" }, func(w *profile.Window) bool { return w.Task == "other" || w.Task == "other/page-faults" }},
		"an event": {func(q *store.Query) { q.Task = "other/page-faults" }, func(w *profile.Window) bool { return w.Task == "other/page-faults" }},
		"from":     {func(q *store.Query) { q.From = Epoch.Add(10 * time.Minute) }, func(w *profile.Window) bool { return !w.Start.Before(Epoch.Add(10 * time.Minute)) }},
		"to":       {func(q *store.Query) { q.To = Epoch.Add(10 * time.Minute) }, func(w *profile.Window) bool { return w.Start.Before(Epoch.Add(10 * time.Minute)) }},
		"a step": {func(q *store.Query) { q.From, q.To = Epoch.Add(5*time.Minute), Epoch.Add(15*time.Minute) },
			func(w *profile.Window) bool {
				return !w.Start.Before(Epoch.Add(5*time.Minute)) && w.Start.Before(Epoch.Add(15*time.Minute))
			}},
		"nothing": {func(q *store.Query) { q.To = q.From }, func(*profile.Window) bool { return false }},
		"level":   {func(q *store.Query) { q.Level = store.Service1h }, func(*profile.Window) bool { return false }},
	} {
		q := always()
		test.change(&q)
		var want []*profile.Window
		series := map[string]bool{}
		for _, w := range windows {
			if test.keeps(w) {
				want = append(want, w)
				series[w.Target.String()] = true
			}
		}
		t.Run(name, func(t *testing.T) {
			same(t, b.scan(t, tenant, q), want...)
			got, err := b.Series(context.Background(), tenant, q)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, l := range got {
				names = append(names, l.String())
			}
			if wanted := slices.Sorted(maps.Keys(series)); !slices.Equal(names, wanted) {
				t.Errorf("series %v, want %v", names, wanted)
			}
		})
	}
}

// testEndsScan ends scans, also between windows of one series: who is given them is
// given no more, and told by the very error.
func testEndsScan(t *testing.T, b *bench) {
	b.put(t, some(250)...)
	b.scan(t, tenant, always()) // so that all of it is seen
	enough := errors.New("so many are enough")
	for wanted := range 5 {
		given := 0
		err := b.Scan(context.Background(), tenant, always(), func(*profile.Window, profile.Run) error {
			if given++; given > wanted {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || errors.As(err, new(*store.DamagedError)) || given != wanted+1 {
			t.Errorf("%d windows after %d were enough, %v", given, wanted+1, err)
		}
	}
}

// total is what was sampled on a stack.
type total struct {
	n, value int64
	squares  float64
}

// totals adds the values of some windows up, by stack.
func totals(kind string, windows []*profile.Window, keep func(*profile.Window, profile.Row) bool) map[profile.Hash]total {
	sums := map[profile.Hash]total{}
	f := &forester{forest: &profile.Forest{}, calls: map[profile.Hash]int{}, places: map[profile.Hash]int{}}
	for _, w := range windows {
		at := w.TypeIndex(kind)
		if at < 0 {
			continue
		}
		for _, row := range w.Rows.All() {
			if !keep(w, row) {
				continue
			}
			h := f.stack(w, row.Stack)
			s := sums[h]
			s.n, s.value = s.n+row.N, s.value+row.Values[at]
			if at == 0 {
				s.squares += row.Squares[0]
			}
			sums[h] = s
		}
	}
	return sums
}

// compare holds a column against what was put.
func compare(t *testing.T, m *store.Merged, c *store.Column, want map[profile.Hash]total, squares bool) {
	t.Helper()
	if len(c.Sums) != len(want) {
		t.Errorf("columns of %q: %d stacks, want %d", c.By, len(c.Sums), len(want))
	}
	hashes := hashesOf(m.Forest)
	for _, s := range c.Sums {
		w := want[hashes[s.Call]]
		if s.N != w.n || s.Value != w.value || squares && math.Abs(s.Squares-w.squares) > w.squares/4+1 {
			t.Errorf("columns of %q: %d samples, value %d, squares %g; want %d, %d, %g", c.By, s.N, s.Value, s.Squares, w.n, w.value, w.squares)
		}
		var groups int64
		for _, v := range s.Groups {
			groups += v
		}
		if h := m.Forest.Calls[s.Call].Hash; h != hashes[s.Call] {
			t.Errorf("columns of %q: a stack's hash is %x, not %x", c.By, h, hashes[s.Call])
		}
		if groups != s.Value {
			t.Errorf("columns of %q: groups sum to %d of %d", c.By, groups, s.Value)
		}
	}
}

// hashesOf works out what an answer may leave out.
func hashesOf(f *profile.Forest) []profile.Hash {
	hashes := make([]profile.Hash, len(f.Calls))
	for i, c := range f.Calls {
		if c.Caller < 0 {
			hashes[i] = c.End.Hash()
		} else {
			hashes[i] = hashes[c.Caller].Call(f.Places[c.Place].Location.Hash())
		}
	}
	return hashes
}

// Of has queries ask for values of a kind.
func Of(kind string, parts ...store.Query) []store.Query {
	for i := range parts {
		parts[i].Kinds = []string{kind}
	}
	return parts
}

func (b *bench) merge(t *testing.T, q store.Query, kind string, g store.Grouping) *store.Merged {
	t.Helper()
	if b.settle != nil {
		b.settle(b.Store)
	}
	m, err := b.Merge(context.Background(), tenant, Of(kind, q), g)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func testMerges(t *testing.T, b *bench) {
	windows := some(500)
	b.put(t, windows...)
	for _, kind := range []string{"cpu", "page-faults"} {
		m := b.merge(t, always(), kind, store.Grouping{})
		if len(m.Columns) != 1 || m.Columns[0].Windows != len(windows) {
			t.Fatalf("%s: %d columns", kind, len(m.Columns))
		}
		c := &m.Columns[0]
		compare(t, m, c, totals(kind, windows, func(*profile.Window, profile.Row) bool { return true }), kind == "cpu")
		whole, err := profile.Merge(windows...)
		if err != nil {
			t.Fatal(err)
		}
		h, w := c.Head, whole.Head
		if h.Exact != w.Exact || h.Idle != w.Idle || h.Watched != w.Watched || h.Cost != w.Cost || h.Rate != w.Rate || !h.Start.Equal(w.Start) || h.Duration != w.Duration || h.Task != w.Task {
			t.Errorf("%s: head %+v, want %+v", kind, h, w)
		}
		for _, reason := range []profile.LossReason{profile.LossDropped, profile.LossTruncated} {
			if h.LossOf(reason) != w.LossOf(reason) {
				t.Errorf("%s: %s %+v, want %+v", kind, reason, h.LossOf(reason), w.LossOf(reason))
			}
		}
	}
	if m := b.merge(t, always(), "nothing", store.Grouping{}); len(m.Columns) != 0 {
		t.Errorf("%d columns of a kind that nobody measured", len(m.Columns))
	}
}

func testTenants(t *testing.T, b *bench) {
	mine, theirs := Window(1, "shop", "one", Epoch), Window(2, "shop", "one", Epoch)
	b.put(t, mine)
	if err := b.Put(context.Background(), "other", store.Raw, Batch(profile.Run{1}, theirs)); err != nil {
		t.Fatal(err)
	}
	same(t, b.scan(t, tenant, always()), mine)
	same(t, b.scan(t, "other", always()), theirs)
	same(t, b.scan(t, "nobody", always()))
	batch := Batch(profile.Run{1}, mine)
	batch.Forest = nil
	var unknown *store.UnknownError
	if err := b.Put(context.Background(), "third", store.Raw, batch); !errors.As(err, &unknown) {
		t.Errorf("what one tenant explained, another knows: %v", err)
	}
}

func testDrops(t *testing.T, b *bench) {
	windows := some(700)
	b.put(t, windows...)
	midnight := Epoch.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if err := b.Drop(context.Background(), tenant, store.Raw, midnight.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var left []*profile.Window
	for _, w := range windows {
		if !w.Start.Before(midnight) {
			left = append(left, w)
		}
	}
	if len(left) == 0 || len(left) == len(windows) {
		t.Fatalf("the test's windows do not lie around midnight: %d of %d", len(left), len(windows))
	}
	same(t, b.scan(t, tenant, always()), left...)
}

func testMany(t *testing.T, b *bench) {
	var all []*profile.Window
	var writers sync.WaitGroup
	for w := range uint64(8) {
		var own []*profile.Window
		for i := range uint64(10) {
			own = append(own, Window(800+10*w+i, "shop", fmt.Sprint(w), Epoch.Add(time.Duration(i)*time.Second)))
		}
		all = append(all, own...)
		writers.Go(func() {
			for _, window := range own {
				if err := b.Put(context.Background(), tenant, store.Raw, Batch(profile.Run{1}, window)); err != nil {
					t.Error(err)
				}
				if _, err := b.Merge(context.Background(), tenant, Of("cpu", always()), store.Grouping{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	same(t, b.scan(t, tenant, always()), all...)
}

func testClosed(t *testing.T, b *bench) {
	w := Window(1, "shop", "one", Epoch)
	b.put(t, w)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(context.Background(), tenant, store.Raw, Batch(profile.Run{1}, w)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("put after it was closed: %v", err)
	}
	if _, err := b.Merge(context.Background(), tenant, Of("cpu", always()), store.Grouping{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("asked after it was closed: %v", err)
	}
}
