package mem

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/store"
)

// merger adds windows up, slowly and plainly.
type merger struct {
	tenant        *tenant
	grouping      store.Grouping
	rules         refine.Rules
	several       bool // kinds are asked for
	columns       map[string]*column
	whole         column // of all windows, where a window can be in several columns
	merged        *store.Merged
	calls, places map[profile.Hash]int       // of the forest
	covered       map[string]*store.Coverage // by series
	observed      store.Observed
	rolling       *store.Step        // that is rolled up: rows keep what divides them; nil: they are merged
	exemplars     []profile.Exemplar // of what is rolled up, whose stacks are calls
	contexts      []profile.Context  // of these: ContextID i is contexts[i-1]
	slot          time.Duration      // of what is rolled up
}

// cellKey is what rows are added up by: their stack and, in a roll-up, what divides them.
type cellKey struct {
	call    int
	peer    int // a call plus one
	slot    uint32
	context profile.Context
}

type column struct {
	by        []string
	start     time.Time
	head      profile.Head
	windows   int
	sums      map[cellKey]*store.Sum
	kinds     store.KindSums           // if several are asked for
	instances map[string]map[int]int64 // by call; nil: they are not told apart
}

func newMerger(t *tenant, g store.Grouping, rules refine.Rules) *merger {
	return &merger{tenant: t, grouping: g, rules: rules, columns: map[string]*column{}, merged: &store.Merged{Forest: &profile.Forest{}},
		calls: map[profile.Hash]int{}, places: map[profile.Hash]int{}}
}

// add adds the values that a window has of some kinds.
func (m *merger) add(e *entry, q store.Query) {
	w := m.refined(e)
	windows, head := max(e.window.Of, 1), w.Head
	head.Types = typesOf(w.Types, q)
	if len(head.Types) == 0 {
		return
	}
	m.addExemplars(e, w)
	counted := e.window.Primary != "" && len(q.Kinds) > 1 && q.Measures(e.window.Primary) // with the head of its primary kind
	once := windows
	if counted {
		once = 0
	} else {
		m.merged.Summary.Add(w.Target, &head)
	}
	if m.grouping.Divides() {
		m.whole.absorbOnce(&head, once)
	} else {
		m.column(m.by(w, profile.Row{}, "")).absorbOnce(&head, once)
	}
	if !m.grouping.Has(store.ByKind) {
		windows = once
	}
	for at, t := range w.Types {
		if q.Measures(t.Kind) {
			m.several = len(q.Kinds) > 1
			if m.addType(e, w, at, windows); !m.grouping.Has(store.ByKind) {
				windows = 0 // its other kinds are of the same windows
			}
		}
	}
}

// refined returns a window with the contexts that its rows have by the names that there are now.
func (m *merger) refined(e *entry) *profile.Window {
	w := m.tenant.window(e)
	rules := m.rules[cmp.Or(e.window.Primary, w.Kind())]
	if len(rules) == 0 {
		return w
	}
	return refine.Relabel(w, func(frames []profile.Frame, c profile.Context) profile.Context { return store.Refine(rules, frames, c) })
}

// typesOf lists the types that a query asks for.
func typesOf(types []profile.ValueType, q store.Query) (some []profile.ValueType) {
	for _, t := range types {
		if q.Measures(t.Kind) {
			some = append(some, t)
		}
	}
	return some
}

// addType adds the values of one type.
func (m *merger) addType(e *entry, w *profile.Window, at, windows int) {
	kind, group := w.Types[at].Kind, store.Group(w.Target)
	weight, minutes := m.weigh(e, w, at)
	step, by := m.by(w, profile.Row{}, kind)
	m.observed.Add(&m.grouping, step, by, minutes)
	if !m.grouping.DividesRows() && (e.window.Groups != nil || e.key.level.Services()) {
		m.column(step, by).instances = nil
	}
	if m.grouping.Divides() {
		m.addHeads(w, at, windows)
	}
	for i, row := range w.Rows.All() {
		if !m.wants(w, row) {
			continue
		}
		c := m.column(m.by(w, row, kind))
		cell := m.key(e, w, i)
		s := c.sums[cell]
		if s == nil {
			s = &store.Sum{Call: cell.call}
			c.sums[cell] = s
		}
		sum := w.Types[at].Variance.Known(row.Sum(at))
		if weight != 1 {
			sum.Value, sum.Squares = int64(math.Round(float64(sum.Value)*weight)), sum.Squares*weight*weight
		}
		s.Add(sum)
		if m.several {
			c.kinds.Of(kind).Add(sum)
		}
		if e.window.Groups != nil {
			for g := range s.Groups {
				s.Groups[g] += e.window.Groups[(i*len(w.Types)+at)*store.Groups+g]
			}
		} else {
			s.Groups[group] += sum.Value
		}
		c.addApart(store.Instance(w.Target), cell.call, sum.Value, m.grouping.MaxInstances)
	}
}

// cover notes how the windows of each series share minutes.
func (m *merger) cover(entries []*entry, q store.Query) {
	m.covered = map[string]*store.Coverage{}
	for _, e := range entries {
		h := &e.window.Head
		for _, t := range h.Types {
			if !q.Measures(t.Kind) || e.window.Minutes != nil {
				continue
			}
			if m.covered[e.key.series] == nil {
				m.covered[e.key.series] = store.NewCoverage()
			}
			m.covered[e.key.series].Add(h, t, m.grouping.StepOf(h))
		}
	}
}

// weigh returns what the values of a window count, and the minutes that a level was observed in.
func (m *merger) weigh(e *entry, w *profile.Window, at int) (weight float64, minutes store.Minutes) {
	kind, covered := w.Types[at].Kind, m.covered[e.key.series]
	if e.window.Minutes != nil || !covered.Levels(kind) {
		return 1, e.window.Minutes
	}
	minutes = store.Minutes{}
	minutes.Add(&w.Head)
	return covered.Weight(&w.Head, kind, m.grouping.StepOf(&w.Head)), minutes
}

// key returns what row i is added up by.
func (m *merger) key(e *entry, w *profile.Window, i int) cellKey {
	row := e.window.Rows.At(i)
	k := cellKey{call: m.call(e.stacks[row.Stack])}
	if m.rolling == nil {
		return k
	}
	k.context = w.Context(w.Rows.At(i).Context)
	if row.Peer != 0 {
		k.peer = m.call(e.stacks[row.Peer-1]) + 1
	}
	if slot := w.Slot; m.rolling.Level == store.Series10m && store.HeatMapSlots(slot) && row.Slot != 0 {
		if m.slot = cmp.Or(m.slot, slot); m.slot == slot {
			step := profile.Head{Start: m.rolling.Start, Slot: slot}
			k.slot = step.SlotOf(&w.Head, row.Slot)
		}
	}
	return k
}

// addExemplars adds the exemplars of a window that is rolled up.
func (m *merger) addExemplars(e *entry, w *profile.Window) {
	if m.rolling == nil {
		return
	}
	for i, x := range e.window.Exemplars {
		x.Stack, x.Thread = profile.StackID(m.call(e.stacks[x.Stack])), 0
		if x.Time != 0 {
			x.Time += w.Start.Sub(m.rolling.Start)
		}
		m.contexts = append(m.contexts, w.Context(w.Exemplars[i].Context))
		x.Context = profile.ContextID(len(m.contexts))
		m.exemplars = append(m.exemplars, x)
	}
}

// addApart adds what an instance has, as long as there are few of them.
func (c *column) addApart(instance string, call int, value int64, most int) {
	if c.instances == nil || value == 0 {
		return
	}
	if c.instances[instance] == nil {
		c.instances[instance] = map[int]int64{}
	}
	c.instances[instance][call] += value
	if len(c.instances) > most {
		c.instances = nil
	}
}

// apart lists what each instance has.
func (c *column) apart() (all []store.OfInstance) {
	if c.instances == nil {
		return nil
	}
	all = []store.OfInstance{}
	for _, name := range slices.Sorted(maps.Keys(c.instances)) {
		one := store.OfInstance{Name: name}
		for _, call := range slices.Sorted(maps.Keys(c.instances[name])) {
			one.Values = append(one.Values, store.StackValue{Call: call, Value: c.instances[name][call]})
		}
		all = append(all, one)
	}
	return all
}

// by lists the values of the dimensions that a row has.
func (m *merger) by(w *profile.Window, row profile.Row, kind string) (start time.Time, by []string) {
	for _, d := range m.grouping.By {
		value := ""
		label, ok := d.Label()
		part, ofContext := d.Context()
		switch {
		case ok:
			value = w.Target[label]
		case ofContext:
			value = store.ContextLabels(w.Context(row.Context))[part]
		case d == store.ByKind:
			value = kind
		case d == store.ByThread && row.Thread != 0:
			value = w.Thread(row.Thread).Name
		case d == store.BySlot:
			value = m.grouping.Slots.Part(&w.Head, row.Slot)
		}
		by = append(by, value)
	}
	return m.grouping.StepOf(&w.Head), by
}

// addHeads counts a window once for each column that it has rows or threads of.
func (m *merger) addHeads(w *profile.Window, at, windows int) {
	kind, exact := w.Types[at].Kind, map[*column]profile.Exact{}
	if !m.grouping.DividesRows() {
		exact[m.column(m.by(w, profile.Row{}, kind))] = profile.Exact{}
	}
	for _, row := range w.Rows.All() {
		if m.wants(w, row) {
			exact[m.column(m.by(w, row, kind))] = profile.Exact{}
		}
	}
	if m.grouping.Has(store.ByThread) && !m.grouping.ReadsContexts() { // times of threads belong to no context
		for i, t := range w.Threads {
			c := m.column(m.by(w, profile.Row{Thread: profile.ThreadID(i + 1)}, kind))
			e := exact[c]
			e.Add(t.Exact)
			exact[c] = e
		}
	}
	for c, exact := range exact {
		h := w.Head
		h.Types = w.Types[at : at+1]
		h.Exact, h.Idle, h.Watched, h.Cost, h.Losses = exact, 0, 0, profile.Cost{}, nil
		c.absorbOnce(&h, windows)
	}
}

// wants reports whether the grouping keeps a row.
func (m *merger) wants(w *profile.Window, row profile.Row) bool {
	return m.grouping.Where.Matches(store.ContextLabels(w.Context(row.Context)))
}

func (m *merger) column(start time.Time, by []string) *column {
	key := fmt.Sprintf("%v %q", start, by)
	c := m.columns[key]
	if c == nil {
		c = &column{start: start, by: by, sums: map[cellKey]*store.Sum{}}
		if m.grouping.MaxInstances > 0 && !m.grouping.DividesRows() {
			c.instances = map[string]map[int]int64{}
		}
		m.columns[key] = c
	}
	return c
}

// absorbOnce absorbs the head of some windows or, of those that were counted already, its types.
func (c *column) absorbOnce(h *profile.Head, windows int) {
	if windows > 0 {
		c.absorb(h, windows)
		return
	}
	for _, t := range h.Types {
		store.AddType(&c.head, t)
	}
}

func (c *column) absorb(h *profile.Head, windows int) {
	if c.windows == 0 {
		types := c.head.Types
		c.head = *h
		c.head.Types, c.head.Target = slices.Clone(h.Types), maps.Clone(h.Target)
		for _, t := range types {
			store.AddType(&c.head, t)
		}
		c.head.Losses, c.head.Comments = slices.Clone(h.Losses), slices.Clone(h.Comments)
	} else {
		store.AbsorbHead(&c.head, h)
	}
	c.windows += windows
}

// call finds or adds a call of the forest, its callers first.
func (m *merger) call(h profile.Hash) int {
	if at, ok := m.calls[h]; ok {
		return at
	}
	kept := m.tenant.calls[h]
	c := profile.Call{Hash: h, Caller: -1, Place: -1, End: kept.end}
	if !kept.root {
		c.Caller = m.call(kept.caller)
		place, ok := m.places[kept.place]
		if !ok {
			place = len(m.merged.Forest.Places)
			m.places[kept.place] = place
			m.merged.Forest.Places = append(m.merged.Forest.Places, m.tenant.places[kept.place])
		}
		c.Place = place
	}
	at := len(m.merged.Forest.Calls)
	m.calls[h] = at
	m.merged.Forest.Calls = append(m.merged.Forest.Calls, c)
	return at
}

// finish returns what was merged, with means of levels.
func (m *merger) finish() *store.Merged {
	for _, c := range m.columns {
		out := store.Column{By: c.by, Start: c.start, Head: c.head, Windows: c.windows, Kinds: c.kinds.Sorted(), Instances: c.apart()}
		for _, cell := range c.sorted() {
			out.Sums = append(out.Sums, *c.sums[cell])
		}
		if minutes := m.observed.Of(&m.grouping, &out); minutes != nil {
			out.Average(minutes)
		}
		m.merged.Columns = append(m.merged.Columns, out)
	}
	m.merged.Sort()
	if m.grouping.Divides() {
		m.merged.Divided(store.Column{Head: m.whole.head, Windows: m.whole.windows})
	}
	return m.merged
}

// sorted returns the keys of all sums.
func (c *column) sorted() []cellKey {
	return slices.SortedFunc(maps.Keys(c.sums), func(a, b cellKey) int {
		return cmp.Or(cmp.Compare(a.call, b.call), store.CompareContexts(a.context, b.context), cmp.Compare(a.slot, b.slot), cmp.Compare(a.peer, b.peer))
	})
}
