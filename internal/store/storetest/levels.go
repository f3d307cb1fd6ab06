package storetest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// observed makes windows of several value types, with contexts, peers, exemplars and slots of
// 50 ms: of three series, one of which ends early, each 20 s long but for some that were cut.
func observed(seed uint64, contexts int) (windows []*profile.Window) {
	r := rand.New(rand.NewPCG(seed, 17))
	for s, instance := range []string{"one", "two", "three"} {
		for i := range 40 {
			if instance == "three" && i > 4 {
				break
			}
			length := 20 * time.Second
			if i%7 == 3 {
				length = 11 * time.Second
			}
			b := profile.NewBuilder(profile.Head{
				Task: "task", Target: profile.Labels{store.ServiceLabel: "shop", "instance": instance},
				Start: Epoch.Add(time.Duration(i)*20*time.Second + 3*time.Millisecond), Duration: length, Slot: 50 * time.Millisecond, // cut some moments late
				Types: []profile.ValueType{
					{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall, Variance: profile.Measured},
					{Kind: "waits", Unit: "count", Variance: profile.Measured},
					{Kind: "heap", Unit: "bytes", Temporality: profile.Level},
				},
			})
			for n := range 30 {
				stack := func() profile.StackID {
					leaf := b.Named(profile.Frame{Function: fmt.Sprint("f", r.IntN(6))})
					return b.Stack([]profile.LocationID{leaf, b.Named(profile.Frame{Function: "main"})}, profile.EndComplete)
				}
				row := profile.Row{Stack: stack(), Slot: uint32(1 + r.IntN(200)), N: 1 + r.Int64N(5),
					Values:  []int64{1 + r.Int64N(1e12), 1 + r.Int64N(50), 1 + r.Int64N(1e9)},
					Squares: []float64{float64(r.Int64N(1e9)), float64(r.Int64N(1e3)), float64(r.Int64N(1e12))}}
				row.Context = b.Context(profile.Context{Reason: []string{"", "blocked", "run queue"}[r.IntN(3)], Endpoint: fmt.Sprint("/", r.IntN(contexts))})
				if n%3 == 0 {
					row.Peer = profile.PeerID(stack()) + 1
				}
				b.Add(row)
				if n%5 == 0 {
					b.AddExemplar(profile.Exemplar{Trace: fmt.Sprint("t", s, i), Span: fmt.Sprint(n), Stack: row.Stack, Context: row.Context, Value: row.Values[0]})
				}
			}
			windows = append(windows, b.Window())
		}
	}
	return windows
}

// leaf returns the function that a stack of observed ends in.
func leaf(w *profile.Window, id profile.StackID) string {
	return w.Frames(w.Stacks[id].Locations[0])[0].Function
}

// testRollsUpLevels asks all levels for a level: in each minute the values of a series are
// averaged over the time that its windows cover, and summed over series.
func testRollsUpLevels(t *testing.T, b *bench) {
	windows := observed(1, 3)
	b.put(t, windows...)
	b.roll(t)
	covered, minutes := map[string]map[int64]time.Duration{}, map[int64]bool{}
	parts := func(w *profile.Window, each func(minute int64, part time.Duration)) {
		each(w.Start.Unix()/60, w.Duration) // none is longer than what is left of its minute, but for moments
	}
	for _, w := range windows {
		series := w.Target.String()
		if covered[series] == nil {
			covered[series] = map[int64]time.Duration{}
		}
		parts(w, func(minute int64, part time.Duration) {
			covered[series][minute] += part
			minutes[minute] = true
		})
	}
	want := map[string]float64{}
	for _, w := range windows {
		for _, row := range w.Rows.All() {
			parts(w, func(minute int64, part time.Duration) {
				want[leaf(w, row.Stack)] += float64(row.Values[2]) * part.Seconds() / covered[w.Target.String()][minute].Seconds() / float64(len(minutes))
			})
		}
	}
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		q := always()
		q.Level = level
		m := b.merge(t, q, "heap", store.Grouping{})
		if len(m.Columns) != 1 || m.Columns[0].Head.Types[0].Temporality != profile.Level {
			t.Fatalf("level %v: %d columns", level, len(m.Columns))
		}
		got := map[string]int64{}
		for _, s := range m.Columns[0].Sums {
			got[m.Forest.Places[m.Forest.Calls[s.Call].Place].Frames()[0].Function] += s.Value
			grouped := int64(0)
			for _, v := range s.Groups {
				grouped += v
			}
			if math.Abs(float64(grouped-s.Value)) > store.Groups {
				t.Errorf("level %v: groups have %d of %d", level, grouped, s.Value)
			}
		}
		for function, value := range want {
			if math.Abs(float64(got[function])-value) > 1e-6*value+float64(len(windows)) {
				t.Errorf("level %v: %s has %d, want %.0f", level, function, got[function], value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("level %v: %d functions, want %d", level, len(got), len(want))
		}
	}
}

// testSmallLevels has a level of one, as of goroutines, in six windows of each minute, of which
// the first do not say yet that they are levels.
func testSmallLevels(t *testing.T, b *bench) {
	var windows []*profile.Window
	for i := range 30 {
		temporality := profile.Level
		if i < 2 {
			temporality = profile.Delta
		}
		builder := profile.NewBuilder(profile.Head{Task: "task", Target: profile.Labels{store.ServiceLabel: "shop", "instance": "one"},
			Start: Epoch.Add(time.Duration(i) * 10 * time.Second), Duration: 10 * time.Second,
			Types: []profile.ValueType{{Kind: "goroutines", Unit: "count", Temporality: temporality}}})
		builder.Add(profile.Row{Stack: builder.Stack([]profile.LocationID{builder.Named(profile.Frame{Function: "f"})}, profile.EndComplete), N: 1, Values: []int64{1}, Squares: []float64{1}})
		windows = append(windows, builder.Window())
	}
	b.put(t, windows...)
	b.roll(t)
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		q := always()
		q.Level = level
		c := b.merge(t, q, "goroutines", store.Grouping{}).Columns[0]
		if c.Windows != len(windows) || len(c.Sums) != 1 || c.Sums[0].Value != 1 || c.Sums[0].N != int64(len(windows)) {
			t.Errorf("level %v: %d windows, %+v, want a mean of 1", level, c.Windows, c.Sums)
		}
	}
	m := b.merge(t, always(), "goroutines", store.Grouping{Start: Epoch, Step: 10 * time.Second})
	for _, c := range m.Columns {
		if len(c.Sums) != 1 || c.Sums[0].Value != 1 {
			t.Errorf("step %v: %+v", c.Start, c.Sums)
		}
	}
}

// testHeadsOnce asks for two kinds of the same windows: their heads count once at each level.
func testHeadsOnce(t *testing.T, b *bench) {
	windows := observed(5, 3)
	for _, w := range windows {
		w.Exact.CPU = time.Second
		w.AddLoss(profile.Loss{Reason: profile.LossDropped, N: 1})
	}
	b.put(t, windows...)
	b.roll(t)
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		for _, kinds := range [][]string{{"off-cpu", "waits"}, {"waits", "off-cpu"}, {"waits"}} {
			q := always()
			q.Level, q.Kinds = level, kinds
			m, err := b.Merge(t.Context(), tenant, []store.Query{q}, store.Grouping{})
			if err != nil {
				t.Fatal(err)
			}
			c := m.Columns[0]
			if n := len(windows); c.Windows != n || c.Head.Exact.CPU != time.Duration(n)*time.Second || c.Head.LossOf(profile.LossDropped).N != int64(n) || len(c.Head.Types) != len(kinds) {
				t.Errorf("level %v, %v: %d windows, exact %v, lost %v, types %v; want %d", level, kinds, c.Windows, c.Head.Exact.CPU, c.Head.LossOf(profile.LossDropped), c.Head.Types, n)
			}
		}
	}
}

// testRollsUpDivided reads rolled-up windows: their rows are told apart by context and peer
// and, for ten minutes, by slot; variances are sums; exemplars are those of all windows.
func testRollsUpDivided(t *testing.T, b *bench) {
	windows := observed(2, 3)
	b.put(t, windows...)
	b.roll(t)
	compareLevel := func(level store.Level, kind string) {
		t.Helper()
		q := always()
		q.Level = level
		got := map[string]profile.Sum{}
		var exemplars, want []profile.Exemplar
		for _, w := range b.scan(t, tenant, q) {
			if w.Kind() == kind {
				addDivided(got, w, 0, level == store.Series10m)
				exemplars = append(exemplars, w.Exemplars...)
			}
		}
		wanted := map[string]profile.Sum{}
		for _, w := range windows {
			addDivided(wanted, w, w.TypeIndex(kind), level == store.Series10m)
			want = append(want, w.Exemplars...)
		}
		for key, sum := range wanted {
			g := got[key]
			if g.N != sum.N || g.Value != sum.Value || math.Abs(g.Squares-sum.Squares) > 0.01*sum.Squares+1 {
				t.Fatalf("level %v, %s: %s is %+v, want %+v", level, kind, key, g, sum)
			}
		}
		if len(got) != len(wanted) {
			t.Errorf("level %v, %s: %d rows, want %d", level, kind, len(got), len(wanted))
		}
		if got, want := spans(exemplars), spans(want); kind == "off-cpu" && !slices.Equal(got, want) {
			t.Errorf("level %v: exemplars %v, want %v", level, got, want)
		}
	}
	for _, level := range store.RolledUp() {
		for _, kind := range []string{"off-cpu", "waits"} {
			compareLevel(level, kind)
		}
	}
}

// addDivided adds the rows of a window to sums by all that divides rows.
func addDivided(to map[string]profile.Sum, w *profile.Window, at int, slots bool) {
	for _, row := range w.Rows.All() {
		key := fmt.Sprint(leaf(w, row.Stack), " ", w.Context(row.Context))
		if row.Peer != 0 {
			key += " peer " + leaf(w, profile.StackID(row.Peer-1))
		}
		if slots {
			key += " at " + w.SlotStart(row.Slot).UTC().String()
		}
		sum := to[key]
		sum.Add(row.Sum(at))
		to[key] = sum
	}
}

// spans lists the exemplars that one window would have.
func spans(all []profile.Exemplar) (list []string) {
	for _, e := range profile.ChooseExemplars(slices.Clone(all)) {
		list = append(list, fmt.Sprint(e.Trace, " ", e.Span, " ", e.Value))
	}
	return list
}

// testBoundsContexts rolls up more contexts than are kept: those with the most value stay, and
// the others count as one, and as lost.
func testBoundsContexts(t *testing.T, b *bench) {
	windows := observed(3, 80)
	b.put(t, windows...)
	b.roll(t)
	values, total := map[profile.Context]int64{}, int64(0)
	for _, w := range windows {
		for _, row := range w.Rows.All() {
			values[w.Context(row.Context)] += row.Values[0]
			total += row.Values[0]
		}
	}
	for _, level := range store.RolledUp() {
		if !level.Services() {
			continue
		}
		q := always()
		q.Level = level
		windows, sum := b.scan(t, tenant, q), int64(0)
		for _, w := range windows {
			if w.Kind() != "off-cpu" {
				continue
			}
			if n := len(w.Contexts); n > store.MaxContexts+1 {
				t.Errorf("level %v: %d contexts", level, n)
			}
			other := profile.Sum{}
			least := map[profile.Context]int64{}
			for _, row := range w.Rows.All() {
				sum += row.Values[0]
				if least[w.Context(row.Context)] += row.Values[0]; w.Context(row.Context) == store.OtherContext {
					other.Add(row.Sum(0))
				}
			}
			if loss := w.LossOf(profile.LossContexts); level == store.Service1d && other.N == 0 || loss.N != other.N || loss.Value != other.Value {
				t.Errorf("level %v: %+v is folded, and %+v counted as lost", level, other, loss)
			}
			for c, value := range least {
				if c != store.OtherContext && value > values[c] {
					t.Errorf("level %v: %+v has %d of %d", level, c, value, values[c])
				}
			}
		}
		if sum != total {
			t.Errorf("level %v: %d of %d", level, sum, total)
		}
	}
}

// testContexts groups and filters by context, at all levels, against the raw rows.
func testContexts(t *testing.T, b *bench) {
	windows := observed(4, 3)
	b.put(t, windows...)
	b.roll(t)
	blocked, err := spec.ParseSelector(`{reason="blocked"}`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for _, w := range windows {
		for _, row := range w.Rows.All() {
			if c := w.Context(row.Context); c.Reason == "blocked" {
				want[c.Endpoint] += row.Values[0]
			}
		}
	}
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		q := always()
		q.Level = level
		m := b.merge(t, q, "off-cpu", store.Grouping{By: []store.Dimension{store.ByContext(store.ContextEndpoint)}, Where: blocked})
		got := map[string]int64{}
		for _, c := range m.Columns {
			for _, s := range c.Sums {
				got[c.By[0]] += s.Value
			}
			if !c.Head.Exact.Empty() {
				t.Errorf("level %v: %q has exact times of all contexts", level, c.By)
			}
		}
		if !maps.Equal(got, want) || m.Whole == nil || m.Whole.Windows != len(windows) {
			t.Errorf("level %v: %v of %+v, want %v of %d windows", level, got, m.Whole, want, len(windows))
		}
	}
}
