// Package store is the contract of what keeps windows for good, and adds them up.
//
// A stack is known by its hash. The forest of a batch explains those that a
// store may not know; a store that misses one keeps nothing of the batch but its
// forest, and says which (UnknownError). What Put has returned for is there after
// any crash, exactly once, however often it was sent.
//
// What several engines must do alike is tested by storetest.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// Level is how far windows have been added up.
type Level uint8

// The levels, as Put and Query know them. A service's windows have no instance.
const (
	Raw Level = iota
	Series10m
	Series1h
	Service1m
	Service10m
	Service1h
	Service1d
)

// String is how users call a level; those of series and services are told apart.
func (l Level) String() string {
	return [...]string{Raw: "raw", Series10m: "10m of series", Series1h: "1h of series",
		Service1m: "1m", Service10m: "10m", Service1h: "1h", Service1d: "1d"}[l]
}

// Length is how much time a window of a level holds; 0: as it was cut.
func (l Level) Length() time.Duration {
	return [...]time.Duration{Raw: 0, Series10m: 10 * time.Minute, Series1h: time.Hour,
		Service1m: time.Minute, Service10m: 10 * time.Minute, Service1h: time.Hour, Service1d: 24 * time.Hour}[l]
}

// Below is the level that a level is added up from.
func (l Level) Below() Level {
	return [...]Level{Raw: Raw, Series10m: Raw, Series1h: Series10m, Service1m: Raw, Service10m: Service1m, Service1h: Service10m, Service1d: Service1h}[l]
}

// Services tells whether a level's windows are of services, and not of series.
func (l Level) Services() bool { return l >= Service1m }

// MarshalText writes a level as String does.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Level) UnmarshalText(text []byte) error {
	for _, level := range append([]Level{Raw}, RolledUp()...) {
		if level.String() == string(text) {
			*l = level
			return nil
		}
	}
	return fmt.Errorf("%q is no level", text)
}

// RolledUp lists the levels above the raw one, each behind the one below it.
func RolledUp() []Level {
	return []Level{Series10m, Series1h, Service1m, Service10m, Service1h, Service1d}
}

// Step is the time of one window of a level above the raw one.
type Step struct {
	Level Level
	Start time.Time
}

// Waits tells whether a step is added up from another one, and so after it.
func (s Step) Waits(below Step) bool {
	return below.Level == s.Level.Below() && below.Start.Truncate(s.Level.Length()).Equal(s.Start)
}

// Steps lists those that a time lies in, one for each level.
func Steps(at time.Time) (steps []Step) {
	for _, level := range RolledUp() {
		steps = append(steps, Step{level, at.Truncate(level.Length()).UTC()})
	}
	return steps
}

// Groups is in how many replicate groups values are kept above the raw level.
const Groups = 8

// Group is the group of a series.
func Group(series profile.Labels) int {
	h := fnv.New32a()
	h.Write([]byte(series.String())) // never fails
	return int(h.Sum32() % Groups)
}

// Instance is the instance of its service that a series is of: what runs programs
// of several names, or languages, is one. A unit is called the same on all nodes.
func Instance(series profile.Labels) string {
	name := cmp.Or(series["instance"], series["k8s.pod.uid"], series["container"], series["unit"])
	return strings.Join([]string{series[ServiceLabel], series["node"], name}, "\x00")
}

// ServiceLabel is the label of a series that names its service. Dictionaries
// and keys go by it; a series without it belongs to the service "".
const ServiceLabel = "service"

// Batch is windows under one table of stacks.
type Batch struct {
	Stacks  []profile.Hash  // rows point into it
	Forest  *profile.Forest // stacks that the store may not know; may be nil
	Windows []Window
}

// Window is a window in columns. Its key is the series, Head.Task, Head.Start
// and Run: of two with the same key the later one counts. Above the raw level it
// is of one kind of values, and Head.Duration is how much of its step was watched.
type Window struct {
	Of       int // as many windows were added up; 0: it is one as it was cut
	Series   profile.Labels
	Head     profile.Head // its Target is not looked at
	Run      profile.Run
	Scales   []int64 // values of each type are multiples of these
	Threads  []profile.Thread
	Contexts []profile.Context
	Rows     Rows
	// What a relay has added up names the windows that it contains, of the same task.
	// It begins with the first of them, and ends no earlier than the last begins. It
	// has one type, groups, and neither threads nor contexts.
	Contains []Part
}

// Part names a window that was added up into another one before it came.
type Part struct {
	Series profile.Labels
	Run    profile.Run
	After  time.Duration // how much later it began than the window that contains it
}

// Rows are columns; row i is the i-th of each. Thread, Context, Slot and Spread
// may be nil: all zero.
type Rows struct {
	Stack   []uint32
	Thread  []uint32 // of Threads, plus one
	Context []uint32 // of Contexts, plus one
	Slot    []uint32
	N       []int64
	Value   []int64 // all rows of the first type, then of the second ...
	// How much the weights of a row's samples differ. As windows are cut: the sum of
	// squared weights less value*value/n, in squared scales of the first type.
	Spread []int64
	// Or, of what was kept: the same in parts of value*value/n. Of a row engines may
	// round it to what other rows have that is near, by no more than a quarter.
	Excess []float32
	Groups []int64 // Groups a row: the values by group, where series of several were added up
}

// UnknownError lists stacks that windows name and nobody has explained. Nothing
// of the batch was kept but its forest.
type UnknownError struct{ Stacks []profile.Hash }

func (e *UnknownError) Error() string { return fmt.Sprintf("%d stacks are not known", len(e.Stacks)) }

// OverlapError lists, by their places, windows of a batch that were added up, and
// what they contain that is there already. Nothing of the batch was kept but its
// forest: without these parts it can come again.
type OverlapError struct{ Parts map[int][]int }

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%d windows contain what is there already", len(e.Parts))
}

// Damage is what could not be read, and was left out.
type Damage struct {
	Parts int // windows, or stretches of a series
	// Parts of what explains windows, by what they are of: whoever needs it, at
	// whatever time, tells of the same ones again.
	Tables map[string]int
}

// Count is how many parts there are, of all kinds.
func (d Damage) Count() int {
	count := d.Parts
	for _, parts := range d.Tables {
		count += parts
	}
	return count
}

// Add adds the damage of other windows of the same tenant.
func (d *Damage) Add(o Damage) {
	d.Parts += o.Parts
	if d.Tables == nil && len(o.Tables) > 0 {
		d.Tables = map[string]int{}
	}
	maps.Copy(d.Tables, o.Tables)
}

// Err is a DamagedError, if there is anything.
func (d Damage) Err() error {
	if d.Count() == 0 {
		return nil
	}
	return &DamagedError{d}
}

// DamagedError says that a call did all but what could not be read. What it gives
// beside the error is to be used.
type DamagedError struct{ Damage }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d parts of the store are damaged and were left out", e.Count())
}

// Errors that callers decide by.
var (
	ErrClosed = errors.New("the store is closed")
	ErrFull   = errors.New("the store cannot write") // nothing was kept; later it may
)

// Query chooses windows.
type Query struct {
	Level    Level
	Service  string                           // of this service alone; "": of all
	Match    func(series profile.Labels) bool // nil: all of them; labels are not to be changed
	Task     string                           // of this task alone, or of its events; "": of all
	From, To time.Time                        // windows that begin in [From, To); never before 1970
}

// TaskMatches tells whether a task is the one that is asked for, or one of its
// events, which are tasks of their own: page-faults of t is t/page-faults.
func TaskMatches(asked, task string) bool {
	rest, ok := strings.CutPrefix(task, asked)
	return ok && (asked == "" || rest == "" || rest[0] == '/')
}

// Grouping says in which columns of a merge a window's rows are added up.
type Grouping struct {
	// Key names the column of a window; nil: all go to one, named "".
	Key func(series profile.Labels, head *profile.Head) string
	// Thread, if not nil, names it by thread as well; what it gives is appended. A
	// window then counts in each column that it tells of, and once in Merged.Whole.
	Thread func(t profile.Thread) string
	// Slot, if not nil, does the same by when it was, where windows tell that: slot is
	// zero where they do not. It is not for columns that are by thread.
	Slot func(head *profile.Head, slot uint32) string
	// Look, if not nil, is shown each window instead, with its samples, and of how many
	// windows it was added up: nothing is added up, and there are no columns. Engines may
	// show several at once.
	Look func(series profile.Labels, head *profile.Head, n int64, of int)
	// Apart is of how many instances at most values are told for each, in columns of
	// whole windows; 0: of none.
	Apart int
}

// Merged is windows added up, in columns over one forest.
type Merged struct {
	Forest  *profile.Forest // each stack once; calls that a sum is of have their Hash
	Columns []Column        // in the order of their keys
	// Whole, where columns are by thread or slot, is all windows, with no sums: what is of
	// none of these (losses, cost, idle and watched times) is told by it alone.
	Whole   *Column
	Damaged Damage
}

// Divides tells whether windows are divided among columns.
func (g *Grouping) Divides() bool { return g.Thread != nil || g.Slot != nil }

// Divided has columns, among which windows are divided, be those that tell of something,
// beside all windows. A thread may be listed by windows that have none of its samples.
func (m *Merged) Divided(whole Column) {
	m.Whole = &whole
	m.Columns = slices.DeleteFunc(m.Columns, func(c Column) bool { return len(c.Sums) == 0 && c.Head.Exact.CPU == 0 })
}

// Column is a group of windows added up. Head is merged as profile.Merge does:
// exact times, idle and watched times and losses are sums. One of no windows has
// nothing but losses of profile.LossStoreDamage. One by thread or slot has samples, or
// exact times.
type Column struct {
	Key     string
	Head    profile.Head
	Windows int
	Sums    []Sum // one per stack that has samples, in the order of the forest
	// Instances are those that have values, in the order of their names. Nil: nobody
	// asked, there are more, or some windows are added up of what may be several.
	Instances []OfInstance
}

// OfInstance is what one instance has of a column.
type OfInstance struct {
	Name   string       // see Instance
	Values []StackValue // of the stacks that it was on, of some more than once
}

// StackValue is a value of a stack, as Sum has it.
type StackValue struct {
	Call  int // of the forest
	Value int64
}

// Sum is what was sampled on one stack.
type Sum struct {
	Call    int           // of the forest
	N       int64         // samples
	Value   int64         // of the type asked for
	Squares float64       // of weights; those of a type that is not a window's first count as if alike in a row
	Groups  [Groups]int64 // at the raw level by the hash of the series
}

// Store keeps windows. It is safe for concurrent use. Tenants know nothing of
// each other; what is asked of a tenant that never wrote is empty.
type Store interface {
	// Put keeps a batch at a level and returns when it is durable. Where it returns
	// another error than those above, it may be: what is sent again is there once. A
	// window that one of those there contains is there already, and not kept again.
	Put(ctx context.Context, tenant string, level Level, b *Batch) error
	// Series lists the series that have windows, sorted by their String: those it does
	// not read. What hides others it tells by a DamagedError, beside the list.
	Series(ctx context.Context, tenant string, q Query) ([]profile.Labels, error)
	// Merge adds up the values of one kind in all parts of a selection, which are
	// not to overlap; windows without it are left out.
	Merge(ctx context.Context, tenant string, parts []Query, kind string, g Grouping) (*Merged, error)
	// Scan gives windows one by one, by series and time, with the stacks they
	// name. It ends at the first error of each, which it returns. What is damaged
	// until it ends it leaves out, and says so by a DamagedError, beside that one.
	Scan(ctx context.Context, tenant string, q Query, each func(w *profile.Window, run profile.Run) error) error
	// Stale lists the steps, by level and time, whose windows lack some of what was
	// put: of these times a lower level is to be asked. They stay listed over crashes.
	Stale(ctx context.Context, tenant string) ([]Step, error)
	// Roll adds a step up from the level below, and replaces what there was of it.
	// What is put meanwhile may be in, or the step is stale again. While something of it
	// is stale at the level below nothing is done, and it stays stale. Where the level
	// below has been dropped, what there is stays. What is damaged it leaves out, and
	// says so by a DamagedError: the step is added up all the same, and what was has a
	// loss of profile.LossStoreDamage, or stays where there was more of it.
	Roll(ctx context.Context, tenant string, step Step) error
	// Tenants lists all that ever wrote.
	Tenants(ctx context.Context) ([]string, error)
	// Unnamed lists places in files, which have a build-id, that nobody has named.
	Unnamed(ctx context.Context, tenant string) ([]profile.Place, error)
	// Name keeps names that came late; they hold for windows that are there already.
	Name(ctx context.Context, tenant string, places []profile.Place) error
	// Drop forgets windows of a level that begin before a time, by whole days.
	Drop(ctx context.Context, tenant string, level Level, before time.Time) error
	// Tidy forgets series of which no window is left at any level: they count against
	// no quota. It may forget what explains the stacks of services of which none is,
	// and asks for it again. What is put meanwhile is there as ever.
	Tidy(ctx context.Context, tenant string) error
	// Dropped tells before when windows of each level were dropped.
	Dropped(ctx context.Context, tenant string) (map[Level]time.Time, error)
	// Usage tells what a tenant takes. Put and Roll give a QuotaError once it is as
	// much as the tenant may have (Quota.Full): so it is exceeded by one commit at
	// most. Nothing is dropped to make room but by Drop.
	Usage(ctx context.Context, tenant string) (*Usage, error)
	Close() error
}

// OpenRows gives rows as a profile.Window has them; stacks are those of each row.
func (w *Window) OpenRows(stacks []profile.StackID) []profile.Row {
	r := &w.Rows
	rows := make([]profile.Row, len(stacks))
	at := func(column []uint32, i int) uint32 {
		if column == nil {
			return 0
		}
		return column[i]
	}
	for i := range rows {
		row := profile.Row{Stack: stacks[i], Thread: profile.ThreadID(at(r.Thread, i)), Context: profile.ContextID(at(r.Context, i)),
			Slot: at(r.Slot, i), N: r.N[i], Values: make([]int64, len(w.Scales))}
		for t, scale := range w.Scales {
			row.Values[t] = r.Value[t*len(rows)+i] * scale
		}
		if len(w.Scales) > 0 && row.N > 0 {
			value, scale := float64(row.Values[0]), float64(w.Scales[0])
			row.Squares = value * value / float64(row.N)
			if r.Spread != nil {
				row.Squares += float64(r.Spread[i]) * scale * scale
			}
			if r.Excess != nil {
				row.Squares *= 1 + float64(r.Excess[i])
			}
		}
		rows[i] = row
	}
	return rows
}

// CommonScale is the largest that values of two scales are both multiples of; 0 is
// that of no values.
func CommonScale(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}
