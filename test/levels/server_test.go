package levels

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// askServer asks a server random questions, as commands and pages do. It chooses by itself which
// levels it reads, and for which of the time.
func (e *examiner) askServer(questions int) {
	e.Helper()
	for range questions {
		a := e.selection()
		e.merge(a)
		e.top(a)
		e.split(a)
		e.series(a)
	}
}

// selection makes a question about some time, all columns together.
func (e *examiner) selection() *ask {
	r := e.r
	a := &ask{kinds: pick(r, kindsAsked...), from: begin.Add(time.Duration(r.IntN(500)) * time.Second)}
	if slices.Equal(a.kinds, []string{"cpu", "page-faults"}) || slices.Equal(a.kinds, []string{"waits", "off-cpu"}) { // of two units
		a.kinds = a.kinds[:1]
	}
	if a.to = a.from.Add(time.Duration(1+r.IntN(900)) * time.Second); r.IntN(2) == 0 {
		a.from, a.to = begin.Add(-50*time.Minute), begin.Add(70*time.Minute) // whole hours
	}
	if r.IntN(3) == 0 {
		label := pick(r, e.labels...)
		a.selected = spec.Selector{{Label: label, Op: pick(r, spec.Equal, spec.NotEqual), Value: pick(r, "shop", pruned, "z0", "i1")}}
	}
	if r.IntN(4) == 0 {
		a.task = pick(r, "t", "memory")
	}
	if !e.crowded && r.IntN(4) == 0 {
		a.where = spec.Selector{{Label: store.ContextReason, Op: pick(r, spec.Equal, spec.NotEqual), Value: pick(r, "", "blocked")}}
	}
	return a
}

// message is the selection of a question.
func (a *ask) message() *atysv1.Selection {
	m := &atysv1.Selection{Select: a.selected.String(), Task: a.task, Kind: a.kinds[0], Kinds: a.kinds[1:], FromUnixNano: a.from.UnixNano(), ToUnixNano: a.to.UnixNano()}
	if len(a.where) > 0 {
		m.Context = a.where.String()
	}
	return m
}

// only returns the question in columns, or about other times.
func (a *ask) only(from, to time.Time, by ...store.Dimension) *ask {
	one := *a
	one.by = by
	if one.from = from; from.Before(a.from) {
		one.from = a.from
	}
	if one.to = to; to.After(a.to) {
		one.to = a.to
	}
	return &one
}

// all returns the only column of an answer, which is empty if nothing was found.
func (w *answer) all() *column {
	for _, c := range w.columns {
		return c
	}
	return &column{}
}

// merge asks for stacks, and for a picture of them.
func (e *examiner) merge(a *ask) {
	e.Helper()
	m, err := e.server.Merge(e.Context(), &atysv1.MergeRequest{Selection: a.message()})
	if err != nil {
		e.Fatalf("%v: %v", a, err)
	}
	want := e.answer(a)
	c := want.all()
	got, all, lost, head, scale := map[string]*sum{}, sum{}, sum{}, profile.Head{}, 1
	if m.GetWindow() != nil {
		w, _, err := wire.Open(m.GetWindow())
		if err != nil {
			e.Fatalf("%v: %v", a, err)
		}
		head, scale = w.Head, int(m.GetWindow().GetWindow().GetTypes()[0].GetScale())
		for _, row := range w.Rows.All() {
			stack, one := strings.Join(stackOf(w, row.Stack), ";"), sum{n: row.N, value: float64(row.Values[0])}
			if at(got, stack).add(one, 0); cut(stack) {
				lost.add(one, 0)
			}
			all.add(one, 0)
		}
	}
	if c.pruned {
		e.comparePruned(a, "merged", &store.Column{Head: head}, got, c, scale)
	} else {
		e.compareStacks(a, "merged", got, c, scale)
	}
	of := m.GetCoverage()
	if of.GetN() != all.n || int(of.GetWindows()) != want.whole.windows || math.Abs(of.GetPrunedShare()*all.value-lost.value) > 1e-6*all.value+float64(scale*len(got)) {
		e.Fatalf("%v: covers %d samples of %d windows, %g are pruned; want %d, %d, %g", a, of.GetN(), of.GetWindows(), of.GetPrunedShare(), all.n, want.whole.windows, lost.value/all.value)
	}
	flame, err := e.server.Flame(e.Context(), &atysv1.FlameRequest{Selection: a.message()})
	if err != nil || flame.GetCoverage().GetN() != all.n || flame.GetFolded() != 0 || (len(flame.GetDocument()) == 0) != (m.GetWindow() == nil) {
		e.Fatalf("%v: a picture of %d samples, of %d bytes, %v; want %d", a, flame.GetCoverage().GetN(), len(flame.GetDocument()), err, all.n)
	}
}

// function is what a function has: itself, and with what it calls.
type function struct{ self, total sum }

// functionsOf adds up a column by function.
func functionsOf(c *column) map[string]*function {
	functions := map[string]*function{}
	for stack, s := range c.sums {
		names := strings.Split(stack, ";")
		names = names[:len(names)-1]
		for i, name := range names {
			f := functions[name]
			if f == nil {
				f = &function{}
				functions[name] = f
			}
			if i == 0 {
				f.self.add(*s, 0)
			}
			if slices.Index(names, name) == i {
				f.total.add(*s, 0)
			}
		}
	}
	return functions
}

// top asks for functions.
func (e *examiner) top(a *ask) {
	e.Helper()
	top, err := e.server.Top(e.Context(), &atysv1.TopRequest{Selection: a.message()})
	if err != nil {
		e.Fatalf("%v: %v", a, err)
	}
	c := e.answer(a).all()
	if c.pruned {
		return
	}
	want := functionsOf(c)
	for _, f := range top.GetFunctions() {
		w := want[f.GetFunction()]
		if w == nil {
			e.Fatalf("%v: nobody has sampled %v", a, f)
		}
		if self, total := f.GetSelf(), f.GetTotal(); self.GetN() != w.self.n || total.GetN() != w.total.n ||
			!c.near(float64(self.GetValue()), w.self.value, len(c.sums)) || !c.near(float64(total.GetValue()), w.total.value, len(c.sums)) {
			e.Fatalf("%v: %v, want %+v", a, f, w)
		}
	}
	if len(top.GetFunctions()) != len(want) {
		e.Fatalf("%v: %d functions, want %d", a, len(top.GetFunctions()), len(want))
	}
}

// split asks for parts.
func (e *examiner) split(a *ask) {
	e.Helper()
	request, by := &atysv1.SplitRequest{Selection: a.message()}, store.Dimension("")
	switch kind := e.r.IntN(4); {
	case kind == 0 || kind == 1 && e.crowded:
		request.Context = pick(e.r, store.ContextParts()...)
		by = store.ByContext(request.GetContext())
	case kind == 1 && e.whole:
		request.By, by = "thread", store.ByThread
		a = a.only(a.from, a.to)
		a.selected = append(slices.Clone(a.selected), spec.Matcher{Label: store.ServiceLabel, Op: spec.NotEqual, Value: pruned})
		request.Selection = a.message()
	default:
		request.By = pick(e.r, e.labels...)
		by = store.ByLabel(request.GetBy())
	}
	answer, err := e.server.Split(e.Context(), request)
	if err != nil {
		e.Fatalf("%v: %v", a, err)
	}
	one := a.only(a.from, a.to, by)
	want := e.answer(one).columns
	if request.GetContext() != "" && e.crowded { // roll-ups do not tell all apart
		var n int64
		for _, part := range answer.GetParts() {
			n += part.GetN()
		}
		var all sum
		for _, s := range e.answer(a).all().sums {
			all.add(*s, 0)
		}
		if n != all.n {
			e.Fatalf("%v: parts have %d samples, want %d", one, n, all.n)
		}
		return
	}
	for _, part := range answer.GetParts() {
		key := columnKey("", []string{part.GetBy()})
		e.comparePoint(one, key, part.GetN(), part.GetValue(), want[key])
		delete(want, key)
	}
	for key, c := range want {
		if len(c.sums) > 0 {
			e.Fatalf("%v: part %s is missing", one, key)
		}
	}
}

// comparePoint compares all of a column.
func (e *examiner) comparePoint(a *ask, what string, n, value int64, c *column) {
	e.Helper()
	if c == nil {
		c = &column{}
	}
	var all sum
	for _, s := range c.sums {
		all.add(*s, 0)
	}
	if n != all.n || !c.near(float64(value), all.value, 5*len(c.sums)) { // pruning cuts some in several
		e.Fatalf("%v: %s has %d samples, %d; want %d, %.2f", a, what, n, value, all.n, all.value)
	}
}

// series asks for values over time, of labels or functions.
func (e *examiner) series(a *ask) {
	e.Helper()
	request := &atysv1.SeriesRequest{Selection: a.message(), StepNs: int64(pick(e.r, time.Minute, 5*time.Minute)), Limit: uint32(1 + e.r.IntN(8))}
	var by []store.Dimension
	if e.r.IntN(2) == 0 {
		request.By = pick(e.r, e.labels...)
		by = append(by, store.ByLabel(request.GetBy()))
	}
	answer, err := e.server.Series(e.Context(), request)
	if err != nil {
		e.Fatalf("%v: %v", a, err)
	}
	steps := map[int64][2]int64{}
	for _, line := range answer.GetLines() {
		for _, p := range line.GetPoints() {
			at := time.Unix(0, p.GetStartUnixNano()).UTC()
			all := steps[at.UnixNano()]
			steps[at.UnixNano()] = [2]int64{all[0] + p.GetN(), all[1] + p.GetValue()}
			if line.GetOther() {
				continue
			}
			one := a.only(at, at.Add(time.Duration(request.GetStepNs())), by...)
			want, what := e.answer(one), fmt.Sprintf("line %q at %v", line.GetName(), at)
			if request.GetBy() != "" {
				e.comparePoint(one, what, p.GetN(), p.GetValue(), want.columns[columnKey("", []string{line.GetName()})])
				continue
			}
			c := want.all()
			f := functionsOf(c)[line.GetName()]
			if f == nil {
				f = &function{}
			}
			if !c.pruned && (p.GetN() != f.self.n || !c.near(float64(p.GetValue()), f.self.value, len(c.sums))) {
				e.Fatalf("%v: %s: %v, want %+v", one, what, p, f.self)
			}
		}
	}
	told := slices.ContainsFunc(answer.GetLines(), func(l *atysv1.SeriesLine) bool { return l.GetOther() })
	if a.hasLevels() && (request.GetBy() != "" || !told) { // lines are means over the minutes of their own windows; what is less than one is not told
		return
	}
	for at, all := range steps {
		start := time.Unix(0, at).UTC()
		one := a.only(start, start.Add(time.Duration(request.GetStepNs())))
		e.comparePoint(one, fmt.Sprint("all at ", start), all[0], all[1], e.answer(one).all())
	}
}

// compareStacks compares what is on stacks, which is rounded to a scale.
func (e *examiner) compareStacks(a *ask, key string, got map[string]*sum, w *column, scale int) {
	e.Helper()
	for stack, want := range w.sums {
		s := got[stack]
		if s == nil {
			e.Fatalf("%v: column %s: %s is missing, with %d samples, %.0f", a, key, stack, want.n, want.value)
		}
		if s.n != want.n || !w.near(s.value, want.value, scale) {
			e.Fatalf("%v: column %s: %s has %d samples, %.0f; want %d, %.2f", a, key, stack, s.n, s.value, want.n, want.value)
		}
	}
	for stack, s := range got {
		if w.sums[stack] == nil {
			e.Fatalf("%v: column %s: nobody has sampled %s, %+v", a, key, stack, *s)
		}
	}
}

// dividedRows adds up the rows of windows by all that divides them.
func dividedRows(to map[string]*sum, w *profile.Window, at int, slots bool) {
	for _, row := range w.Rows.All() {
		key := fmt.Sprint(stackOf(w, row.Stack), " ", w.Context(row.Context))
		if row.Peer != 0 {
			key += fmt.Sprint(" peer ", stackOf(w, profile.StackID(row.Peer-1)))
		}
		if slots && row.Slot != 0 && store.HeatMapSlots(w.Slot) {
			key += fmt.Sprint(" at ", w.Start.Add(w.Slot/2).Truncate(w.Slot).Add(time.Duration(row.Slot-1)*w.Slot).UTC())
		}
		if to[key] == nil {
			to[key] = &sum{}
		}
		to[key].add(sum{n: row.N, value: float64(row.Values[at]), squares: row.Squares[at]}, 0)
	}
}

// readRows reads the rows of deltas at each level: they are divided by context and peer and, up to
// ten minutes, by slot.
func (e *examiner) readRows() {
	e.Helper()
	services := spec.Selector{{Label: store.ServiceLabel, Op: spec.NotEqual, Value: pruned}}
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		if e.crowded && level != store.Raw {
			continue
		}
		slots := level == store.Raw || level == store.Series10m
		for _, kind := range []string{"cpu", "page-faults", "off-cpu", "waits", "allocated"} {
			got, want, weighted := map[string]*sum{}, map[string]*sum{}, false
			q := store.Query{Level: level, Kinds: []string{kind}, Select: services, From: begin.Add(-48 * time.Hour), To: begin.Add(48 * time.Hour)}
			err := e.store.Scan(e.Context(), "default", q, func(w *profile.Window, _ profile.Run) error {
				dividedRows(got, w, w.TypeIndex(kind), slots)
				return nil
			})
			if err != nil {
				e.Fatal(err)
			}
			for _, o := range e.windows {
				if at := o.TypeIndex(kind); at >= 0 && services.Matches(o.Target) {
					dividedRows(want, o.Window, at, slots)
					weighted = o.Types[at].Variance == profile.FromWeights
				}
			}
			for key, w := range want {
				if g := got[key]; g == nil || g.n != w.n || g.value != w.value || !w.nearSquares(g.squares, weighted) {
					e.Fatalf("level %v, %s: %s has %+v, want %+v", level, kind, key, g, *w)
				}
			}
			if len(got) != len(want) {
				e.Fatalf("level %v, %s: %d rows, want %d", level, kind, len(got), len(want))
			}
		}
	}
}
