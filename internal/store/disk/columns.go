package disk

import (
	"encoding/binary"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// columns are what a merge needs of a window. They are read into the same memory
// again and again: an hour of a large service is 60 million rows.
type columns struct {
	calls, thread []uint32
	n, value      []int64
	spread        []int64 // nil: no column
	groups        []int64 // likewise
	excess        []float32
	of            int // as many windows it was added up of
	scale         int64
	head          profile.Head
	threads       []profile.Thread
	absent        bool // the window has no values of the kind

	spreadRoom, groupsRoom []int64
	excessRoom             []float32
	design, source         string // as they were last: mostly they stay
}

// read reads a window's columns; false if it is damaged. Calls are below size.
func (c *columns) read(data []byte, kind string, size int, threads bool) bool {
	r := reader{data: data}
	if r.number() != version {
		return false
	}
	types, at := r.length(), -1
	c.head = profile.Head{Types: c.head.Types[:0]}
	for i := 0; i < types && !r.bad; i++ {
		same := string(r.bytes(r.length())) == kind
		unit, period, scale := r.text(), r.signed(), r.signed()
		if same && at < 0 {
			at, c.scale = i, scale
			c.head.Types = append(c.head.Types, profile.ValueType{Kind: kind, Unit: unit, Period: period})
		}
	}
	if c.absent = at < 0; c.absent {
		return !r.bad
	}
	rows := r.length()
	c.calls = resize(c.calls, rows)
	r.deltas(c.calls)
	if rows > 0 && (r.bad || int64(c.calls[rows-1]) >= int64(size)) {
		return false
	}
	c.n, c.value = resize(c.n, rows), resize(c.value, rows)
	r.signeds(c.n)
	for i := range types {
		if i == at {
			r.signeds(c.value)
		} else {
			r.skip(rows)
		}
	}
	c.optional(&r, rows, at == 0)
	c.readHead(&r)
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

// optional reads the columns that a window may have. Squares and groups are of
// the first type alone.
func (c *columns) optional(r *reader, rows int, first bool) {
	has := r.number()
	c.spread, c.groups, c.excess, c.thread, c.of = nil, nil, nil, c.thread[:0], 1
	if has&hasSpread != 0 {
		c.spreadRoom = resize(c.spreadRoom, rows)
		r.signeds(c.spreadRoom)
		if first {
			c.spread = c.spreadRoom
		}
	}
	if has&hasThread != 0 {
		c.thread = resize(c.thread, rows)
		r.numbers(c.thread)
	}
	if has&hasContext != 0 {
		r.skip(rows)
	}
	if has&hasSlot != 0 {
		r.skip(rows)
	}
	if has&(hasGroups|hasExcess) != 0 && !first {
		r.bad = true // above the raw level there is one type
		return
	}
	if has&hasGroups != 0 {
		c.groupsRoom = resize(c.groupsRoom, rows*store.Groups)
		c.groups = c.groupsRoom
		for i := range rows {
			r.groups(c.groups[i*store.Groups:(i+1)*store.Groups], c.value[i])
		}
	}
	if has&hasExcess != 0 {
		c.excessRoom = resize(c.excessRoom, rows)
		c.excess = c.excessRoom
		for i := range c.excess {
			c.excess[i] = r.excess()
		}
	}
	if has&hasOf != 0 {
		c.of = int(r.small(31))
	}
}

// squares is the sum of squared weights of a row.
func (c *columns) squares(i int) float64 {
	n, value, scale := c.n[i], float64(c.value[i]*c.scale), float64(c.scale)
	squares := 0.0
	if n > 0 {
		squares = value * value / float64(n)
	}
	if c.spread != nil {
		squares += float64(c.spread[i]) * scale * scale
	}
	if c.excess != nil {
		squares *= 1 + float64(c.excess[i])
	}
	return squares
}

// kinds lists the kinds of values that a window has; false if it is damaged.
func kinds(data []byte) (list []string, ok bool) {
	r := reader{data: data}
	if r.number() != version {
		return nil, false
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		list = append(list, r.text())
		r.text()
		r.signed()
		r.signed()
	}
	return list, !r.bad
}

func (c *columns) readHead(r *reader) {
	h := &c.head
	h.Duration = r.duration()
	h.Design = profile.Design(r.same(&c.design))
	h.Exact = profile.Exact{CPU: r.duration(), User: r.duration(), System: r.duration(), Source: r.same(&c.source), IncludesInterrupt: r.flag()}
	h.Idle, h.Watched, h.ClockOffset, h.ClockError = r.duration(), r.duration(), r.duration(), r.duration()
	for n := r.length(); n > 0 && !r.bad; n-- {
		h.Losses = append(h.Losses, profile.Loss{Reason: profile.LossReason(r.text()), Detail: r.text(), N: r.signed(), Value: r.signed()})
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		h.Comments = append(h.Comments, r.text())
	}
}

// same reads a text that is mostly the one that was read before.
func (r *reader) same(before *string) string {
	if b := r.bytes(r.length()); string(b) != *before {
		*before = string(b)
	}
	return *before
}

func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// deltas reads a column of ascending numbers.
func (r *reader) deltas(column []uint32) {
	data, last := r.data, uint64(0)
	for i := range column {
		if len(data) > 0 && data[0] < 0x80 {
			last += uint64(data[0])
			data = data[1:]
		} else {
			n, size := binary.Uvarint(data)
			if size <= 0 {
				r.bad, r.data = true, nil
				return
			}
			last += n
			data = data[size:]
		}
		if last > 1<<32-1 {
			r.bad, r.data = true, nil
			return
		}
		column[i] = uint32(last)
	}
	r.data = data
}

// numbers reads a column.
func (r *reader) numbers(column []uint32) {
	for i := range column {
		column[i] = uint32(r.small(32))
	}
}

// signeds reads a column of numbers with signs, which are mostly small.
func (r *reader) signeds(column []int64) {
	data := r.data
	for i := range column {
		if len(data) > 0 && data[0] < 0x80 {
			b := data[0]
			column[i] = int64(b>>1) ^ -int64(b&1)
			data = data[1:]
			continue
		}
		n, size := binary.Varint(data)
		if size <= 0 {
			r.bad, r.data = true, nil
			return
		}
		column[i] = n
		data = data[size:]
	}
	r.data = data
}

// skip leaves a column out.
func (r *reader) skip(n int) {
	for ; n > 0 && !r.bad; n-- {
		r.number()
	}
}
