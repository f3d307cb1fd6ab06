package disk

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Merge adds windows up; see store.Store.
func (s *Store) Merge(ctx context.Context, tenant string, parts []store.Query, kind string, g store.Grouping) (*store.Merged, error) {
	db, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer db.release()
	t, err := s.tenant(db, tenant)
	if err != nil {
		return nil, err
	}
	shelf := s.shelf(db, t)
	defer shelf.putBack()
	if g.Divides() {
		g.Apart = 0
	}
	work := newWork(t, parts, g.Apart > 0)
	adders := make([]*adder, min(runtime.GOMAXPROCS(0), max(len(work.series), 1)))
	failed := make([]error, len(adders))
	var done sync.WaitGroup
	for i := range adders {
		a := &adder{shelf: shelf, kind: kind, grouping: g, sums: map[sumKey]*sums{}}
		for _, q := range parts {
			a.parts = append(a.parts, part{cursor: s.cursor(db, t, q)})
		}
		adders[i] = a
		done.Go(func() { failed[i] = errors.Join(a.work(ctx, work), a.close()) })
	}
	done.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	for _, a := range adders[1:] {
		adders[0].absorb(a)
	}
	return adders[0].merged()
}

// work is series that are to be added up. Those of one service and one group lie
// together, and in it those of one instance, if these are told apart: sums go from
// one to another by going over all stacks.
type work struct {
	series []grouped
	next   atomic.Int64
}

// grouped is a series in a part of a selection.
type grouped struct {
	part     int
	group    int
	of       *series
	instance string // see store.Instance; "": they are not told apart
}

func newWork(t *tenant, parts []store.Query, apart bool) *work {
	w := &work{}
	for i, q := range parts {
		for _, of := range t.chosen(q) {
			g := grouped{part: i, group: of.group, of: of}
			if apart {
				g.instance = store.Instance(of.labels)
			}
			w.series = append(w.series, g)
		}
	}
	slices.SortFunc(w.series, func(a, b grouped) int {
		return cmp.Or(cmp.Compare(a.of.service, b.of.service), cmp.Compare(a.group, b.group), cmp.Compare(a.instance, b.instance))
	})
	return w
}

// part is what an adder knows of a part of a selection.
type part struct {
	cursor *cursor
	days   []uint32 // nil: not looked for yet
}

// adder adds the windows of some series up.
type adder struct {
	parts    []part
	damaged  int // of other adders
	shelf    *shelf
	kind     string
	grouping store.Grouping
	sums     map[sumKey]*sums
	whole    sums // of all windows, without cells, where they are divided among columns

	columns columns
	covered store.Coverage // of the series that is added up, if its values are levels
}

// work takes one series after another.
func (a *adder) work(ctx context.Context, w *work) error {
	for {
		n := int(w.next.Add(1)) - 1
		if n >= len(w.series) {
			return nil
		}
		if err := a.add(ctx, &w.series[n]); err != nil {
			return err
		}
	}
}

func (a *adder) close() (err error) {
	for _, p := range a.parts {
		err = errors.Join(err, p.cursor.close())
		a.damaged += p.cursor.damaged
	}
	return err
}

// add adds a series up. At the raw level all of it is of one group.
func (a *adder) add(ctx context.Context, g *grouped) (err error) {
	p := &a.parts[g.part]
	if p.days == nil {
		if p.days, err = p.cursor.days(); err != nil {
			return err
		}
	}
	a.covered = nil
	add := func(f *found) error { return a.addFound(p, g, f) }
	err = p.cursor.series(ctx, p.days, g.of, add)
	if errors.Is(err, errLevel) {
		a.covered = store.Coverage{}
		err = errors.Join(p.cursor.series(ctx, p.days, g.of, a.cover), p.cursor.series(ctx, p.days, g.of, add))
	}
	return err
}

// cover adds what a window covers of the minutes that the windows of its series share.
func (a *adder) cover(f *found) error {
	if a.columns.read(f.data, a.kind, math.MaxInt, parts{}) && !a.columns.absent {
		a.columns.head.Start = f.start
		a.covered.Add(&a.columns.head)
	}
	return nil
}

// addFound adds a window up.
func (a *adder) addFound(p *part, g *grouped, f *found) error {
	d, err := a.shelf.take(g.of.service)
	if err != nil {
		return err
	}
	size := d.size()
	if !a.columns.read(f.data, a.kind, size, parts{threads: a.grouping.Thread != nil}) {
		p.cursor.report(g.of, f.start, errDamaged)
		return nil
	}
	if a.columns.absent {
		return nil
	}
	head := &a.columns.head
	head.Start, head.Task, head.Target = f.start, f.task, g.of.labels
	if a.columns.level() {
		if a.covered == nil {
			return errLevel
		}
		a.columns.weigh(a.covered)
	}
	if a.grouping.Look != nil {
		a.grouping.Look(g.of.labels, head, a.columns.samples(), a.columns.windows(p.cursor.query.Level))
		return nil
	}
	column := ""
	if a.grouping.Key != nil {
		column = a.grouping.Key(g.of.labels, head)
	}
	a.addWindow(column, g, size, a.columns.windows(p.cursor.query.Level))
	return nil
}

// addWindow adds the window that was read to its column, or divides it among several.
// It is of so many.
func (a *adder) addWindow(column string, g *grouped, size, of int) {
	c := &a.columns
	switch {
	case a.grouping.Thread != nil:
		a.divideByThread(column, g, size, of)
	case a.grouping.Slot != nil:
		a.divideBySlot(column, g, size, of)
	default:
		s := a.column(column, g, size)
		s.absorb(&c.head, of)
		if c.groups != nil || a.parts[g.part].cursor.query.Level.Services() {
			s.apart = nil
		}
		s.add(c)
	}
}

// divideBySlot divides a window by when it was.
func (a *adder) divideBySlot(column string, g *grouped, size, of int) {
	c := &a.columns
	a.whole.absorb(&c.head, of)
	head := withoutSums(c.head)
	bySlot, named := map[uint32]*sums{}, map[string]*sums{}
	for i, leaf := range c.leaves {
		slot := uint32(0)
		if len(c.slot) > 0 {
			slot = c.slot[i]
		}
		s := bySlot[slot]
		if s == nil {
			name := a.grouping.Slot(&c.head, slot)
			if s = named[name]; s == nil {
				s = a.column(column+name, g, size)
				s.absorb(&head, of)
				named[name] = s
			}
			bySlot[slot] = s
		}
		s.addRow(c, i, s.slot(leaf))
	}
}

// divideByThread divides a window among its threads.
func (a *adder) divideByThread(column string, g *grouped, size, of int) {
	c := &a.columns
	a.whole.absorb(&c.head, of)
	names := make([]string, len(c.threads)+1)
	for i, t := range c.threads {
		names[i+1] = a.grouping.Thread(t)
	}
	told := names
	if !c.threadless() {
		told = names[1:]
	}
	named := map[string]*sums{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(told))) {
		named[name] = a.column(column+name, g, size)
		named[name].absorb(threadHead(c, names, name), of)
	}
	for i, leaf := range c.leaves {
		name := ""
		if len(c.thread) > 0 {
			name = names[c.thread[i]]
		}
		s := named[name]
		s.addRow(c, i, s.slot(leaf))
	}
}

// threadless tells whether some row is of no thread.
func (c *columns) threadless() bool {
	return len(c.thread) == 0 && len(c.leaves) > 0 || slices.Contains(c.thread, 0)
}

// threadHead is a window's head as it is of some of its threads.
func threadHead(c *columns, names []string, name string) *profile.Head {
	h := withoutSums(c.head)
	for i, t := range c.threads {
		if names[i+1] == name {
			h.Exact.Add(t.Exact)
		}
	}
	return &h
}

// withoutSums is a head without what adds up.
func withoutSums(h profile.Head) profile.Head {
	h.Exact, h.Idle, h.Watched, h.Cost, h.Losses = profile.Exact{}, 0, 0, profile.Cost{}, nil
	return h
}

// sumKey is a column of one service.
type sumKey struct{ column, service string }

// sums are what was added up. Those of a thread, or a slot, are of few of its service's
// leaves, and there may be thousands of them: they have cells for these alone.
type sums struct {
	head    profile.Head
	windows int
	cells   []cell                // by leaf, or by slot
	slots   map[uint32]int        // where each leaf's cell is; nil: by leaf
	group   int                   // whose the values of the cells are
	groups  [store.Groups][]int64 // what was settled; one that no row was of is nil
	apart   *apart                // nil: instances are not told apart
	minutes store.Minutes         // that levels were observed in; nil: values are deltas
}

// cell is what a row adds to: one place in memory, since going there is most of
// the work.
type cell = profile.Sum

func (a *adder) column(column string, g *grouped, size int) *sums {
	k := sumKey{column, g.of.service}
	s := a.sums[k]
	if s == nil {
		s = &sums{group: g.group, apart: newApart(a.grouping.Apart, g.instance)}
		if a.grouping.Divides() {
			s.slots = map[uint32]int{}
		}
		a.sums[k] = s
	}
	s.observed(a.columns.minutes)
	if s.slots == nil {
		s.grow(size)
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

// observed adds minutes that levels were observed in.
func (s *sums) observed(minutes store.Minutes) {
	if minutes == nil {
		return
	}
	if s.minutes == nil {
		s.minutes = store.Minutes{}
	}
	maps.Copy(s.minutes, minutes)
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
		*into = *h
		into.Types, into.Target = slices.Clone(h.Types), maps.Clone(h.Target)
		into.Losses, into.Comments = slices.Clone(h.Losses), slices.Clone(h.Comments)
	case more == 0:
		losses = h.Losses
	default:
		into.Absorb(h)
	}
	for _, l := range losses {
		into.AddLoss(l)
	}
}

// add adds all rows.
func (s *sums) add(c *columns) {
	if c.groups == nil && c.plain() {
		s.addAll(c)
		return
	}
	for i, leaf := range c.leaves {
		s.addRow(c, i, int(leaf))
	}
}

// addAll is addRow for each row, where nothing is chosen.
func (s *sums) addAll(c *columns) {
	scale, cells := c.scale, s.cells
	values := c.value[:len(c.leaves)]
	for i, leaf := range c.leaves[:c.single] {
		cell, value := &cells[leaf], values[i]*scale
		cell.N++
		cell.Value += value
		cell.Squares += float64(value) * float64(value)
	}
	for i := c.single; i < len(c.leaves); i++ {
		cells[c.leaves[i]].Add(c.sum(i))
	}
}

// addRow adds a row to a cell.
func (s *sums) addRow(c *columns, i, at int) {
	sum := c.sum(i)
	if c.groups == nil {
		s.cells[at].Add(sum)
		return
	}
	sum.Value = 0 // it is kept by group
	s.cells[at].Add(sum)
	for g, v := range c.groups[i*store.Groups : (i+1)*store.Groups] {
		if v != 0 {
			s.valuesOf(g)[at] += v * c.scale
		}
	}
}

// absorb adds what another adder has.
func (a *adder) absorb(o *adder) {
	a.damaged += o.damaged
	a.whole.absorb(&o.whole.head, o.whole.windows)
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
		mine.observed(s.minutes)
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
