package store

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// A level, such as the size of a heap, is not summed over time. In each minute, the values of
// a series are averaged over the part of the minute that its windows cover; these averages are
// summed over series; and the result is the mean of the minutes that have any window. So what
// is merged and rolled up is a sum over minutes, and the set of these minutes: both can be
// added in any order.

// The sums are fixed-point numbers, since a small level of a short window counts less than one.

// levelUnit is what one counts in a sum over minutes.
const levelUnit = 1 << 10

// Minutes is a set of minutes since 1970.
type Minutes map[int64]bool

// Add adds the minutes of a window.
func (m Minutes) Add(h *profile.Head) {
	first, last := minutesOf(h)
	for minute := first; minute <= last; minute++ {
		m[minute] = true
	}
}

// Include adds the minutes of another set to one that may be nil.
func (m *Minutes) Include(o Minutes) {
	if o == nil {
		return
	}
	if *m == nil {
		*m = Minutes{}
	}
	maps.Copy(*m, o)
}

// Sorted returns the minutes in their order.
func (m Minutes) Sorted() []int64 { return slices.Sorted(maps.Keys(m)) }

// Observed says in which minutes the levels of columns were observed. Columns that rows are divided
// among share the minutes of all windows: where a window has no row of a thread or a context, its
// level is zero. The zero value is ready to use.
type Observed struct{ of map[string]Minutes }

// Add adds the minutes of a window whose rows go to columns with these values of the dimensions.
func (o *Observed) Add(g *Grouping, step time.Time, by []string, minutes Minutes) {
	if minutes == nil {
		return
	}
	if o.of == nil {
		o.of = map[string]Minutes{}
	}
	o.include(g.undivided(step, by), minutes)
}

func (o *Observed) include(key string, minutes Minutes) {
	all := o.of[key]
	all.Include(minutes)
	o.of[key] = all
}

// Absorb adds the minutes of others.
func (o *Observed) Absorb(others *Observed) {
	if o.of == nil {
		o.of = others.of
		return
	}
	for key, minutes := range others.of {
		o.include(key, minutes)
	}
}

// Of returns the minutes of a column; nil: its values are deltas.
func (o *Observed) Of(g *Grouping, c *Column) Minutes {
	if o.of == nil {
		return nil
	}
	return o.of[g.undivided(c.Start, c.By)]
}

// undivided identifies the columns that the rows of a window are divided among.
func (g *Grouping) undivided(step time.Time, by []string) string {
	by = slices.Clone(by)
	for i, d := range g.By {
		if _, ofContext := d.Context(); i < len(by) && (ofContext || d == ByThread || d == BySlot) {
			by[i] = ""
		}
	}
	return fmt.Sprintf("%v %q", step.UTC(), by)
}

// Coverage says how much of each minute the windows of a series cover, by task, kind and the
// step that columns are told apart by. It also knows which kinds are levels: if any window of
// a series says so, all are.
type Coverage struct {
	covered map[coverageKey]time.Duration
	levels  map[string]bool
}

type coverageKey struct {
	task, kind   string
	step, minute int64
}

// NewCoverage returns a coverage of no windows.
func NewCoverage() *Coverage {
	return &Coverage{map[coverageKey]time.Duration{}, map[string]bool{}}
}

// NeverLevel reports whether values of a kind are known to be deltas, so that nothing has to
// be known of the windows of a series before they are merged.
func NeverLevel(kind string) bool { return kind == spec.KindCPU || kind == spec.KindOffCPU }

// Add adds a window as it was observed, in a step of columns.
func (c *Coverage) Add(h *profile.Head, t profile.ValueType, step time.Time) {
	c.levels[t.Kind] = c.levels[t.Kind] || t.Temporality == profile.Level
	c.each(h, t.Kind, step, func(key coverageKey, part time.Duration) { c.covered[key] += part })
}

// Levels reports whether values of a kind are levels. A nil coverage has none.
func (c *Coverage) Levels(kind string) bool { return c != nil && c.levels[kind] }

// Weight returns what a level of a window counts in the sum over minutes.
func (c *Coverage) Weight(h *profile.Head, kind string, step time.Time) (weight float64) {
	c.each(h, kind, step, func(key coverageKey, part time.Duration) {
		if covered := c.covered[key]; covered > 0 {
			weight += levelUnit * float64(part) / float64(covered)
		}
	})
	return weight
}

func (c *Coverage) each(h *profile.Head, kind string, step time.Time, each func(key coverageKey, part time.Duration)) {
	key := coverageKey{task: h.Task, kind: kind}
	if !step.IsZero() {
		key.step = step.UnixNano()
	}
	first, last := minutesOf(h)
	part := max(h.Duration/time.Duration(last-first+1), 1) // a window without a length is a moment
	for key.minute = first; key.minute <= last; key.minute++ {
		each(key, part)
	}
}

// maxMinutes bounds the minutes of a window: agents cut windows of an hour at most.
const maxMinutes = 2 * 24 * 60

// minutesOf returns the first and the last minute of a window: whole ones, so that windows
// which follow each other share none. Agents cut some moments late, and what reaches into the
// next minute, or the next step of roll-ups, would count there as all that was observed.
func minutesOf(h *profile.Head) (first, last int64) {
	start := h.Start.UnixNano()
	first = start / int64(time.Minute)
	last = max((start+int64(h.Duration))/int64(time.Minute)-1, first)
	return first, min(last, first+maxMinutes)
}

// Average turns the column's values, which are sums over minutes, into means.
func (c *Column) Average(over Minutes) {
	n := int64(max(len(over), 1)) * levelUnit
	for i := range c.Sums {
		s := &c.Sums[i]
		s.Value, s.Squares = mean(s.Value, n), s.Squares/float64(n)/float64(n)
		for g := range s.Groups {
			s.Groups[g] = mean(s.Groups[g], n)
		}
	}
	for i := range c.Kinds {
		k := &c.Kinds[i]
		k.Value, k.Squares = mean(k.Value, n), k.Squares/float64(n)/float64(n)
	}
	for _, instance := range c.Instances {
		for i := range instance.Values {
			instance.Values[i].Value = mean(instance.Values[i].Value, n)
		}
	}
}

// mean divides, to the nearest.
func mean(sum, n int64) int64 {
	if sum < 0 {
		return -mean(-sum, n)
	}
	return (sum + n/2) / n
}
