package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// Windows stores and reads windows.
type Windows interface {
	// Put stores a batch at a level and returns when it is durable. After an error other
	// than UnknownError, OverlapError and QuotaError, it may or may not be stored, and can be
	// sent again. A window that is part of a stored merged window counts as stored.
	Put(ctx context.Context, tenant string, level Level, b *Batch) error
	// Series lists the series that have windows, sorted by their String.
	Series(ctx context.Context, tenant string, q Query) ([]profile.Labels, error)
	// Merge adds up the values of the kinds that all parts of a selection ask for. The parts
	// must not overlap, and name the same kinds, one at least.
	Merge(ctx context.Context, tenant string, parts []Query, g Grouping) (*Merged, error)
	// Heads calls each for the head of every window of some parts, in any order, one at a
	// time. It stops at the first error of each and returns it.
	Heads(ctx context.Context, tenant string, parts []Query, each func(h Head) error) error
	// Types lists the value types that windows have in any of some parts, sorted by kind. A
	// period or a base that differs between windows is cleared.
	Types(ctx context.Context, tenant string, parts []Query) ([]profile.ValueType, error)
	// Scan calls each for every window, by series and time. It stops at the first error of
	// each and returns it.
	Scan(ctx context.Context, tenant string, q Query, each func(w *profile.Window, run profile.Run) error) error
	// Dropped returns the time before which windows of each level were dropped.
	Dropped(ctx context.Context, tenant string) (map[Level]time.Time, error)
}

// Query chooses windows.
type Query struct {
	Level    Level
	Select   spec.Selector // of series
	Task     string        // only this task and its events; "": all
	Kinds    []string      // only windows that have values of one of these; nil: all
	From, To time.Time     // windows that begin in [From, To); never before 1970
}

// Measures reports whether the query asks for values of a kind.
func (q *Query) Measures(kind string) bool { return q.Kinds == nil || slices.Contains(q.Kinds, kind) }

// TaskMatches reports whether a task is the requested one or one of its events, which are
// tasks of their own: the page faults of t are t/page-faults.
func TaskMatches(asked, task string) bool {
	rest, ok := strings.CutPrefix(task, asked)
	return ok && (asked == "" || rest == "" || rest[0] == '/')
}

// Head describes a window, without its rows.
type Head struct {
	Series profile.Labels // not to be changed
	Head   *profile.Head  // valid during the call only; it has the types that the query asks for
	N      int64          // number of samples
	Of     int            // number of windows that were merged into it
}

// Grouping divides what is merged into columns.
type Grouping struct {
	// By lists what columns are told apart by. Column.By has the values.
	By []Dimension
	// Step, if not zero, groups windows by time as well: by the step that their middle lies
	// in. Steps follow each other from Start on.
	Start time.Time
	Step  time.Duration
	Slots Slots // of the dimension BySlot
	// Where, if not empty, leaves out rows whose contexts do not match; see ContextLabels.
	Where spec.Selector
	// MaxInstances is the largest number of instances whose values columns list one by one;
	// 0: columns do not list instances.
	MaxInstances int
}

// Dimension is what columns are told apart by: one of the following, ByLabel or ByContext.
type Dimension string

const (
	ByKind   Dimension = "kind"   // of values
	ByThread Dimension = "thread" // the name of the thread; "": none
	BySlot   Dimension = "slot"   // the part of a period, see Slots.Part; "": unknown
)

// labelDimension precedes the name in the dimension of a label.
const labelDimension = "label "

// ByLabel is the dimension of the values of a label of series.
func ByLabel(name string) Dimension { return Dimension(labelDimension + name) }

// Label returns the name of the label that ByLabel got.
func (d Dimension) Label() (name string, ok bool) {
	return strings.CutPrefix(string(d), labelDimension)
}

// contextDimension precedes the name in the dimension of a part of contexts.
const contextDimension = "context "

// ByContext is the dimension of a part of contexts, by its name in ContextLabels.
func ByContext(part string) Dimension { return Dimension(contextDimension + part) }

// Context returns the part of contexts that ByContext got.
func (d Dimension) Context() (part string, ok bool) {
	return strings.CutPrefix(string(d), contextDimension)
}

// Has reports whether columns are told apart by a dimension.
func (g *Grouping) Has(d Dimension) bool { return slices.Contains(g.By, d) }

// DividesRows reports whether the rows of one window go to several columns, or only some of
// them to any.
func (g *Grouping) DividesRows() bool { return g.Has(ByThread) || g.Has(BySlot) || g.ReadsContexts() }

// ReadsContexts reports whether the contexts of rows matter.
func (g *Grouping) ReadsContexts() bool {
	return len(g.Where) > 0 || slices.ContainsFunc(g.By, func(d Dimension) bool { return strings.HasPrefix(string(d), contextDimension) })
}

// Divides reports whether a window can be in several columns.
func (g *Grouping) Divides() bool { return g.DividesRows() || g.Has(ByKind) }

// StepOf returns the step that a window lies in by its middle: agents cut some moments late,
// and their clocks may be a second off. It is zero if columns are not told apart by time.
func (g *Grouping) StepOf(h *profile.Head) time.Time {
	if g.Step == 0 {
		return time.Time{}
	}
	return g.Start.Add(floor(h.Start.Add(h.Duration/2).Sub(g.Start), g.Step))
}

// floor rounds down to a multiple, below zero too.
func floor(d, multiple time.Duration) time.Duration {
	down := d.Truncate(multiple)
	if down > d {
		down -= multiple
	}
	return down
}

// Slots divides periods, which follow each other from Start on, into equal parts.
type Slots struct {
	Start  time.Time
	Period time.Duration
	Parts  int
}

// Part returns the part of a period that a slot of a window lies in, by its middle: "0" and
// so on. The period is the one that the window's first slot begins in: windows may begin some
// moments too early, and what reaches beyond the period belongs to its last part. It is "" if
// the slot is not known, or if slots are longer than parts.
func (s Slots) Part(h *profile.Head, slot uint32) string {
	if slot == 0 || h.Slot == 0 || s.Parts <= 0 || h.Slot > s.Period/time.Duration(s.Parts) {
		return ""
	}
	begin := s.Start.Add(floor(h.SlotStart(1).Sub(s.Start), s.Period))
	part := h.SlotStart(slot).Add(h.Slot/2).Sub(begin) * time.Duration(s.Parts) / s.Period
	return strconv.Itoa(int(min(max(part, 0), time.Duration(s.Parts-1))))
}

// Merged is the result of a merge: columns over one forest.
type Merged struct {
	Forest  *profile.Forest // each stack once; calls that have sums have their Hash
	Columns []Column        // sorted by Start and By
	// Whole has the head of all windows and no sums, if a window can be in several columns.
	// Only it has losses, cost, idle and watched times: they belong to no thread, slot or kind.
	Whole   *Column
	Summary Summary // of the heads of all windows
	Damaged Damage
}

// Sort sorts columns by Start and By.
func (m *Merged) Sort() {
	slices.SortFunc(m.Columns, func(a, b Column) int {
		return cmp.Or(a.Start.Compare(b.Start), slices.Compare(a.By, b.By))
	})
}

// Divided sets Whole and removes columns that have neither samples nor exact time. Windows
// may list threads that they have no samples of.
func (m *Merged) Divided(whole Column) {
	m.Whole = &whole
	m.Columns = slices.DeleteFunc(m.Columns, func(c Column) bool { return len(c.Sums) == 0 && c.Head.Exact.Empty() })
}

// Column is the sum of a group of windows. Head is merged as by profile.Merge: exact, idle
// and watched times and losses are sums. A column of no windows has only losses of
// profile.LossStoreDamage.
type Column struct {
	By      []string  // values of Grouping.By
	Start   time.Time // of the step; zero if columns are not told apart by time
	Head    profile.Head
	Windows int
	Sums    []Sum // one per stack that has samples, in the order of the forest
	// Kinds has what each kind contributed, sorted by kind, if several were asked for.
	Kinds []KindSum
	// Instances lists the values of each instance, sorted by name. It is nil if the grouping
	// did not ask for it, if there are more than Grouping.MaxInstances, or if some windows
	// were merged from several instances.
	Instances []OfInstance
}

// KindSum is the sum of one kind of values.
type KindSum struct {
	Kind string
	profile.Sum
}

// KindSums collects the sums of kinds. The zero value is ready to use.
type KindSums map[string]*profile.Sum

// Of finds or adds the sum of a kind.
func (k *KindSums) Of(kind string) *profile.Sum {
	sum := (*k)[kind]
	if sum == nil {
		if *k == nil {
			*k = KindSums{}
		}
		sum = &profile.Sum{}
		(*k)[kind] = sum
	}
	return sum
}

// Absorb adds the sums of others.
func (k *KindSums) Absorb(others KindSums) {
	for kind, sum := range others {
		k.Of(kind).Add(*sum)
	}
}

// Sorted lists the sums by kind.
func (k KindSums) Sorted() (all []KindSum) {
	for _, kind := range slices.Sorted(maps.Keys(k)) {
		all = append(all, KindSum{kind, *k[kind]})
	}
	return all
}

// OfInstance has the values of one instance in a column.
type OfInstance struct {
	Name   string       // see Instance
	Values []StackValue // a stack may be listed more than once
}

// StackValue is the value of a stack.
type StackValue struct {
	Call  int // index into the forest's calls
	Value int64
}

// AbsorbHead merges the head of another window into one: as profile.Head.Absorb, but each has
// the types that a query asked for, by kind.
func AbsorbHead(h, o *profile.Head) {
	types := h.Types
	h.Types = nil
	h.Absorb(o)
	h.Types = types
	for _, t := range o.Types {
		AddType(h, t)
	}
}

// AddType adds a value type to a head, or absorbs it if the head has one of its kind.
func AddType(h *profile.Head, t profile.ValueType) {
	for i := range h.Types {
		if h.Types[i].Kind == t.Kind {
			h.Types[i].Absorb(t)
			return
		}
	}
	h.Types = append(h.Types, t)
}

// Sum is what was sampled on one stack.
type Sum struct {
	Call        int           // index into the forest's calls
	profile.Sum               // of the requested types; squares that are not known count as profile.Sum.Known
	Groups      [Groups]int64 // the value by replicate group, see Group
}

// Types collects value types by kind. The zero value is ready to use.
type Types struct{ of map[string]profile.ValueType }

// Add adds the type of a window.
func (t *Types) Add(v profile.ValueType) {
	if t.of == nil {
		t.of = map[string]profile.ValueType{}
	}
	was, ok := t.of[v.Kind]
	if !ok {
		t.of[v.Kind] = v
		return
	}
	was.Absorb(v)
	t.of[v.Kind] = was
}

// Sorted lists the types by kind.
func (t *Types) Sorted() []profile.ValueType {
	all := slices.Collect(maps.Values(t.of))
	slices.SortFunc(all, func(a, b profile.ValueType) int { return strings.Compare(a.Kind, b.Kind) })
	return all
}
