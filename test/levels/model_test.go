package levels

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/store"
)

// The model answers questions by reading all rows one by one, as they were sampled. It knows
// nothing of relays, of levels and of how anything is stored.

// answer is what columns add up to.
type answer struct {
	columns map[string]*column
	whole   totals // of all windows
}

// column is what one column adds up to.
type column struct {
	totals
	sums      map[string]*sum // by stack
	kinds     map[string]*sum
	instances map[string]float64
	seen      map[*observed]bool // windows that have rows or threads of it, or might have
	pruned    bool               // agents have pruned some of these
	levels    bool
	weighted  bool // some of the variances follow from weights
}

// totals are what is known of windows beside their rows.
type totals struct {
	windows int
	exact   profile.Exact
	idle    time.Duration
	watched time.Duration
	cost    profile.Cost
	losses  map[profile.LossReason]profile.Loss
}

// sum is what was sampled on one stack.
type sum struct {
	n              int64
	value, squares float64
	groups         [store.Groups]float64
}

func (s *sum) add(o sum, group int) {
	s.n, s.value, s.squares = s.n+o.n, s.value+o.value, s.squares+o.squares
	s.groups[group] += o.value
}

func (t *totals) add(h *profile.Head) {
	if t.losses == nil {
		t.losses = map[profile.LossReason]profile.Loss{}
	}
	t.windows++
	t.exact.Add(h.Exact)
	t.idle, t.watched = t.idle+h.Idle, t.watched+h.Watched
	t.cost.Add(h.Cost)
	for _, l := range h.Losses {
		all := t.losses[l.Reason]
		t.losses[l.Reason] = profile.Loss{N: all.N + l.N, Value: all.Value + l.Value}
	}
}

// group identifies windows that levels are averaged over: those of a column, whatever
// their rows are divided by.
type group struct{ start, by string }

// covering identifies a minute of a series, or the part of it that is in a step.
type covering struct {
	series, task, kind, step string
	minute                   int64
}

// model answers one question.
type model struct {
	ask     *ask
	covered map[covering]float64
	minutes map[group]map[int64]bool
	answer  answer
}

// answer adds up what is asked for.
func (w *world) answer(a *ask) *answer {
	m := &model{ask: a, covered: map[covering]float64{}, minutes: map[group]map[int64]bool{}, answer: answer{columns: map[string]*column{}}}
	var chosen []*observed
	for i := range w.windows {
		if o := &w.windows[i]; a.chooses(o) {
			chosen = append(chosen, o)
		}
	}
	for _, o := range chosen {
		m.cover(o)
	}
	for _, o := range chosen {
		m.add(o)
	}
	return &m.answer
}

// minutesOf lists the minutes that a window counts in: those that it begins in and, if it is
// longer, those that it reaches the end of.
func minutesOf(o *observed) (list []int64) {
	list = []int64{o.Start.Unix() / 60}
	for end := list[0] + 2; !o.Start.Add(o.Duration).Before(time.Unix(60*end, 0)); end++ {
		list = append(list, end-1)
	}
	return list
}

// cover notes what a window covers of the minutes of its series.
func (m *model) cover(o *observed) {
	for _, t := range o.Types {
		if t.Temporality != profile.Level || !slices.Contains(m.ask.kinds, t.Kind) {
			continue
		}
		of := m.groupOf(o, t.Kind)
		if m.minutes[of] == nil {
			m.minutes[of] = map[int64]bool{}
		}
		list := minutesOf(o)
		for _, minute := range list {
			m.covered[m.covering(o, t.Kind, minute)] += o.Duration.Seconds() / float64(len(list))
			m.minutes[of][minute] = true
		}
	}
}

func (m *model) covering(o *observed, kind string, minute int64) covering {
	return covering{o.series, o.Task, kind, m.stepOf(o), minute}
}

// stepOf returns the start of the step that the middle of a window is in.
func (m *model) stepOf(o *observed) string {
	if m.ask.step == 0 {
		return ""
	}
	day := begin.Truncate(24 * time.Hour)
	return day.Add(o.Start.Add(o.Duration / 2).Sub(day).Truncate(m.ask.step)).String()
}

func (m *model) groupOf(o *observed, kind string) group {
	var by []string
	for _, d := range m.ask.by {
		if label, ok := d.Label(); ok {
			by = append(by, o.Target[label])
		} else if d == store.ByKind {
			by = append(by, kind)
		}
	}
	return group{m.stepOf(o), fmt.Sprintf("%q", by)}
}

// weight returns what a value of a window counts: a level is averaged over what is covered of
// each minute, and then over minutes.
func (m *model) weight(o *observed, t profile.ValueType) (weight float64) {
	if t.Temporality != profile.Level {
		return 1
	}
	list := minutesOf(o)
	for _, minute := range list {
		weight += o.Duration.Seconds() / float64(len(list)) / m.covered[m.covering(o, t.Kind, minute)]
	}
	return weight / float64(len(m.minutes[m.groupOf(o, t.Kind)]))
}

// add adds a window.
func (m *model) add(o *observed) {
	m.answer.whole.add(&o.Head)
	if !m.ask.divides() {
		m.column(o, profile.Row{}, "").add(&o.Head)
	}
	for i, t := range o.Types {
		if !slices.Contains(m.ask.kinds, t.Kind) {
			continue
		}
		if !m.ask.dividesRows() {
			m.column(o, profile.Row{}, t.Kind).seen[o] = true
		}
		weight := m.weight(o, t)
		for _, row := range o.Rows.All() {
			if !m.ask.where.Matches(store.ContextLabels(o.Context(row.Context))) {
				continue
			}
			c, stack := m.column(o, row, t.Kind), o.stacks[row.Stack]
			s := sum{n: row.N, value: weight * float64(row.Values[i]), squares: weight * weight * row.Squares[i]}
			at(c.sums, stack).add(s, o.group)
			at(c.kinds, t.Kind).add(s, o.group)
			c.instances[store.Instance(o.Target)] += s.value
			c.seen[o] = true
			c.pruned = c.pruned || o.Target[store.ServiceLabel] == pruned
			c.levels = c.levels || t.Temporality == profile.Level
			c.weighted = c.weighted || t.Variance == profile.FromWeights
		}
	}
	m.addThreads(o)
}

// addThreads adds what threads have used by the kernel's account: once, or for each kind.
func (m *model) addThreads(o *observed) {
	if !m.ask.has(store.ByThread) || m.ask.readsContexts() {
		return
	}
	for _, t := range o.Types {
		if !slices.Contains(m.ask.kinds, t.Kind) {
			continue
		}
		for id, thread := range o.Threads {
			c := m.column(o, profile.Row{Thread: profile.ThreadID(id + 1)}, t.Kind)
			c.exact.Add(thread.Exact)
			c.seen[o] = true
		}
		if !m.ask.has(store.ByKind) {
			return
		}
	}
}

func at(sums map[string]*sum, key string) *sum {
	if sums[key] == nil {
		sums[key] = &sum{}
	}
	return sums[key]
}

// column finds or makes the column of a row.
func (m *model) column(o *observed, row profile.Row, kind string) *column {
	var by []string
	for _, d := range m.ask.by {
		label, ofSeries := d.Label()
		part, ofContext := d.Context()
		value := ""
		switch {
		case ofSeries:
			value = o.Target[label]
		case ofContext:
			value = store.ContextLabels(o.Context(row.Context))[part]
		case d == store.ByKind:
			value = kind
		case d == store.ByThread:
			value = o.Thread(row.Thread).Name
		case d == store.BySlot:
			value = m.ask.partOf(o, row.Slot)
		}
		by = append(by, value)
	}
	key := columnKey(m.stepOf(o), by)
	c := m.answer.columns[key]
	if c == nil {
		c = &column{sums: map[string]*sum{}, kinds: map[string]*sum{}, instances: map[string]float64{}, seen: map[*observed]bool{}}
		m.answer.columns[key] = c
	}
	return c
}

func columnKey(step string, by []string) string { return fmt.Sprintf("%s %q", step, by) }

// partOf returns the part of its period that the middle of a slot is in. Slots follow each other
// from the multiple of their length on that the window begins next to; those behind the period
// that the first of them is in count for its end.
func (a *ask) partOf(o *observed, slot uint32) string {
	part := a.period / time.Duration(max(a.parts, 1))
	if slot == 0 || o.Slot == 0 || o.Slot > part {
		return ""
	}
	first := o.Start.Add(o.Slot / 2).Truncate(o.Slot)
	middle := first.Add(time.Duration(slot-1)*o.Slot + o.Slot/2).Sub(first.Truncate(a.period))
	return strconv.Itoa(min(int(middle/part), a.parts-1))
}

// stackOf lists the functions of a stack, leaf first, and how it ended.
func stackOf(w *profile.Window, id profile.StackID) (functions []string) {
	for _, l := range w.Stacks[id].Locations {
		for _, f := range w.Frames(l) {
			functions = append(functions, f.Function)
		}
	}
	return append(functions, w.Stacks[id].End.String())
}

// stackIn does the same for a call of a forest.
func stackIn(f *profile.Forest, call int) (functions []string) {
	places, end := f.Stack(call)
	for _, place := range places {
		for _, frame := range f.Places[place].Frames() {
			functions = append(functions, frame.Function)
		}
	}
	return append(functions, end.String())
}

// cut reports whether pruning has cut a stack.
func cut(stack string) bool { return strings.Contains(stack, prune.Name) }

// traced is an exemplar, with all that it refers to.
type traced struct {
	profile.Exemplar
	stack   string
	context profile.Context
	at      time.Time
}

// tracedIn lists the exemplars of a window.
func tracedIn(w *profile.Window) (list []traced) {
	for _, e := range w.Exemplars {
		x := traced{e, strings.Join(stackOf(w, e.Stack), ";"), w.Context(e.Context), w.Start.Add(e.Time)}
		list = append(list, x)
	}
	return list
}

// chosenOf lists the exemplars that one window of all would have, sorted.
func chosenOf(all []traced) (list []string) {
	exemplars := make([]profile.Exemplar, len(all))
	for i, x := range all {
		exemplars[i] = profile.Exemplar{Trace: x.Trace, Span: x.Span, Value: x.Value, Stack: profile.StackID(i)}
	}
	for _, e := range profile.ChooseExemplars(exemplars) {
		x := all[e.Stack]
		list = append(list, fmt.Sprint(x.Trace, " ", x.Span, " ", x.Value, " ", x.context, " ", x.at.UTC(), " ", x.stack))
	}
	slices.SortFunc(list, cmp.Compare[string])
	return list
}
