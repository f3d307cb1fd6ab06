package disk

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// A window as it is kept. Its key has its series, start, task and run.
//
//	version 1
//	types     count, then kind, unit, period, scale of each
//	rows      count, then columns, rows in the order of their calls:
//	          call less that of the row before | n | values of each type |
//	          which of the following there are | spread | thread | context | slot |
//	          groups | excess | of how many windows
//	head      duration, design, exact, idle, watched, clock, losses, comments
//	threads, contexts
//
// A row's groups are a byte that tells which are not zero, and the values of all
// of these but the last, which is what remains of the row's value.
//
// A merge reads the first half, and of the head what it adds up.
const version = 1

// Which optional columns there are.
const (
	hasSpread = 1 << iota
	hasThread
	hasContext
	hasSlot
	hasGroups
	hasExcess
	hasOf
)

// encodeWindow writes a window whose rows' stacks are calls already.
func encodeWindow(w *store.Window, calls []uint32) []byte {
	out := writer{version}
	out.number(uint64(len(w.Head.Types)))
	for i, t := range w.Head.Types {
		out.text(t.Kind)
		out.text(t.Unit)
		out.signed(t.Period)
		out.signed(w.Scales[i])
	}
	out.rows(w, calls)
	out.head(&w.Head)
	out.number(uint64(len(w.Threads)))
	for _, t := range w.Threads {
		out.signed(int64(t.PID))
		out.signed(int64(t.TID))
		out.text(t.Process)
		out.text(t.Name)
		out.exact(t.Exact)
	}
	out.number(uint64(len(w.Contexts)))
	for _, c := range w.Contexts {
		out.text(c.Trace)
		out.text(c.Span)
		out.text(c.Endpoint)
		out.text(c.Interval)
	}
	return out
}

func (w *writer) rows(of *store.Window, calls []uint32) {
	rows := &of.Rows
	order := make([]int, len(calls))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(calls[a], calls[b]) })
	w.number(uint64(len(order)))
	before := uint32(0)
	for _, i := range order {
		w.number(uint64(calls[i] - before))
		before = calls[i]
	}
	for _, i := range order {
		w.signed(rows.N[i])
	}
	for t := range of.Head.Types {
		for _, i := range order {
			w.signed(rows.Value[t*len(order)+i])
		}
	}
	w.optional(of, order)
}

func (w *writer) optional(of *store.Window, order []int) {
	rows, has := &of.Rows, uint64(0)
	for i, there := range []bool{rows.Spread != nil, rows.Thread != nil, rows.Context != nil, rows.Slot != nil, rows.Groups != nil,
		rows.Excess != nil, of.Of != 0} {
		if there {
			has |= 1 << i // as the constants are
		}
	}
	w.number(has)
	if rows.Spread != nil {
		for _, i := range order {
			w.signed(rows.Spread[i])
		}
	}
	for _, column := range [][]uint32{rows.Thread, rows.Context, rows.Slot} {
		if column != nil {
			for _, i := range order {
				w.number(uint64(column[i]))
			}
		}
	}
	if rows.Groups != nil {
		for _, i := range order {
			w.groups(rows.Groups[i*store.Groups : (i+1)*store.Groups])
		}
	}
	if rows.Excess != nil {
		for _, i := range order {
			w.number(uint64(shorten(rows.Excess[i])))
		}
	}
	if of.Of != 0 {
		w.number(uint64(of.Of))
	}
}

func (w *writer) groups(values []int64) {
	which, last := byte(0), 0
	for g, v := range values {
		if v != 0 {
			which |= 1 << g
			last = g
		}
	}
	*w = append(*w, which)
	for _, v := range values[:last] {
		if v != 0 {
			w.signed(v)
		}
	}
}

// groups reads them; value is the row's.
func (r *reader) groups(values []int64, value int64) {
	clear(values)
	which := r.bytes(1)[0]
	for ; which&(which-1) != 0; which &= which - 1 {
		v := r.signed()
		values[bits.TrailingZeros8(which)] = v
		value -= v
	}
	if which != 0 {
		values[bits.TrailingZeros8(which)] = value
	}
}

// An excess is kept to three digits: it is the variance of weights, and zero of
// single samples.
const shorter = 12

func shorten(excess float32) uint32 {
	return (math.Float32bits(max(excess, 0)) + 1<<(shorter-1)) >> shorter
}

func (r *reader) excess() float32 {
	return math.Float32frombits(uint32(r.small(32-shorter)) << shorter)
}

func (w *writer) head(h *profile.Head) {
	w.signed(int64(h.Duration))
	w.text(string(h.Design))
	w.exact(h.Exact)
	w.signed(int64(h.Idle))
	w.signed(int64(h.Watched))
	w.signed(int64(h.ClockOffset))
	w.signed(int64(h.ClockError))
	w.number(uint64(len(h.Losses)))
	for _, l := range h.Losses {
		w.text(string(l.Reason))
		w.text(l.Detail)
		w.signed(l.N)
		w.signed(l.Value)
	}
	w.number(uint64(len(h.Comments)))
	for _, c := range h.Comments {
		w.text(c)
	}
}

// decodeWindow reads a window; its rows' stacks are calls. False if the bytes
// are not what was written.
func decodeWindow(data []byte) (w store.Window, ok bool) {
	r := reader{data: data}
	r.types(&w)
	r.rows(&w)
	r.head(&w.Head)
	for n := r.length(); n > 0 && !r.bad; n-- {
		w.Threads = append(w.Threads, profile.Thread{PID: int(r.signed()), TID: int(r.signed()), Process: r.text(), Name: r.text(), Exact: r.exact()})
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		w.Contexts = append(w.Contexts, profile.Context{Trace: r.text(), Span: r.text(), Endpoint: r.text(), Interval: r.text()})
	}
	for _, part := range []struct {
		column  []uint32
		entries int
	}{{w.Rows.Thread, len(w.Threads)}, {w.Rows.Context, len(w.Contexts)}} {
		for _, v := range part.column {
			r.bad = r.bad || int64(v) > int64(part.entries)
		}
	}
	return w, !r.bad && len(r.data) == 0
}

func (r *reader) types(w *store.Window) {
	if r.number() != version {
		r.bad, r.data = true, nil
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		w.Head.Types = append(w.Head.Types, profile.ValueType{Kind: r.text(), Unit: r.text(), Period: r.signed()})
		w.Scales = append(w.Scales, r.signed())
	}
}

func (r *reader) rows(w *store.Window) {
	n := r.length()
	rows := &w.Rows
	rows.Stack = r.uint32s(n)
	for i := 1; i < n; i++ {
		rows.Stack[i] += rows.Stack[i-1]
		r.bad = r.bad || rows.Stack[i] < rows.Stack[i-1]
	}
	rows.N = r.int64s(n)
	rows.Value = r.int64s(n * len(w.Head.Types))
	has := r.number()
	if r.bad || has&hasGroups != 0 && len(rows.Value) < n {
		r.bad = true
		return
	}
	if has&hasSpread != 0 {
		rows.Spread = r.int64s(n)
	}
	if has&hasThread != 0 {
		rows.Thread = r.uint32s(n)
	}
	if has&hasContext != 0 {
		rows.Context = r.uint32s(n)
	}
	if has&hasSlot != 0 {
		rows.Slot = r.uint32s(n)
	}
	if has&hasGroups != 0 {
		rows.Groups = make([]int64, n*store.Groups)
		for i := range n {
			r.groups(rows.Groups[i*store.Groups:(i+1)*store.Groups], rows.Value[i])
		}
	}
	if has&hasExcess != 0 {
		rows.Excess = make([]float32, n)
		for i := range rows.Excess {
			rows.Excess[i] = r.excess()
		}
	}
	if has&hasOf != 0 {
		w.Of = int(r.small(31))
	}
}

func (r *reader) head(h *profile.Head) {
	h.Duration = r.duration()
	h.Design = profile.Design(r.text())
	h.Exact = r.exact()
	h.Idle, h.Watched, h.ClockOffset, h.ClockError = r.duration(), r.duration(), r.duration(), r.duration()
	for n := r.length(); n > 0 && !r.bad; n-- {
		h.Losses = append(h.Losses, profile.Loss{Reason: profile.LossReason(r.text()), Detail: r.text(), N: r.signed(), Value: r.signed()})
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		h.Comments = append(h.Comments, r.text())
	}
}
