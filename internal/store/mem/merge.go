package mem

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// merger adds windows up, slowly and plainly.
type merger struct {
	tenant        *tenant
	kind          string
	grouping      store.Grouping
	columns       map[string]*column
	whole         column // of all windows, where columns are by thread
	merged        *store.Merged
	calls, places map[profile.Hash]int      // of the forest
	covered       map[string]store.Coverage // by series whose values are levels
	rolling       *store.Step               // that is rolled up: rows keep what divides them; nil: they are merged
	exemplars     []profile.Exemplar        // of what is rolled up, whose stacks are calls
	contexts      []profile.Context         // of these: ContextID i is contexts[i-1]
	slot          time.Duration             // of what is rolled up
}

// cellKey is what rows are added up by: their stack and, in a roll-up, what divides them.
type cellKey struct {
	call    int
	peer    int // a call plus one
	slot    uint32
	context profile.Context
}

type column struct {
	head      profile.Head
	windows   int
	minutes   store.Minutes // that levels were observed in; nil: values are deltas
	sums      map[cellKey]*store.Sum
	instances map[string]map[int]int64 // by call; nil: they are not told apart
}

func newMerger(t *tenant, kind string, g store.Grouping) *merger {
	return &merger{tenant: t, kind: kind, grouping: g, columns: map[string]*column{}, merged: &store.Merged{Forest: &profile.Forest{}},
		calls: map[profile.Hash]int{}, places: map[profile.Hash]int{}}
}

func (m *merger) add(e *entry) {
	w := m.tenant.window(e)
	at := w.TypeIndex(m.kind)
	if at < 0 {
		return
	}
	if m.grouping.Look != nil {
		m.grouping.Look(w.Target, &w.Head, w.N(), max(e.window.Of, 1))
		return
	}
	group, windows := store.Group(w.Target), max(e.window.Of, 1)
	weight, minutes := m.weigh(e, w, at)
	key := ""
	if m.grouping.Key != nil {
		key = m.grouping.Key(w.Target, &w.Head)
	}
	head := w.Head
	head.Types = []profile.ValueType{w.Types[at]}
	if m.grouping.Divides() {
		m.whole.absorb(&head, windows)
		m.addDivided(key, w, head, windows)
	} else {
		m.column(key).absorb(&head, windows)
	}
	m.addExemplars(e, w)
	for i, row := range w.Rows.All() {
		c := m.column(key + m.part(w, row))
		if e.window.Groups != nil || e.key.level.Services() {
			c.instances = nil
		}
		c.observed(minutes)
		cell := m.key(e, w, i)
		s := c.sums[cell]
		if s == nil {
			s = &store.Sum{Call: cell.call}
			c.sums[cell] = s
		}
		sum := w.Types[at].Variance.Known(row.Sum(at))
		sum.Value, sum.Squares = int64(math.Round(float64(sum.Value)*weight)), sum.Squares*weight*weight
		s.Add(sum)
		if e.window.Groups != nil && at == 0 {
			for g := range s.Groups {
				s.Groups[g] += e.window.Groups[i*store.Groups+g]
			}
		} else {
			s.Groups[group] += sum.Value
		}
		c.addApart(store.Instance(w.Target), cell.call, sum.Value, m.grouping.Apart)
	}
}

// cover notes how the windows of each series share minutes, where their values are levels.
func (m *merger) cover(entries []*entry) {
	m.covered = map[string]store.Coverage{}
	for _, e := range entries {
		h := &e.window.Head
		if at := slices.IndexFunc(h.Types, func(t profile.ValueType) bool { return t.Kind == m.kind }); at < 0 || !level(e, h.Types[at]) {
			continue
		}
		if m.covered[e.key.series] == nil {
			m.covered[e.key.series] = store.Coverage{}
		}
		m.covered[e.key.series].Add(h)
	}
}

// level reports whether values are levels as they were observed.
func level(e *entry, t profile.ValueType) bool {
	return t.Temporality == profile.Level && e.window.Minutes == nil
}

// weigh returns what the values of a window count, and the minutes that a level was observed in.
func (m *merger) weigh(e *entry, w *profile.Window, at int) (weight float64, minutes store.Minutes) {
	if !level(e, w.Types[at]) {
		return 1, e.window.Minutes
	}
	minutes = store.Minutes{}
	minutes.Add(&w.Head)
	return m.covered[e.key.series].Weight(&w.Head), minutes
}

func (c *column) observed(minutes store.Minutes) {
	if minutes == nil {
		return
	}
	if c.minutes == nil {
		c.minutes = store.Minutes{}
	}
	maps.Copy(c.minutes, minutes)
}

// key returns what row i is added up by.
func (m *merger) key(e *entry, w *profile.Window, i int) cellKey {
	row := e.window.Rows.At(i)
	k := cellKey{call: m.call(e.stacks[row.Stack])}
	if m.rolling == nil {
		return k
	}
	k.context = w.Context(row.Context)
	if row.Peer != 0 {
		k.peer = m.call(e.stacks[row.Peer-1]) + 1
	}
	if slot := w.Slot; m.rolling.Level == store.Series10m && slot > 0 && slot < time.Second && row.Slot != 0 {
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
	for _, x := range e.window.Exemplars {
		x.Stack, x.Thread = profile.StackID(m.call(e.stacks[x.Stack])), 0
		if x.Time != 0 {
			x.Time += w.Start.Sub(m.rolling.Start)
		}
		m.contexts = append(m.contexts, w.Context(x.Context))
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

// part names what a row is told apart by.
func (m *merger) part(w *profile.Window, row profile.Row) string {
	switch g := &m.grouping; {
	case g.Thread != nil && row.Thread != 0:
		return g.Thread(w.Thread(row.Thread))
	case g.Slot != nil:
		return g.Slot(&w.Head, row.Slot)
	}
	return ""
}

// addDivided counts a window for each column that its threads, or slots, are of.
func (m *merger) addDivided(key string, w *profile.Window, head profile.Head, windows int) {
	names := map[string]profile.Exact{}
	for _, row := range w.Rows.All() {
		if m.grouping.Slot != nil || row.Thread == 0 {
			names[m.part(w, row)] = profile.Exact{}
		}
	}
	if m.grouping.Thread != nil {
		for _, t := range w.Threads {
			e := names[m.grouping.Thread(t)]
			e.Add(t.Exact)
			names[m.grouping.Thread(t)] = e
		}
	}
	for name, exact := range names {
		h := head
		h.Exact, h.Idle, h.Watched, h.Cost, h.Losses = exact, 0, 0, profile.Cost{}, nil
		m.column(key+name).absorb(&h, windows)
	}
}

func (m *merger) column(key string) *column {
	c := m.columns[key]
	if c == nil {
		c = &column{sums: map[cellKey]*store.Sum{}}
		if m.grouping.Apart > 0 && !m.grouping.Divides() {
			c.instances = map[string]map[int]int64{}
		}
		m.columns[key] = c
	}
	return c
}

func (c *column) absorb(h *profile.Head, windows int) {
	if c.windows == 0 {
		c.head = *h
		c.head.Types, c.head.Target = slices.Clone(h.Types), maps.Clone(h.Target)
		c.head.Losses, c.head.Comments = slices.Clone(h.Losses), slices.Clone(h.Comments)
	} else {
		c.head.Absorb(h)
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
	for _, key := range slices.Sorted(maps.Keys(m.columns)) {
		c := m.columns[key]
		out := store.Column{Key: key, Head: c.head, Windows: c.windows, Instances: c.apart()}
		for _, cell := range c.sorted() {
			out.Sums = append(out.Sums, *c.sums[cell])
		}
		if c.minutes != nil {
			out.Average(c.minutes)
		}
		m.merged.Columns = append(m.merged.Columns, out)
	}
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
