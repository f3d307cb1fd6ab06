package disk

import (
	"math"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// columns are what a merge needs of a window. They are read into the same memory again and
// again: an hour of a large service is 60 million rows.
type columns struct {
	leaves           []uint32
	thread, slot     []uint32 // empty: no column
	context, peer    []uint32 // likewise
	single           int      // rows: of one sample each, and before the others
	n, value         []int64
	variance         []float32 // nil: no column
	groups           []int64   // likewise
	of               int       // as many windows it was added up of; 0: it does not tell
	minutes          store.Minutes
	scale            int64
	head             profile.Head
	threads          []profile.Thread
	contexts         []profile.Context
	exemplars        []profile.Exemplar
	absent           bool // the window has no values of the kind
	types            []profile.ValueType
	varianceRoom     []float32
	groupsRoom, room []int64
	weight           float64 // of values of a level, see store.Coverage; 0: they are not weighted
}

// parts are the optional parts of a window that a reader wants.
type parts struct{ threads, contexts, exemplars bool }

// read reads a window's columns; false if it is damaged. Leaves are below size.
func (c *columns) read(data []byte, kind string, size int, want parts) bool {
	r := reader{data: data}
	readVersion(&r)
	types, at := r.length(), -1
	c.head, c.types, c.weight = profile.Head{Types: c.head.Types[:0]}, c.types[:0], 0
	for i := 0; i < types && !r.bad; i++ {
		t, scale := readType(&r), r.signed()
		c.types = append(c.types, t)
		if t.Kind == kind && at < 0 {
			at, c.scale = i, scale
		}
	}
	if c.absent = at < 0; c.absent {
		return !r.bad
	}
	rows, single, has := r.shape(types)
	r.descriptions(has, c.types, false)
	c.single = single
	c.leaves = resize(c.leaves, rows)
	readLeaves(&r, c.leaves[:single], int64(size))
	readLeaves(&r, c.leaves[single:], int64(size))
	c.n, c.value = resize(c.n, rows), resize(c.value, rows)
	r.counts(c.n, single)
	for i := range types {
		if i == at {
			r.values(c.value, c.n, single)
		} else {
			r.signed()
			r.skip(rows)
		}
	}
	c.optional(&r, has, at, size)
	c.head.Types = append(c.head.Types, c.types[at])
	r.head(&c.head)
	return c.tables(&r, want, size)
}

// tables reads what rows refer to, as far as it is wanted; false if the window is damaged.
func (c *columns) tables(r *reader, want parts, size int) bool {
	c.threads, c.contexts, c.exemplars = c.threads[:0], c.contexts[:0], c.exemplars[:0]
	if want == (parts{}) {
		return !r.bad
	}
	c.threads = r.threads(c.threads)
	ok := !want.threads || within(c.thread, len(c.threads))
	if want.contexts || want.exemplars {
		c.contexts, _ = r.contexts(c.contexts)
		ok = ok && within(c.context, len(c.contexts))
	}
	if want.exemplars {
		c.exemplars = r.exemplars(c.exemplars)
		for _, e := range c.exemplars {
			ok = ok && int64(e.Stack) < int64(size) && int64(e.Context) <= int64(len(c.contexts))
		}
	}
	return ok && !r.bad
}

// optional reads the columns that a window may have. Groups are of the first type alone.
func (c *columns) optional(r *reader, has uint64, at, size int) {
	rows := len(c.leaves)
	c.groups, c.variance = nil, nil
	c.room = resize(c.room, 2*rows)
	for t, of := range c.types {
		if has&varianceFlag(t) == 0 {
			continue
		}
		column := resize(c.varianceRoom, rows)
		r.variance(of.Variance, column, c.n, c.single, c.room)
		if c.varianceRoom = column; t == at {
			c.variance, c.varianceRoom = column, nil
		}
	}
	c.thread = readOptional(r, c.thread, has&hasThread != 0, rows)
	c.context = readOptional(r, c.context, has&hasContext != 0, rows)
	c.slot = readOptional(r, c.slot, has&hasSlot != 0, rows)
	c.peer = readOptional(r, c.peer, has&hasPeer != 0, rows)
	r.bad = r.bad || !within(c.peer, size)
	if has&hasGroups != 0 {
		if at != 0 {
			r.bad = true // above the raw level there is one type
			return
		}
		c.groupsRoom = resize(c.groupsRoom, rows*store.Groups)
		c.groups = c.groupsRoom
		r.groups(c.groups, c.value, c.room)
	}
	c.of, c.minutes = r.facts(&c.head, has)
	r.descriptions(has, c.types, true)
}

// readOptional reads a column of n numbers into a slice that is used again, if there is one.
func readOptional(r *reader, into []uint32, there bool, n int) []uint32 {
	if !there {
		return into[:0]
	}
	into = resize(into, n)
	readColumn(r, into)
	return into
}

// samples is how many a window has.
func (c *columns) samples() (n int64) {
	for _, count := range c.n {
		n += count
	}
	return n
}

// windows is of how many windows it is. Of none there is nothing but how many
// could not be read when they were to be added up.
func (c *columns) windows(level store.Level) int {
	if level == store.Raw {
		return max(c.of, 1)
	}
	return c.of
}

// sum returns row i as a sum.
func (c *columns) sum(i int) profile.Sum {
	s := profile.Sum{N: c.n[i], Value: c.value[i] * c.scale}
	rule := c.head.Types[0].Variance
	switch {
	case c.variance != nil:
		s.Squares = squares(rule, s, c.variance[i], c.scale)
	case rule == profile.FromWeights:
		s.Squares = profile.Alike(s.N, s.Value)
	}
	if c.weight != 0 {
		s.Value = int64(math.Round(float64(s.Value) * c.weight))
		s.Squares *= c.weight * c.weight
	}
	return s
}

// level reports whether the values are levels as they were observed, and not sums over minutes
// yet.
func (c *columns) level() bool {
	return c.head.Types[0].Temporality == profile.Level && c.minutes == nil
}

// weigh turns levels into sums over minutes. The series of the window covers these as given.
func (c *columns) weigh(covered store.Coverage) {
	c.weight, c.minutes = covered.Weight(&c.head), store.Minutes{}
	c.minutes.Add(&c.head)
}

// plain reports whether a row of one sample is just its value.
func (c *columns) plain() bool {
	return c.weight == 0 && c.head.Types[0].Variance == profile.FromWeights
}

// context returns the context of row i.
func (c *columns) contextOf(i int) profile.Context {
	if len(c.context) == 0 || c.context[i] == 0 {
		return profile.Context{}
	}
	return c.contexts[c.context[i]-1]
}

// readTypes returns the types of a window, and 0 if nothing is known to be merged into
// it. It is not ok if the window is damaged. Rows are read only
// if the types are described behind them, as in version 4, or by a comment, as in version 3.
func (c *columns) readTypes(data []byte) (types []profile.ValueType, of int, ok bool) {
	r := reader{data: data}
	var w store.Window
	r.types(&w)
	types = w.Head.Types
	_, _, has := r.shape(len(types))
	r.descriptions(has, types, false)
	if has&hasOf != 0 {
		of = 1 // or more
	}
	if !r.bad && r.version < 5 && (r.version == oldestVersion || has&hasTypes != 0) {
		for i, t := range types {
			if !c.read(data, t.Kind, math.MaxInt, parts{}) {
				return nil, 0, false
			}
			types[i] = c.head.Types[0]
		}
	}
	return types, of, !r.bad
}

// kinds lists the kinds of values that a window has; false if it is damaged.
func kinds(data []byte) (list []string, ok bool) {
	r := reader{data: data}
	readVersion(&r)
	for n := r.length(); n > 0 && !r.bad; n-- {
		list = append(list, readType(&r).Kind)
		r.signed()
	}
	return list, !r.bad
}

func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
