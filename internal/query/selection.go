package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// Selection is what a question is about.
type Selection struct {
	Select   spec.Selector // of series
	Task     string        // "": of all
	Kinds    []string      // of values, such as cpu; what several have is added up to one type
	From, To time.Time     // windows that begin in [From, To)
	Context  spec.Selector // of rows, by store.ContextLabels; nil: all
}

// source is what answers are made of.
type source interface {
	store.Windows
	Stale(ctx context.Context, tenant string) ([]store.Step, error)
}

// Asker asks a store for one tenant.
type Asker struct {
	Store  source
	Tenant string
	Now    func() time.Time // nil: time.Now
	// Agents tells of those that are known by other ways than their windows; nil:
	// nobody is.
	Agents func(Selection) []Agent
}

// raw is the query for what is selected, as it was cut.
func (s Selection) raw() store.Query {
	return store.Query{Level: store.Raw, Select: s.Select, Task: s.Task, Kinds: s.Kinds, From: s.From, To: s.To}
}

// Coverage says how much of what was asked for an answer holds.
type Coverage struct {
	Windows int
	Damaged int             // windows, or stretches of a series, that could not be read
	N       int64           // samples
	Value   int64           // of the kinds asked for, that they weigh
	Kinds   []store.KindSum // what each kind has of these, if several are asked for
	Pruned  int64           // of it, what lost its callers as threads were pruned
	Cost    profile.Cost    // of profiling what was selected
	CPU     time.Duration   // that it used, by the kernel's account
	Losses  []profile.Loss  // of what was selected
	Nodes   []NodeCoverage  // of all whose agents record everything, or should have
	Dropped []Span          // times whose windows, of the detail that the question needs, are kept no more
	// Of how many eligible instances tasks have recorded how many, where not all.
	Tasks []TaskCoverage
	// Overlapping are tasks that recorded the same service at the same time: what
	// several of them saw counts more than once.
	Overlapping []string
	// Doubtful are windows of which it is not known to their own length, and two
	// seconds, when they were: their agents' clocks were not known well. What was
	// known to be off was set right when it came.
	Doubtful int
	// Pushed counts the instances whose windows others than agents have pushed. PushedMore:
	// there may be more, since some windows do not name their instance.
	Pushed     int
	PushedMore bool
}

// MostOff is by how much the share of a function can be off at most, since threads
// were pruned.
func (c *Coverage) MostOff() float64 { return prune.Part(c.Pruned, c.Value) }

// TaskCoverage says of which instances a task has recorded some.
type TaskCoverage struct {
	Task      string
	Instances profile.Instances
}

// question is one that is being answered, and what is learnt on the way of how
// whole the answer is.
type question struct {
	Asker
	Selection
	bySeries bool      // windows of series are read where those of services would do
	stands   *standing // nil: not asked for yet
	coverage Coverage
	damage   store.Damage // of all that was asked for
	kinds    store.KindSums
	heads    heads
}

func (a Asker) question(s Selection) *question {
	return &question{Asker: a, Selection: s}
}

// merge adds up what is selected and begins in [from, to), in columns. only, if not nil,
// restricts it further.
func (q *question) merge(ctx context.Context, from, to time.Time, by string, only spec.Selector, g store.Grouping) (*store.Merged, error) {
	levels := q.levels(by)
	if q.bySeries {
		levels = ofSeries
	}
	parts, err := q.parts(ctx, from, to, levels)
	if err != nil {
		return nil, err
	}
	if err := q.noteDropped(ctx, parts); err != nil {
		return nil, err
	}
	for i := range parts {
		parts[i].Kinds = q.Selection.Kinds
		parts[i].Select = slices.Concat(only, parts[i].Select)
	}
	g.Where = q.Selection.Context
	m, err := q.Store.Merge(ctx, q.Tenant, parts, g)
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	q.heads.Absorb(&m.Summary)
	recount(m)
	q.damage.Add(m.Damaged)
	pruned := prunedCalls(m.Forest)
	for i := range m.Columns {
		column := &m.Columns[i]
		if m.Whole == nil { // else one window counts in many columns
			q.countWindows(column)
		}
		q.countLosses(column.Head.Losses)
		for _, kind := range column.Kinds {
			q.kinds.Of(kind.Kind).Add(kind.Sum)
		}
		for _, sum := range column.Sums {
			q.coverage.N += sum.N
			q.coverage.Value += sum.Value
			if pruned(sum.Call) {
				q.coverage.Pruned += sum.Value
			}
		}
	}
	if m.Whole != nil {
		q.countWindows(m.Whole)
		q.countLosses(m.Whole.Head.Losses)
	}
	m.Columns = slices.DeleteFunc(m.Columns, func(c store.Column) bool { return c.Windows == 0 && len(c.Sums) == 0 }) // all of it is damaged
	return m, nil
}

// readHeads reads the heads of what is selected in some parts.
func (q *question) readHeads(ctx context.Context, parts []store.Query, each func(store.Head) error) error {
	for i := range parts {
		parts[i].Kinds = q.Selection.Kinds
	}
	err := q.Store.Heads(ctx, q.Tenant, parts, func(h store.Head) error {
		q.heads.Add(h.Series, h.Head)
		return each(h)
	})
	var damaged *store.DamagedError
	if errors.As(err, &damaged) {
		q.damage.Add(damaged.Damage)
	} else if err != nil {
		return fmt.Errorf("read the heads of windows: %w", err)
	}
	return nil
}

// countWindows has the coverage tell of a column's windows.
func (q *question) countWindows(column *store.Column) {
	c := &q.coverage
	c.Windows += column.Windows
	c.Cost.Add(column.Head.Cost)
	c.CPU += column.Head.Exact.CPU
}

func (q *question) countLosses(losses []profile.Loss) {
	for _, l := range losses {
		switch {
		case l.Reason == profile.LossStoreDamage: // as if it were asked for as it was cut
			q.damage.Parts += int(l.N)
		case !l.Reason.OfWindows(): // those are told by machines, for all they run: see covered
			addLoss(&q.coverage.Losses, l)
		}
	}
}

// prunedCalls tells which calls of a forest are of stacks that pruning cut: what stands
// for threads, and what it calls.
func prunedCalls(f *profile.Forest) func(call int) bool {
	place := slices.IndexFunc(f.Places, func(p profile.Place) bool { return prune.IsMarker(p.Location) })
	if place < 0 {
		return func(int) bool { return false }
	}
	stands := func(call int) bool { return f.Calls[call].Caller >= 0 && f.Calls[call].Place == place }
	return func(call int) bool { return stands(call) || f.Calls[call].Caller >= 0 && stands(f.Calls[call].Caller) }
}

// noteDropped notes which of the parts that are asked were dropped.
func (q *question) noteDropped(ctx context.Context, parts []store.Query) (err error) {
	q.coverage.Dropped, err = q.droppedOf(ctx, parts, q.coverage.Dropped)
	return err
}

// droppedOf adds which of some parts were dropped.
func (q *question) droppedOf(ctx context.Context, parts []store.Query, all []Span) (_ []Span, err error) {
	s, err := q.standing(ctx)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		to := earlier(part.To, s.dropped[part.Level])
		if !part.From.Before(to) {
			continue
		}
		if n := len(all) - 1; n >= 0 && !all[n].To.Before(part.From) {
			all[n].To = later(all[n].To, to)
			continue
		}
		all = append(all, Span{part.From, to})
	}
	return all, nil
}

func addLoss(all *[]profile.Loss, l profile.Loss) {
	h := profile.Head{Losses: *all}
	h.AddLoss(l)
	*all = h.Losses
}

// Merge adds all that is selected up; nil where there is nothing.
func (a Asker) Merge(ctx context.Context, s Selection) (*profile.Grove, Coverage, error) {
	q := a.question(s)
	m, err := q.merge(ctx, s.From, s.To, "", nil, store.Grouping{})
	if err != nil {
		return nil, Coverage{}, err
	}
	c, err := q.covered(ctx)
	if err != nil || len(m.Columns) == 0 {
		return nil, c, err
	}
	g, err := grove(m, 0)
	if err == nil { // not from the first window to the last: between them there may be nothing
		g.Head.Duration = min(g.Head.Duration, cmp.Or(q.heads.Times.Covered(), g.Head.Duration))
	}
	return g, c, err
}

// Labels lists the labels of series that have windows, with their values. Its
// coverage counts no windows and no samples: none are read.
func (a Asker) Labels(ctx context.Context, s Selection) (map[string][]string, Coverage, error) {
	q := a.question(s)
	parts, err := q.parts(ctx, s.From, s.To, ofSeries)
	if err == nil {
		err = q.noteDropped(ctx, parts)
	}
	if err != nil {
		return nil, Coverage{}, err
	}
	values := map[string]map[string]bool{}
	q.damage, err = q.series(ctx, parts, func(labels profile.Labels) {
		for name, value := range labels {
			if values[name] == nil {
				values[name] = map[string]bool{}
			}
			values[name][value] = true
		}
	})
	if err != nil {
		return nil, Coverage{}, err
	}
	all := map[string][]string{}
	for name, set := range values {
		all[name] = slices.Sorted(maps.Keys(set))
	}
	c, err := q.covered(ctx)
	return all, c, err
}

// Kinds lists the value types that a selection has, whatever its own kinds. Its coverage does
// not count windows and samples.
func (a Asker) Kinds(ctx context.Context, s Selection) ([]profile.ValueType, Coverage, error) {
	q := a.question(s)
	parts, err := q.parts(ctx, s.From, s.To, q.levels(""))
	if err == nil {
		err = q.noteDropped(ctx, parts)
	}
	if err != nil {
		return nil, Coverage{}, err
	}
	types, err := q.Store.Types(ctx, q.Tenant, parts)
	var damaged *store.DamagedError
	if errors.As(err, &damaged) {
		q.damage.Add(damaged.Damage)
	} else if err != nil {
		return nil, Coverage{}, fmt.Errorf("list kinds: %w", err)
	}
	c, err := q.covered(ctx)
	return types, c, err
}

// values lists those that a label has in what is selected, "" for none, in order.
// Who merges all that is selected meets again what is damaged of it.
func (q *question) values(ctx context.Context, label string, from, to time.Time) ([]string, error) {
	parts, err := q.parts(ctx, from, to, q.levels(label))
	if err != nil {
		return nil, err
	}
	values := map[string]bool{}
	_, err = q.series(ctx, parts, func(labels profile.Labels) { values[labels[label]] = true })
	return slices.Sorted(maps.Keys(values)), err
}

// series gives those that have windows in some parts, some of them more than once,
// and tells what hides others.
func (q *question) series(ctx context.Context, parts []store.Query, give func(profile.Labels)) (damage store.Damage, err error) {
	for _, part := range parts {
		all, err := q.Store.Series(ctx, q.Tenant, part)
		var damaged *store.DamagedError
		switch {
		case errors.As(err, &damaged):
			damage.Add(damaged.Damage)
		case err != nil:
			return damage, fmt.Errorf("list series: %w", err)
		}
		for _, labels := range all {
			give(labels)
		}
	}
	return damage, nil
}
