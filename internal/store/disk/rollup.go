package disk

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// A window that is put makes the steps it lies in stale, in the same batch
// (commit.go). A step loses its mark before its windows are read, so that what
// comes meanwhile makes it stale again; it counts as stale while it is added up,
// and in the database until the last batch of the result.

// mark notes that steps lack windows.
func (t *tenant) mark(steps map[store.Step]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for step := range steps {
		if _, ok := t.stale[step]; !ok {
			t.stale[step] = false
		}
	}
}

// marked tells whether a step is stale.
func (t *tenant) marked(step store.Step) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.stale[step]
	return ok
}

// begin takes the mark of a step away, unless something below it is stale: who chose
// the step may have looked before that came, and what is added up without it would
// never be again. No commit is between marking the steps of its windows and writing
// them.
func (s *committer) begin(t *tenant, step store.Step) bool {
	s.applying.Lock()
	defer s.applying.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for below := range t.stale {
		if step.Waits(below) {
			if _, marked := t.stale[step]; !marked {
				t.stale[step] = false
			}
			return false
		}
	}
	delete(t.stale, step)
	t.busy = &step
	return true
}

// end has a step be what it is; if it failed, stale.
func (t *tenant) end(step store.Step, err error) {
	if err != nil {
		t.mark(map[store.Step]bool{step: true})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = nil
}

// Stale lists steps that are to be added up; see store.Store.
func (s *Store) Stale(_ context.Context, tenant string) ([]store.Step, error) {
	t, err := s.loaded(tenant)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	steps := slices.Collect(maps.Keys(t.stale))
	if t.busy != nil && !slices.Contains(steps, *t.busy) {
		steps = append(steps, *t.busy)
	}
	t.mu.Unlock()
	slices.SortFunc(steps, func(a, b store.Step) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), a.Start.Compare(b.Start))
	})
	return steps, nil
}

// What is damaged below is left out and told in the heads of what is added up of
// its series, or its service. The step has its mark no more then: it would be added
// up again and again, those above would wait for it, and once the level below is
// dropped all of it would be lost, and not what is damaged alone.

// Roll adds a step up; see store.Store.
func (s *Store) Roll(ctx context.Context, tenant string, step store.Step) error {
	t, err := s.loaded(tenant)
	if err != nil {
		return err
	}
	t.rolling.Lock()
	defer t.rolling.Unlock()
	if !s.begin(t, step) {
		return nil
	}
	damaged, err := s.roll(ctx, t, step)
	t.end(step, err)
	if err != nil {
		return err
	}
	return store.Damage{Parts: damaged}.Err()
}

func (s *Store) roll(ctx context.Context, t *tenant, step store.Step) (damaged int, err error) {
	last := t.newCommit()
	last.rolled = &step
	below := step.Level.Below()
	t.mu.Lock()
	dropped := days(step.Start) < t.dropped[below]
	t.mu.Unlock()
	if dropped {
		return 0, s.commit(ctx, last)
	}
	r := &roller{store: s, tenant: t, step: step, commit: t.newCommit(), pace: pace{puts: &s.puts},
		all: lost{}, types: map[string]profile.ValueType{}, refiner: refiner{rules: s.connection.options.Rules}}
	r.pace.work()
	if err := r.read(ctx); err != nil {
		return 0, err
	}
	last.pairs, last.bytes = r.commit.pairs, r.commit.bytes
	return len(r.all), s.commit(ctx, last)
}

// roller adds the windows of a step up: of each series, or of each service, for
// each task and kind of values apart.
type roller struct {
	store  *Store
	tenant *tenant
	shelf  *shelf
	cursor *cursor
	step   store.Step
	commit *commit // what is not written yet

	all    lost // parts of the step that could not be read
	met    lost // of these, those of what belongs together of which no kind of values is known
	lost   lost // those of the window that is added up
	untold []untold
	types  map[string]profile.ValueType // of kinds of values that the step has

	pace      pace
	columns   codec.Columns
	cells     []rollCell // by leaf; those that are not touched are zero
	touched   []uint32
	divided   dividedCells // rows that have more than a stack
	exemplars []profile.Exemplar
	window    store.Window    // that is added up
	room      profile.Rows    // for its rows
	groups    []int64         // likewise
	grouped   bool            // of it, values are told by group
	watched   time.Duration   // by all of its windows
	times     profile.Times   // of its windows
	covered   *store.Coverage // of the series that is added up; nil: its values are deltas
	refiner   refiner
}

// rollCell is what was sampled on one stack.
type rollCell struct {
	profile.Sum
	groups [store.Groups]int64
}

// measured is what windows have in common that are added up.
type measured struct{ task, kind string }

func (r *roller) read(ctx context.Context) error {
	db, err := r.store.acquire()
	if err != nil {
		return err
	}
	defer db.release()
	r.shelf = r.store.shelf(db, r.tenant)
	defer r.shelf.putBack()
	r.cursor = newCursor(r.store.connection.log, db, r.tenant, store.Query{Level: r.step.Level.Below(), From: r.step.Start, To: r.step.Start.Add(r.step.Level.Length())})
	r.cursor.reported = func(of *series, from time.Time, err error) { r.lose(of, &found{start: from}, err) }
	err = errors.Join(r.units(ctx), r.cursor.close())
	if err == nil {
		err = r.tell(ctx)
	}
	return err
}

// units adds up what belongs together.
func (r *roller) units(ctx context.Context) error {
	days, err := r.cursor.days()
	if err != nil {
		return err
	}
	chosen := r.tenant.chosen(r.cursor.query)
	if !r.step.Level.Services() {
		for _, of := range chosen {
			if err := r.unit(ctx, days, of.labels, []*series{of}); err != nil {
				return err
			}
		}
		return nil
	}
	services := map[string][]*series{}
	for _, of := range chosen {
		services[of.service] = append(services[of.service], of)
	}
	for service, all := range services {
		labels := profile.Labels{}
		if service != "" {
			labels[store.ServiceLabel] = service
		}
		if err := r.unit(ctx, days, labels, all); err != nil {
			return err
		}
	}
	return nil
}

// unit adds series up to windows under the given labels.
func (r *roller) unit(ctx context.Context, days []uint32, labels profile.Labels, all []*series) error {
	seen, tasks := map[measured]bool{}, map[string]bool{}
	r.lost = lost{}
	err := r.each(ctx, days, all, func(of *series, f *found) error {
		list, ok := codec.Kinds(f.data)
		if !ok {
			r.lose(of, f, errDamaged)
			return nil
		}
		for _, kind := range list {
			seen[measured{f.task, kind}] = true
			tasks[f.task] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.met = r.lost
	for m := range seen {
		if err := r.measure(ctx, days, labels, all, m); err != nil {
			return err
		}
	}
	r.leave(labels, tasks)
	return nil
}

func (r *roller) each(ctx context.Context, days []uint32, all []*series, give func(*series, *found) error) error {
	for _, of := range all {
		err := r.cursor.series(ctx, days, of, func(f *found) error { return give(of, f) })
		if err != nil {
			return err
		}
	}
	return nil
}

// measure adds one kind of values of one task up.
func (r *roller) measure(ctx context.Context, days []uint32, labels profile.Labels, all []*series, m measured) error {
	r.window, r.watched, r.times, r.grouped = emptyWindow(labels, profile.ValueType{Kind: m.kind}), 0, profile.Times{}, r.step.Level.Services()
	r.lost = r.met.of(m.task)
	some := false
	for _, of := range all {
		if err := r.cover(ctx, days, of, m); err != nil {
			return err
		}
		err := r.cursor.series(ctx, days, of, func(f *found) error {
			ok, err := r.addFound(of, f, m)
			some = some || ok
			return cmp.Or(err, r.pace.rest(ctx))
		})
		if err != nil {
			return err
		}
	}
	if !some && len(r.lost) == 0 {
		return nil
	}
	if some {
		r.types[m.kind] = r.window.Head.Types[0]
	}
	if err := r.finish(m); err != nil {
		return err
	}
	return r.flush(ctx)
}

// cover reads how the windows of a series share minutes, if their values are levels.
func (r *roller) cover(ctx context.Context, days []uint32, of *series, m measured) error {
	r.covered = nil
	if store.NeverLevel(m.kind) {
		return nil
	}
	levels := false
	err := r.cursor.series(ctx, days, of, func(f *found) error {
		levels = levels || f.task == m.task && hasLevels(&r.columns, f.data, func(kind string) bool { return kind == m.kind })
		return r.pace.rest(ctx)
	})
	if err != nil || !levels {
		return err
	}
	r.covered = store.NewCoverage()
	return r.cursor.series(ctx, days, of, func(f *found) error {
		if f.task == m.task && r.columns.Read(f.data, m.kind, math.MaxInt, codec.Parts{}) && !r.columns.Absent {
			h := &r.columns.Head
			h.Start, h.Task = f.start, f.task
			r.covered.Add(h, h.Types[0], time.Time{})
		}
		return r.pace.rest(ctx)
	})
}

// hasLevels reports whether a window has levels of a kind that is asked for. It reads no rows
// of windows of the current version.
func hasLevels(c *codec.Columns, data []byte, asked func(kind string) bool) bool {
	types, _, ok := c.ReadTypes(data)
	return ok && slices.ContainsFunc(types, func(t profile.ValueType) bool { return t.Temporality == profile.Level && asked(t.Kind) })
}

// addFound adds a window, if it is of what is measured.
func (r *roller) addFound(of *series, f *found, m measured) (added bool, err error) {
	if f.task != m.task {
		return false, nil
	}
	d, err := r.shelf.take(of.service)
	if err != nil {
		return false, err
	}
	size := d.size()
	if !r.columns.Read(f.data, m.kind, size, codec.Parts{Contexts: true, Exemplars: true}) {
		r.lose(of, f, errDamaged)
		return false, nil
	}
	if !r.columns.Absent {
		r.refiner.refine(&r.columns, m.kind, d, r.tenant.places)
		r.columns.Head.Start = f.start
		r.columns.Head.Task = f.task
		r.columns.Weigh(r.covered, time.Time{})
		r.add(of, f, size)
		return true, nil
	}
	return false, nil
}

// add adds the window that was read.
func (r *roller) add(of *series, f *found, size int) {
	c, w := &r.columns, &r.window
	head := c.Head
	head.Start, head.Task, head.Target = f.start, f.task, of.labels
	more := c.Windows(r.cursor.query.Level)
	switch {
	case c.Weight != 0: // values are no multiples of their scale any more
		w.Scales[0] = 1
	case w.Of == 0:
		w.Scales[0] = c.Scale
	case more > 0:
		w.Scales[0] = store.CommonScale(w.Scales[0], c.Scale)
	}
	if w.Of == 0 {
		w.Primary = c.Primary
	} else if w.Primary != c.Primary {
		w.Primary = ""
	}
	absorb(&w.Head, w.Of, &head, more)
	w.Of += more
	w.Minutes.Include(c.Minutes)
	r.watched += head.Duration
	r.times.Add(&head)
	r.grouped = r.grouped || c.Groups != nil
	if lack := size - len(r.cells); lack > 0 {
		r.cells = append(r.cells, make([]rollCell, lack+size/8)...) // dictionaries grow meanwhile
	}
	r.addRows(of.group, r.slotsOf(&head))
	for _, e := range c.Exemplars {
		e.Thread, e.Context = 0, r.divided.context(c.Contexts, uint32(e.Context))
		if e.Time != 0 {
			e.Time += head.Start.Sub(r.step.Start)
		}
		r.exemplars = append(r.exemplars, e)
	}
}

// slotsOf returns how slots of a window are numbered in the rolled-up window; nil: its rows
// lose their slots.
func (r *roller) slotsOf(head *profile.Head) func(slot uint32) uint32 {
	if r.step.Level != store.Series10m || !store.HeatMapSlots(head.Slot) {
		return nil
	}
	step := profile.Head{Start: r.step.Start, Slot: head.Slot}
	if r.divided.slot == 0 {
		r.divided.slot = head.Slot
	}
	if r.divided.slot != head.Slot { // of two lengths the first is kept
		return nil
	}
	return func(slot uint32) uint32 { return step.SlotOf(head, slot) }
}

// addRows adds the rows of the window that was read.
func (r *roller) addRows(group int, slotOf func(uint32) uint32) {
	c := &r.columns
	plain := len(c.Context) == 0 && len(c.Peer) == 0 && slotOf == nil
	for i, leaf := range c.Leaves {
		if c.N[i] == 0 && c.Value[i] == 0 {
			continue
		}
		if plain {
			r.addRow(group, i, r.cell(leaf))
			continue
		}
		key := cellKey{leaf: leaf, context: r.divided.contextOf(c, i)}
		if len(c.Peer) > 0 {
			key.peer = c.Peer[i]
		}
		if slotOf != nil && len(c.Slot) > 0 && c.Slot[i] != 0 {
			key.slot = slotOf(c.Slot[i])
		}
		if key == (cellKey{leaf: leaf}) {
			r.addRow(group, i, r.cell(leaf))
		} else {
			r.addRow(group, i, r.divided.cell(key))
		}
	}
}

// cell returns the cell of a stack.
func (r *roller) cell(leaf uint32) *rollCell {
	cell := &r.cells[leaf]
	if cell.N == 0 && cell.Value == 0 {
		r.touched = append(r.touched, leaf)
	}
	return cell
}

func (r *roller) addRow(group, i int, cell *rollCell) {
	c := &r.columns
	sum := c.Sum(i)
	cell.Add(sum)
	if c.Groups == nil {
		cell.groups[group] += sum.Value
		return
	}
	for g, v := range c.Groups[i*store.Groups : (i+1)*store.Groups] {
		cell.groups[g] += v * c.Scale
	}
}

// finish puts the window into the commit, and forgets it.
func (r *roller) finish(m measured) error {
	w := &r.window
	l := r.takeRows()
	w.Scales[0] = max(w.Scales[0], 1)
	w.Head.Duration = r.watched
	if r.step.Level.Services() { // many are watched at once
		w.Head.Duration = r.times.Covered()
	}
	w.Head.Start, w.Head.Task, w.Head.Duration = r.step.Start, m.task, min(w.Head.Duration, r.step.Level.Length())
	w.Head.AddLoss(profile.Loss{Reason: profile.LossStoreDamage, N: int64(len(r.lost))})
	h := fnv.New128a()
	h.Write([]byte(m.kind)) // never fails
	copy(w.Run[:], h.Sum(nil))
	r.tenant.mu.Lock()
	number := r.tenant.addSeries(w.Series)
	r.tenant.mu.Unlock()
	key := windowKey(r.tenant.name, r.step.Level, w.Series[store.ServiceLabel], number, w.Head.Start, w.Head.Task, m.kind, w.Run)
	value := codec.EncodeWindow(w, l)
	if r.room = w.Rows; r.grouped {
		r.groups = w.Groups
	}
	r.touched = r.touched[:0]
	if stays, err := r.stays(key); err != nil || stays {
		return err
	}
	r.commit.pairs = append(r.commit.pairs, [2][]byte{key, value})
	r.commit.bytes += len(key) + len(value)
	return nil
}

// takeRows moves all cells to the window's rows, and returns their leaves.
func (r *roller) takeRows() (l codec.Leaves) {
	w := &r.window
	w.Rows = r.room
	w.Rows.Types = 1
	w.Rows.Truncate(0)
	w.Rows.Context, w.Rows.Slot, w.Rows.Peer = nil, nil, nil
	if w.Groups = nil; r.grouped {
		w.Groups = r.groups[:0]
	}
	appendRow := func(cell *rollCell, row profile.Row) {
		row.N, row.Values, row.Squares = cell.N, []int64{cell.Value}, []float64{cell.Squares}
		w.Rows.Append(row)
		if r.grouped {
			w.Groups = append(w.Groups, cell.groups[:]...)
		}
	}
	slices.Sort(r.touched)
	for _, leaf := range r.touched {
		appendRow(&r.cells[leaf], profile.Row{})
		r.cells[leaf] = rollCell{}
	}
	l.Rows = r.touched
	w.Contexts, w.Exemplars, w.Head.Slot = nil, nil, r.divided.slot
	if folded := r.divided.fold(); folded.N > 0 {
		w.AddFolded(folded)
	}
	for key, cell := range r.divided.sorted() {
		appendRow(cell, profile.Row{Context: key.context, Slot: key.slot, Peer: profile.PeerID(key.peer)})
		l.Rows = append(l.Rows, key.leaf)
	}
	for _, peer := range w.Rows.Peer {
		l.Peers = append(l.Peers, uint32(peer))
	}
	w.Contexts = r.divided.contexts.All()
	w.Exemplars = profile.ChooseExemplars(r.exemplars)
	for i, e := range w.Exemplars {
		l.Exemplars = append(l.Exemplars, uint32(e.Stack))
		w.Exemplars[i].Context = r.divided.kept(e.Context)
	}
	r.touched, r.exemplars, r.divided = l.Rows, r.exemplars[:0], dividedCells{}
	return l
}

// flush writes what was added up once there is much of it. What is written twice
// is there once.
func (r *roller) flush(ctx context.Context) error {
	if r.commit.bytes < commitBytes {
		return nil
	}
	full := r.commit
	r.commit = r.tenant.newCommit()
	return r.store.commit(ctx, full)
}
