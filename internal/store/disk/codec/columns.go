package codec

import (
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Columns are what a merge needs of a window. They are read into the same memory again and
// again: an hour of a large service is 60 million rows.
type Columns struct {
	Leaves           []uint32
	Thread, Slot     []uint32 // empty: no column
	Context, Peer    []uint32 // likewise
	Single           int      // rows: of one sample each, and before the others
	N, Value         []int64
	Variance         []float32 // nil: no column
	Groups           []int64   // likewise
	of               int       // as many windows it was added up of; 0: it does not tell
	Primary          string    // see store.Window
	Minutes          store.Minutes
	Scale            int64
	Head             profile.Head
	Threads          []profile.Thread
	Contexts         []profile.Context
	Exemplars        []profile.Exemplar
	Absent           bool // the window has no values of the kind
	types            []profile.ValueType
	varianceRoom     []float32 // of the type that is read
	otherRoom        []float32 // of the types before it, which are passed over
	groupsRoom, room []int64
	Weight           float64 // of values of a level, see store.Coverage; 0: they are not weighted
}

// Parts are the optional parts of a window that a reader wants.
type Parts struct{ Threads, Contexts, Exemplars bool }

// Read reads a window's columns; false if it is damaged. Leaves are below size.
func (c *Columns) Read(data []byte, kind string, size int, want Parts) bool {
	r := windowReader{Reader: Reader{Data: data}}
	readVersion(&r)
	types, at := r.length(), -1
	c.Head, c.types, c.Weight = profile.Head{Types: c.Head.Types[:0]}, c.types[:0], 0
	for i := 0; i < types && !r.Bad; i++ {
		t, scale := readType(&r), r.Signed()
		c.types = append(c.types, t)
		if t.Kind == kind && at < 0 {
			at, c.Scale = i, scale
		}
	}
	if c.Absent = at < 0; c.Absent {
		return !r.Bad
	}
	rows, single, has := r.shape(types)
	r.descriptions(has, c.types, false)
	c.Single = single
	c.Leaves = resize(c.Leaves, rows)
	readLeaves(&r, c.Leaves[:single], int64(size))
	readLeaves(&r, c.Leaves[single:], int64(size))
	c.N, c.Value = resize(c.N, rows), resize(c.Value, rows)
	r.counts(c.N, single)
	for i := range types {
		if i == at {
			r.values(c.Value, c.N, single)
		} else {
			r.Signed()
			r.skip(rows)
		}
	}
	c.optional(&r, has, at, size)
	c.Head.Types = append(c.Head.Types, c.types[at])
	if at > 0 {
		c.Primary = c.types[0].Kind
	}
	r.head(&c.Head)
	return c.tables(&r, want, size)
}

// tables reads what rows refer to, as far as it is wanted; false if the window is damaged.
func (c *Columns) tables(r *windowReader, want Parts, size int) bool {
	c.Threads, c.Contexts, c.Exemplars = c.Threads[:0], c.Contexts[:0], c.Exemplars[:0]
	if want == (Parts{}) {
		return !r.Bad
	}
	c.Threads = r.threads(c.Threads)
	ok := !want.Threads || Within(c.Thread, len(c.Threads))
	if want.Contexts || want.Exemplars {
		c.Contexts, _ = r.contexts(c.Contexts)
		ok = ok && Within(c.Context, len(c.Contexts))
	}
	if want.Exemplars {
		c.Exemplars = r.exemplars(c.Exemplars)
		for _, e := range c.Exemplars {
			ok = ok && int64(e.Stack) < int64(size) && int64(e.Context) <= int64(len(c.Contexts))
		}
	}
	return ok && !r.Bad
}

// optional reads the columns that a window may have.
func (c *Columns) optional(r *windowReader, has uint64, at, size int) {
	rows := len(c.Leaves)
	c.Groups, c.Variance = nil, nil
	c.room = resize(c.room, 2*rows)
	for t, of := range c.types {
		if has&varianceFlag(t) == 0 {
			continue
		}
		room := &c.otherRoom
		if t == at {
			room = &c.varianceRoom
		}
		*room = resize(*room, rows)
		r.variance(of.Variance, *room, c.N, c.Single, c.room)
		if t == at {
			c.Variance = *room
		}
	}
	c.Thread = readOptional(r, c.Thread, has&hasThread != 0, rows)
	c.Context = readOptional(r, c.Context, has&hasContext != 0, rows)
	c.Slot = readOptional(r, c.Slot, has&hasSlot != 0, rows)
	c.Peer = readOptional(r, c.Peer, has&hasPeer != 0, rows)
	r.Bad = r.Bad || !Within(c.Peer, size)
	for t := range c.types {
		switch {
		case has&hasGroups == 0:
		case t == at:
			c.groupsRoom = resize(c.groupsRoom, rows*store.Groups)
			c.Groups = c.groupsRoom
			r.groups(c.Groups, c.Value, c.room)
		default:
			r.skipGroups(rows)
		}
	}
	c.of, c.Minutes, c.Primary = r.facts(&c.Head, has)
	r.descriptions(has, c.types, true)
}

// readOptional reads a column of n numbers into a slice that is used again, if there is one.
func readOptional(r *windowReader, into []uint32, there bool, n int) []uint32 {
	if !there {
		return into[:0]
	}
	into = resize(into, n)
	readColumn(&r.Reader, into)
	return into
}

// Samples returns the number of samples.
func (c *Columns) Samples() (n int64) {
	for _, count := range c.N {
		n += count
	}
	return n
}

// Windows returns the number of windows that were merged into it. A window of none only counts
// the windows that could not be read when it was rolled up.
func (c *Columns) Windows(level store.Level) int {
	if level == store.Raw {
		return max(c.of, 1)
	}
	return c.of
}

// Sum returns row i as a sum.
func (c *Columns) Sum(i int) profile.Sum {
	s := profile.Sum{N: c.N[i], Value: c.Value[i] * c.Scale}
	rule := c.Head.Types[0].Variance
	switch {
	case c.Variance != nil:
		s.Squares = squares(rule, s, c.Variance[i], c.Scale)
	case rule == profile.FromWeights:
		s.Squares = profile.Alike(s.N, s.Value)
	}
	if c.Weight != 0 {
		s.Value = int64(math.Round(float64(s.Value) * c.Weight))
		s.Squares *= c.Weight * c.Weight
	}
	return s
}

// Weigh turns levels as they were observed into sums over minutes. Those of a roll-up are sums
// already.
func (c *Columns) Weigh(covered *store.Coverage, step time.Time) {
	if kind := c.Head.Types[0].Kind; c.Minutes == nil && covered.Levels(kind) {
		c.Weight, c.Minutes = covered.Weight(&c.Head, kind, step), store.Minutes{}
		c.Minutes.Add(&c.Head)
	}
}

// Plain reports whether a row of one sample is just its value.
func (c *Columns) Plain() bool {
	return c.Weight == 0 && c.Head.Types[0].Variance == profile.FromWeights
}

// ReadTypes returns the types of a window. of is 0 if no windows were merged into it, as far as
// it says; ok is false if it is damaged. Rows are read only if the types are described behind
// them, as in version 4, or by a comment, as in version 3.
func (c *Columns) ReadTypes(data []byte) (types []profile.ValueType, of int, ok bool) {
	r := windowReader{Reader: Reader{Data: data}}
	var w store.Window
	r.types(&w)
	types = w.Head.Types
	_, _, has := r.shape(len(types))
	r.descriptions(has, types, false)
	if has&hasOf != 0 {
		of = 1 // or more
	}
	if !r.Bad && r.version < 5 && (r.version == OldestVersion || has&hasTypes != 0) {
		for i, t := range types {
			if !c.Read(data, t.Kind, math.MaxInt, Parts{}) {
				return nil, 0, false
			}
			types[i] = c.Head.Types[0]
		}
	}
	return types, of, !r.Bad
}

// Kinds lists the kinds of values that a window has; false if it is damaged.
func Kinds(data []byte) (list []string, ok bool) {
	r := windowReader{Reader: Reader{Data: data}}
	readVersion(&r)
	for n := r.length(); n > 0 && !r.Bad; n-- {
		list = append(list, readType(&r).Kind)
		r.Signed()
	}
	return list, !r.Bad
}

func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
