package disk

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// Merge adds windows up; see store.Windows.
func (s *Store) Merge(ctx context.Context, tenant string, parts []store.Query, g store.Grouping) (*store.Merged, error) {
	if g.DividesRows() {
		g.MaxInstances = 0
	}
	var adders []*adder
	var merged *store.Merged
	err := s.readAll(ctx, tenant, parts, g.MaxInstances > 0, func(shelf *shelf) taker {
		a := &adder{shelf: shelf, grouping: g, sums: map[sumKey]*sums{}, refiner: refiner{rules: s.connection.options.Rules}}
		adders = append(adders, a)
		return a.add
	}, func(damaged int) (err error) {
		for _, a := range adders[1:] {
			adders[0].absorb(a)
		}
		merged, err = adders[0].merged(damaged)
		return err
	})
	return merged, err
}

// adder adds windows up.
type adder struct {
	shelf    *shelf
	grouping store.Grouping
	sums     map[sumKey]*sums
	whole    sums // of all windows, without cells, if a window can be in several columns
	summary  store.Summary

	columns  codec.Columns
	covered  *store.Coverage // of the series that is added up; nil: its values are deltas
	observed store.Observed
	refiner  refiner
}

// add adds up a series. At the raw level, all of its windows are of one group. If its values are
// levels, it first reads what the windows cover.
func (a *adder) add(ctx context.Context, p *part, g *grouped) error {
	query, levels := &p.cursor.query, false
	a.covered = nil
	if slices.ContainsFunc(query.Kinds, func(kind string) bool { return !store.NeverLevel(kind) }) {
		err := p.cursor.quietly(func() error {
			return p.series(ctx, g, func(f *found) error {
				levels = levels || hasLevels(&a.columns, f.data, query.Measures)
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	if levels {
		a.covered = store.NewCoverage()
		err := p.cursor.quietly(func() error { return p.series(ctx, g, func(f *found) error { return a.cover(query, f) }) })
		if err != nil {
			return err
		}
	}
	return p.series(ctx, g, func(f *found) error { return a.addFound(p, g, f) })
}

// cover adds what a window covers of the minutes that the windows of its series share.
func (a *adder) cover(q *store.Query, f *found) error {
	kinds, ok := codec.Kinds(f.data)
	for _, kind := range kinds {
		if !ok || store.NeverLevel(kind) || !q.Measures(kind) || !a.columns.Read(f.data, kind, math.MaxInt, codec.Parts{}) {
			continue // what is damaged is reported where it is added
		}
		h := &a.columns.Head
		h.Start, h.Task = f.start, f.task
		a.covered.Add(h, h.Types[0], a.grouping.StepOf(h))
	}
	return nil
}

// addFound adds the values that a window has of each kind that is asked for.
func (a *adder) addFound(p *part, g *grouped, f *found) error {
	d, err := a.shelf.take(g.of.service)
	if err != nil {
		return err
	}
	c, query, first := &a.columns, &p.cursor.query, true
	for _, kind := range query.Kinds {
		w := adding{kind: kind, series: g, size: d.size(), level: query.Level, first: first, several: len(query.Kinds) > 1}
		if !c.Read(f.data, kind, w.size, codec.Parts{Threads: a.grouping.Has(store.ByThread), Contexts: a.grouping.ReadsContexts()}) {
			return errDamaged
		}
		if c.Absent {
			continue
		}
		if a.grouping.ReadsContexts() {
			a.refiner.refine(c, kind, d, a.shelf.tenant.places)
		}
		c.Head.Start, c.Head.Task, c.Head.Target = f.start, f.task, g.of.labels
		c.Weigh(a.covered, a.grouping.StepOf(&c.Head))
		w.first = w.first && !(c.Primary != "" && c.Primary != kind && query.Measures(c.Primary))
		if w.first {
			a.summary.Add(g.of.labels, &c.Head)
		}
		if c.Minutes != nil {
			a.observed.Add(&a.grouping, a.grouping.StepOf(&c.Head), a.by(&w), c.Minutes)
		}
		w.of, first = c.Windows(w.level), first && !w.first
		a.addWindow(&w)
	}
	return nil
}

// adding is the window that was read into columns.
type adding struct {
	kind    string
	series  *grouped
	size    int // leaves of its service
	level   store.Level
	of      int  // number of windows that were merged into it
	first   bool // no other kind of it was added before
	several bool // kinds are asked for
}

// addWindow adds the window to its column, or divides it among several.
func (a *adder) addWindow(w *adding) {
	c := &a.columns
	if a.grouping.Divides() {
		a.whole.absorbWindow(&c.Head, w)
	}
	if a.grouping.DividesRows() {
		a.divide(w)
		return
	}
	s := a.column(w, a.by(w))
	if a.grouping.Has(store.ByKind) {
		s.absorb(withoutSums(c.Head), w.of)
	} else {
		s.absorbWindow(&c.Head, w)
	}
	if c.Groups != nil || w.level.Services() {
		s.apart = nil
	}
	s.add(c)
	if w.several && len(c.Leaves) > 0 {
		kind := s.kinds.Of(w.kind)
		for i := range c.Leaves {
			kind.Add(c.Sum(i))
		}
	}
}

// by lists the values of the dimensions that all rows of a window have in common.
func (a *adder) by(w *adding) []string {
	if len(a.grouping.By) == 0 {
		return nil
	}
	by := make([]string, len(a.grouping.By))
	for i, d := range a.grouping.By {
		if label, ok := d.Label(); ok {
			by[i] = w.series.of.labels[label]
		} else if d == store.ByKind {
			by[i] = w.kind
		}
	}
	return by
}

// divide divides the rows of a window among columns by thread, slot and context.
func (a *adder) divide(w *adding) {
	c, common, head := &a.columns, a.by(w), withoutSums(a.columns.Head)
	counted, once := map[*sums]bool{}, w.first || a.grouping.Has(store.ByKind)
	contexts := a.contexts()
	columnOf := func(thread, slot, context uint32) *sums {
		by := slices.Clone(common)
		for i, d := range a.grouping.By {
			if part, ok := d.Context(); ok {
				by[i] = contexts[context][part]
			} else if d == store.BySlot {
				by[i] = a.grouping.Slots.Part(&c.Head, slot)
			} else if d == store.ByThread && thread > 0 {
				by[i] = c.Threads[thread-1].Name
			}
		}
		s := a.column(w, by)
		if !counted[s] {
			if counted[s] = true; once {
				s.absorb(head, w.of)
			} else {
				store.AddType(&s.head, head.Types[0])
			}
		}
		return s
	}
	threads, slots := a.grouping.Has(store.ByThread) && len(c.Thread) > 0, a.grouping.Has(store.BySlot) && len(c.Slot) > 0
	type destination struct {
		*sums
		ofKind *profile.Sum // of several; nil: there is one
	}
	known := map[[3]uint32]destination{}
	for i, leaf := range c.Leaves {
		var at [3]uint32
		if contexts != nil && len(c.Context) > 0 {
			at[2] = c.Context[i]
		}
		if contexts != nil && contexts[at[2]] == nil {
			continue
		}
		if threads {
			at[0] = c.Thread[i]
		}
		if slots {
			at[1] = c.Slot[i]
		}
		into, ok := known[at]
		if !ok {
			into.sums = columnOf(at[0], at[1], at[2])
			if w.several {
				into.ofKind = into.kinds.Of(w.kind)
			}
			known[at] = into
		}
		into.addRow(c, i, into.slot(leaf))
		if into.ofKind != nil {
			into.ofKind.Add(c.Sum(i))
		}
	}
	if contexts != nil || !once { // times of threads belong to no context
		return
	}
	for i, t := range c.Threads {
		columnOf(uint32(i+1), 0, 0).head.Exact.Add(t.Exact)
	}
}

// contexts returns the labels of the window's contexts by ContextID, nil if rows do not depend
// on them. The labels of a context whose rows are left out are nil.
func (a *adder) contexts() []profile.Labels {
	if !a.grouping.ReadsContexts() {
		return nil
	}
	all := []profile.Labels{store.ContextLabels(profile.Context{})}
	for _, c := range a.columns.Contexts {
		all = append(all, store.ContextLabels(c))
	}
	for i := range all {
		if !a.grouping.Where.Matches(all[i]) {
			all[i] = nil
		}
	}
	return all
}

// withoutSums is a head without what adds up.
func withoutSums(h profile.Head) *profile.Head {
	h.Exact, h.Idle, h.Watched, h.Cost, h.Losses = profile.Exact{}, 0, 0, profile.Cost{}, nil
	return &h
}

// columnKey identifies a column: when its step starts, and the values of its dimensions.
type columnKey struct {
	start int64
	by    string
}

func newColumnKey(start time.Time, by []string) (k columnKey) {
	if !start.IsZero() {
		k.start = start.UnixNano()
	}
	if len(by) == 1 {
		k.by = by[0]
	} else if len(by) > 1 {
		var w codec.Writer
		for _, value := range by {
			w.Text(value)
		}
		k.by = string(w)
	}
	return k
}

// sumKey is a column of one service.
type sumKey struct {
	columnKey
	service string
}

// sums are what was added up. Those of a thread, a slot or a context are of few of its service's
// leaves, and there may be thousands of them: they have cells for these alone.
type sums struct {
	start   time.Time
	by      []string // values of the dimensions
	head    profile.Head
	windows int
	cells   []cell                // by leaf, or by slot
	slots   map[uint32]int        // where each leaf's cell is; nil: by leaf
	group   int                   // whose the values of the cells are
	groups  [store.Groups][]int64 // what was settled; one that no row was of is nil
	apart   *apart                // nil: instances are not told apart
	kinds   store.KindSums        // what each kind has of the values, if several are asked for
}

// cell is what a row adds to: one place in memory, since going there is most of
// the work.
type cell = profile.Sum

// column finds or adds the column of a window, or of a part of it.
func (a *adder) column(w *adding, by []string) *sums {
	g, start := w.series, a.grouping.StepOf(&a.columns.Head)
	k := sumKey{newColumnKey(start, by), g.of.service}
	s := a.sums[k]
	if s == nil {
		s = &sums{start: start, by: by, group: g.group, apart: newApart(a.grouping.MaxInstances, g.instance)}
		if a.grouping.DividesRows() {
			s.slots = map[uint32]int{}
		}
		a.sums[k] = s
	}
	if s.slots == nil {
		s.grow(w.size)
	}
	if s.group != g.group || s.apart != nil && s.apart.instance != g.instance {
		s.settle()
		s.group = g.group
		if s.apart != nil {
			s.apart.instance = g.instance
		}
	}
	return s
}

// slot finds or makes the cell of a leaf.
func (s *sums) slot(leaf uint32) int {
	if s.slots == nil {
		return int(leaf)
	}
	at, ok := s.slots[leaf]
	if !ok {
		at = len(s.slots)
		s.slots[leaf] = at
		s.grow(at + 1)
	}
	return at
}

// sampled gives the leaves on which anything was seen, in their order, and the cell
// of each.
func (s *sums) sampled() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if s.slots == nil {
			for leaf := range s.cells {
				if s.some(leaf) && !yield(leaf, leaf) {
					return
				}
			}
			return
		}
		for _, leaf := range slices.Sorted(maps.Keys(s.slots)) {
			if at := s.slots[leaf]; s.some(at) && !yield(int(leaf), at) {
				return
			}
		}
	}
}

// some says whether anything is in a cell.
func (s *sums) some(at int) bool {
	if s.cells[at].N != 0 || s.cells[at].Squares != 0 {
		return true
	}
	for _, values := range s.groups {
		if values != nil && values[at] != 0 {
			return true
		}
	}
	return false
}

// grow makes room for as many calls.
func (s *sums) grow(size int) {
	if size <= len(s.cells) {
		return
	}
	size += size / 8 // dictionaries grow while windows come
	s.cells = append(s.cells, make([]cell, size-len(s.cells))...)
	for g := range s.groups {
		if s.groups[g] != nil {
			s.groups[g] = append(s.groups[g], make([]int64, size-len(s.groups[g]))...)
		}
	}
}

func (s *sums) valuesOf(g int) []int64 {
	if s.groups[g] == nil {
		s.groups[g] = make([]int64, len(s.cells))
	}
	return s.groups[g]
}

// settle adds the cells' values to their group, and to their instance.
func (s *sums) settle() {
	s.apart = s.apart.settle(s.cells)
	into := s.valuesOf(s.group)
	for i := range s.cells {
		into[i] += s.cells[i].Value
		s.cells[i].Value = 0
	}
}

// absorbWindow absorbs the head of a window once, however many kinds of it are added.
func (s *sums) absorbWindow(h *profile.Head, w *adding) {
	if w.first {
		s.absorb(h, w.of)
	} else {
		store.AddType(&s.head, h.Types[0])
	}
}

func (s *sums) absorb(h *profile.Head, windows int) {
	absorb(&s.head, s.windows, h, windows)
	s.windows += windows
}

// absorb adds the head of some windows to that of others. Where it is of none it
// says what could not be read, and nothing else.
func absorb(into *profile.Head, windows int, h *profile.Head, more int) {
	var losses []profile.Loss
	switch {
	case windows == 0:
		losses = into.Losses
		types := into.Types
		*into = *h
		into.Types, into.Target = slices.Clone(h.Types), maps.Clone(h.Target)
		into.Losses, into.Comments = slices.Clone(h.Losses), slices.Clone(h.Comments)
		for _, t := range types {
			store.AddType(into, t)
		}
	case more == 0:
		losses = h.Losses
		for _, t := range h.Types { // another kind of the same windows may have been added
			store.AddType(into, t)
		}
	default:
		store.AbsorbHead(into, h)
	}
	for _, l := range losses {
		into.AddLoss(l)
	}
}

// add adds all rows.
func (s *sums) add(c *codec.Columns) {
	if c.Groups == nil && c.Plain() {
		s.addAll(c)
		return
	}
	for i, leaf := range c.Leaves {
		s.addRow(c, i, int(leaf))
	}
}

// addAll is addRow for each row, where nothing is chosen.
func (s *sums) addAll(c *codec.Columns) {
	scale, cells := c.Scale, s.cells
	values := c.Value[:len(c.Leaves)]
	for i, leaf := range c.Leaves[:c.Single] {
		cell, value := &cells[leaf], values[i]*scale
		cell.N++
		cell.Value += value
		cell.Squares += float64(value) * float64(value)
	}
	if c.Variance != nil {
		for i := c.Single; i < len(c.Leaves); i++ {
			cells[c.Leaves[i]].Add(c.Sum(i))
		}
		return
	}
	for i := c.Single; i < len(c.Leaves); i++ { // without a sum per row
		cell, n, value := &cells[c.Leaves[i]], c.N[i], values[i]*scale
		cell.N += n
		cell.Value += value
		if n > 0 {
			cell.Squares += float64(value) * float64(value) / float64(n)
		}
	}
}

// addRow adds a row to a cell.
func (s *sums) addRow(c *codec.Columns, i, at int) {
	sum := c.Sum(i)
	if c.Groups == nil {
		s.cells[at].Add(sum)
		return
	}
	sum.Value = 0 // it is kept by group
	s.cells[at].Add(sum)
	for g, v := range c.Groups[i*store.Groups : (i+1)*store.Groups] {
		if v != 0 {
			s.valuesOf(g)[at] += v * c.Scale
		}
	}
}

// absorb adds what another adder has.
func (a *adder) absorb(o *adder) {
	a.summary.Absorb(&o.summary)
	a.whole.absorb(&o.whole.head, o.whole.windows)
	a.observed.Absorb(&o.observed)
	for k, s := range o.sums {
		mine := a.sums[k]
		if mine == nil {
			a.sums[k] = s
			continue
		}
		s.settle()
		if mine.slots == nil {
			mine.grow(len(s.cells))
		}
		mine.absorb(&s.head, s.windows)
		mine.kinds.Absorb(s.kinds)
		if mine.apart != nil {
			mine.settle()
			mine.apart = mine.apart.absorb(s.apart)
		}
		for leaf, from := range s.sampled() {
			mine.take(s, mine.slot(uint32(leaf)), from)
		}
	}
}

// take adds a cell of others, which have been settled.
func (s *sums) take(o *sums, at, from int) {
	s.cells[at].Add(o.cells[from]) // settle has moved the values to the groups
	for g, values := range o.groups {
		if values != nil && values[from] != 0 {
			s.valuesOf(g)[at] += values[from]
		}
	}
}
