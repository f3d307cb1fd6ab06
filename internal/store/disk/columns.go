package disk

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// columns are what a merge needs of a window. They are read into the same memory
// again and again: an hour of a large service is 60 million rows.
type columns struct {
	leaves       []uint32
	thread, slot []uint32 // empty: no column
	single       int      // rows: of one sample each, and before the others
	n, value     []int64
	excess       []float32 // nil: no column
	groups       []int64   // likewise
	of           int       // as many windows it was added up of; 0: it does not tell
	scale        int64
	head         profile.Head
	threads      []profile.Thread
	absent       bool // the window has no values of the kind

	excessRoom       []float32
	groupsRoom, room []int64
}

// read reads a window's columns; false if it is damaged. Leaves are below size.
func (c *columns) read(data []byte, kind string, size int, threads bool) bool {
	r := reader{data: data}
	readVersion(&r)
	types, at := r.length(), -1
	c.head = profile.Head{Types: c.head.Types[:0]}
	for i := 0; i < types && !r.bad; i++ {
		t, scale := readType(&r), r.signed()
		if t.Kind == kind && at < 0 {
			at, c.scale = i, scale
			c.head.Types = append(c.head.Types, t)
		}
	}
	if c.absent = at < 0; c.absent {
		return !r.bad
	}
	rows, single, has := r.shape(types)
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
	c.optional(&r, has, types, at)
	r.head(&c.head)
	c.threads = c.threads[:0]
	if threads {
		for n := r.length(); n > 0 && !r.bad; n-- {
			c.threads = append(c.threads, profile.Thread{PID: int(r.signed()), TID: int(r.signed()), Process: r.text(), Name: r.text(), Exact: r.exact()})
		}
		for _, t := range c.thread {
			r.bad = r.bad || int64(t) > int64(len(c.threads))
		}
	}
	return !r.bad
}

// optional reads the columns that a window may have. Excesses and groups are of
// the first type alone.
func (c *columns) optional(r *reader, has uint64, types, at int) {
	rows, first := len(c.leaves), at == 0
	c.groups, c.excess, c.thread, c.slot, c.of = nil, nil, c.thread[:0], c.slot[:0], 0
	c.room = resize(c.room, 2*rows)
	if has&hasExcess != 0 {
		c.excessRoom = resize(c.excessRoom, rows)
		r.excess(c.excessRoom, c.n, c.single, c.room)
		if first {
			c.excess = c.excessRoom
		}
	}
	if has&hasThread != 0 {
		c.thread = resize(c.thread, rows)
		readColumn(r, c.thread)
	}
	if has&hasContext != 0 {
		r.skip(rows)
	}
	if has&hasSlot != 0 {
		c.slot = resize(c.slot, rows)
		readColumn(r, c.slot)
	}
	if has&hasGroups != 0 {
		if !first {
			r.bad = true // above the raw level there is one type
			return
		}
		c.groupsRoom = resize(c.groupsRoom, rows*store.Groups)
		c.groups = c.groupsRoom
		r.groups(c.groups, c.value, c.room)
	}
	if has&hasOf != 0 {
		c.of = int(r.small(31))
	}
	c.head.Instances, c.head.Rate, c.head.Slot = r.instances(has), r.rateOf(has), r.slots(has)
	if has&hasTypes != 0 {
		for i := range types {
			if temporality, base := readDescription(r); i == at {
				c.head.Types[0].Temporality = temporality
				c.head.Types[0].DecodeBase(base)
			}
		}
	}
	c.head.Farewell = has&hasFarewell != 0
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
	s.Squares = profile.Alike(s.N, s.Value)
	if c.excess != nil {
		s.Squares *= 1 + float64(c.excess[i])
	}
	return s
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
