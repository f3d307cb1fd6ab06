// Package store is the contract of engines that store windows durably and merge them.
//
// Stacks are identified by hash. A batch comes with a forest that describes the stacks the
// store may not know. If the store is missing one, it stores only the forest and returns the
// missing hashes (UnknownError). Once Put has returned, a window survives any crash, and is
// stored exactly once however often it is sent.
//
// storetest is one test suite for all engines.
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

// Level is how far windows are rolled up.
type Level uint8

// The levels. Windows of services do not name an instance.
const (
	Raw Level = iota
	Series10m
	Series1h
	Service1m
	Service10m
	Service1h
	Service1d
)

// String returns the name that users see.
func (l Level) String() string {
	return [...]string{Raw: "raw", Series10m: "10m of series", Series1h: "1h of series",
		Service1m: "1m", Service10m: "10m", Service1h: "1h", Service1d: "1d"}[l]
}

// Length is the time that a window of the level covers; 0 at the raw level, where windows
// are as long as they were cut.
func (l Level) Length() time.Duration {
	return [...]time.Duration{Raw: 0, Series10m: 10 * time.Minute, Series1h: time.Hour,
		Service1m: time.Minute, Service10m: 10 * time.Minute, Service1h: time.Hour, Service1d: 24 * time.Hour}[l]
}

// Below is the level that a level is rolled up from.
func (l Level) Below() Level {
	return [...]Level{Raw: Raw, Series10m: Raw, Series1h: Series10m, Service1m: Raw, Service10m: Service1m, Service1h: Service10m, Service1d: Service1h}[l]
}

// Services reports whether windows of the level are of services rather than of series.
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

// RolledUp lists the levels above the raw one. Each follows the one that it is rolled up from.
func RolledUp() []Level {
	return []Level{Series10m, Series1h, Service1m, Service10m, Service1h, Service1d}
}

// Step is the span of one rolled-up window.
type Step struct {
	Level Level
	Start time.Time
}

// Waits reports whether the step is rolled up from another one, which has to be rolled up
// first.
func (s Step) Waits(below Step) bool {
	return below.Level == s.Level.Below() && below.Start.Truncate(s.Level.Length()).Equal(s.Start)
}

// Steps lists the steps that contain a time, one for each level.
func Steps(at time.Time) (steps []Step) {
	for _, level := range RolledUp() {
		steps = append(steps, Step{level, at.Truncate(level.Length()).UTC()})
	}
	return steps
}

// Groups is the number of replicate groups that rolled-up values are stored in, for
// jackknife intervals over instances.
const Groups = 8

// Group returns the replicate group of a series.
func Group(series profile.Labels) int {
	h := fnv.New32a()
	h.Write([]byte(series.String())) // never fails
	return int(h.Sum32() % Groups)
}

// Instance identifies the instance of its service that a series belongs to. Programs with
// several names or languages are one instance. The node is part of the identity, because a
// unit has the same name on all nodes.
func Instance(series profile.Labels) string {
	name := cmp.Or(series["instance"], series["k8s.pod.uid"], series["container"], series["unit"])
	return strings.Join([]string{series[ServiceLabel], series["node"], name}, "\x00")
}

// ServiceLabel is the label that names the service of a series. Dictionaries and keys are
// divided by it. A series without it belongs to the service "".
const ServiceLabel = "service"

// Batch is windows that share one table of stacks.
type Batch struct {
	Stacks  []profile.Hash  // rows index into it
	Forest  *profile.Forest // describes stacks that the store may not know; may be nil
	Windows []Window
}

// Window is a window in columns. Its key is the series, Head.Task, Head.Kind, Head.Start and
// Run; a later window with the same key replaces it. Above the raw level it has one value
// type, and Head.Duration is the part of its step that was watched.
type Window struct {
	Of       int // number of windows that were merged into it; 0: it is as it was cut
	Series   profile.Labels
	Head     profile.Head // its Target is ignored
	Run      profile.Run
	Scales   []int64 // the values of each type are multiples of these
	Threads  []profile.Thread
	Contexts []profile.Context
	// Minutes that levels were observed in, of a rolled-up window: its values are sums over
	// these minutes. Nil for deltas, and at the raw level.
	Minutes   Minutes
	Exemplars []profile.Exemplar // their stacks index into Batch.Stacks
	Rows      profile.Rows       // their stacks, and those of peers, index into Batch.Stacks; an engine may round squares by up to a quarter of profile.Alike
	Groups    []int64            // Groups values for each row: by replicate group, where several series were merged
	// A window that a relay merged lists the windows that it contains, all of the same task
	// and kind. It begins with the first of them, and ends no earlier than the last begins.
	// It has one value type, groups, and neither threads nor contexts.
	Contains []Part
}

// Part identifies a window that a relay merged into another one.
type Part struct {
	Series profile.Labels
	Run    profile.Run
	After  time.Duration // from the start of the window that contains it
}

// UnknownError lists stacks that windows refer to and the store does not know. Only the
// forest of the batch was stored.
type UnknownError struct{ Stacks []profile.Hash }

func (e *UnknownError) Error() string { return fmt.Sprintf("%d stacks are unknown", len(e.Stacks)) }

// OverlapError lists merged windows of a batch that contain parts which are stored already,
// by their indexes. Only the forest of the batch was stored. The sender can send it again
// without these parts.
type OverlapError struct{ Parts map[int][]int }

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%d windows contain windows that are stored already", len(e.Parts))
}

// Damage counts what could not be read and was left out.
type Damage struct {
	Parts int // windows, or stretches of a series
	// Tables counts damaged parts of stacks and names, by table. Every call that needs the
	// same table counts them again.
	Tables map[string]int
}

// Count returns the number of damaged parts of all kinds.
func (d Damage) Count() int {
	count := d.Parts
	for _, parts := range d.Tables {
		count += parts
	}
	return count
}

// Add merges the damage of another call for the same tenant.
func (d *Damage) Add(o Damage) {
	d.Parts += o.Parts
	if d.Tables == nil && len(o.Tables) > 0 {
		d.Tables = map[string]int{}
	}
	maps.Copy(d.Tables, o.Tables)
}

// Err returns a DamagedError, or nil if nothing is damaged.
func (d Damage) Err() error {
	if d.Count() == 0 {
		return nil
	}
	return &DamagedError{d}
}

// DamagedError means that a call did everything except for what could not be read. The
// results that come with it are valid.
type DamagedError struct{ Damage }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d parts of the store are damaged and were left out", e.Count())
}

// Errors that callers decide by.
var (
	ErrClosed = errors.New("the store is closed")
	ErrFull   = errors.New("the store cannot write") // nothing was stored; a retry may succeed
)

// Query chooses windows.
type Query struct {
	Level    Level
	Service  string                           // only this service; "": all
	Match    func(series profile.Labels) bool // nil: all series; it must not change the labels
	Task     string                           // only this task and its events; "": all
	From, To time.Time                        // windows that begin in [From, To); never before 1970
}

// TaskMatches reports whether a task is the requested one or one of its events, which are
// tasks of their own: the page faults of t are t/page-faults.
func TaskMatches(asked, task string) bool {
	rest, ok := strings.CutPrefix(task, asked)
	return ok && (asked == "" || rest == "" || rest[0] == '/')
}

// Grouping selects the column that a window's rows are added to.
type Grouping struct {
	// Key returns the column of a window; nil: one column, named "".
	Key func(series profile.Labels, head *profile.Head) string
	// Thread, if not nil, groups rows by thread as well: its result is appended to the key.
	// A window then counts in each column that it has rows or threads of, and once in
	// Merged.Whole.
	Thread func(t profile.Thread) string
	// Slot, if not nil, does the same by slot; slot is zero where a window has none. It
	// cannot be combined with Thread.
	Slot func(head *profile.Head, slot uint32) string
	// Look, if not nil, is called with each window, its number of samples, and the number
	// of windows that were merged into it. Nothing is merged, and there are no columns.
	// Engines may call it concurrently.
	Look func(series profile.Labels, head *profile.Head, n int64, of int)
	// Apart is the largest number of instances whose values columns report one by one; 0:
	// columns do not report instances.
	Apart int
}

// Merged is the result of a merge: columns over one forest.
type Merged struct {
	Forest  *profile.Forest // each stack once; calls that have sums have their Hash
	Columns []Column        // sorted by key
	// Whole has the head of all windows and no sums, where columns are by thread or slot.
	// Only it has losses, cost, idle and watched times: they belong to no thread or slot.
	Whole   *Column
	Damaged Damage
}

// Divides reports whether the rows of a window go to several columns.
func (g *Grouping) Divides() bool { return g.Thread != nil || g.Slot != nil }

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
	Key     string
	Head    profile.Head
	Windows int
	Sums    []Sum // one per stack that has samples, in the order of the forest
	// Instances lists the values of each instance, sorted by name. It is nil if the grouping
	// did not ask for it, if there are more than Grouping.Apart, or if some windows were
	// merged from several instances.
	Instances []OfInstance
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

// Sum is what was sampled on one stack.
type Sum struct {
	Call        int           // index into the forest's calls
	profile.Sum               // of the requested type; squares that are not known count as profile.Sum.Known
	Groups      [Groups]int64 // the value by replicate group, see Group
}

// Types collects value types by kind. The zero value is ready to use.
type Types struct{ of map[string]profile.ValueType }

// Has reports whether a type of that kind was added.
func (t *Types) Has(kind string) bool {
	_, ok := t.of[kind]
	return ok
}

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

// Store stores windows. It is safe for concurrent use. Tenants do not see each other's
// windows; a tenant that never wrote is empty.
//
// Calls that read and that meet damage return their results with a DamagedError.
type Store interface {
	// Put stores a batch at a level and returns when it is durable. After an error other
	// than those above, it may or may not be stored, and can be sent again. A window that
	// is part of a stored merged window counts as stored.
	Put(ctx context.Context, tenant string, level Level, b *Batch) error
	// Series lists the series that have windows, sorted by their String.
	Series(ctx context.Context, tenant string, q Query) ([]profile.Labels, error)
	// Merge adds up the values of one kind over all parts of a selection, which must not
	// overlap. Windows without that kind are left out.
	Merge(ctx context.Context, tenant string, parts []Query, kind string, g Grouping) (*Merged, error)
	// Types lists the value types that windows have in any of some parts, sorted by kind. A
	// period or a base that differs between windows is cleared.
	Types(ctx context.Context, tenant string, parts []Query) ([]profile.ValueType, error)
	// Scan calls each for every window, by series and time. It stops at the first error of
	// each and returns it.
	Scan(ctx context.Context, tenant string, q Query, each func(w *profile.Window, run profile.Run) error) error
	// Stale lists the steps whose rolled-up windows lack something that was put, by level
	// and time. Queries have to read a lower level for them. They survive crashes.
	Stale(ctx context.Context, tenant string) ([]Step, error)
	// Roll rolls up a step from the level below, and replaces an earlier result. A window
	// that is put during the call is either included or makes the step stale again. Roll
	// does nothing while part of the step is stale at the level below, or after that level
	// was dropped. It leaves out damaged windows and counts them as profile.LossStoreDamage,
	// but keeps an earlier result that was rolled up from more windows.
	Roll(ctx context.Context, tenant string, step Step) error
	// Tenants lists all tenants that ever wrote.
	Tenants(ctx context.Context) ([]string, error)
	// Unnamed lists places in files, by build-id, that have no name yet.
	Unnamed(ctx context.Context, tenant string) ([]profile.Place, error)
	// Name stores names that came late. They apply to stored windows too.
	Name(ctx context.Context, tenant string, places []profile.Place) error
	// Drop deletes the windows of a level that begin before a time, by whole days.
	Drop(ctx context.Context, tenant string, level Level, before time.Time) error
	// Tidy removes series that have no windows at any level, so that they no longer count
	// against a quota. It may also forget the stacks of services without windows.
	Tidy(ctx context.Context, tenant string) error
	// Dropped returns the time before which windows of each level were dropped.
	Dropped(ctx context.Context, tenant string) (map[Level]time.Time, error)
	// Usage returns what a tenant uses. Put and Roll return a QuotaError once it reaches the
	// quota (Quota.Full), so that a quota is exceeded by one commit at most. Only Drop makes
	// room.
	Usage(ctx context.Context, tenant string) (*Usage, error)
	Close() error
}

// CommonScale returns the greatest common divisor of two scales. The scale of no values is 0.
func CommonScale(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}
