package disk

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Which columns there are.
const (
	hasExcess = 1 << iota
	hasThread
	hasContext
	hasSlot
	hasGroups
	hasOf
	hasInstances // not a column either: so many recorded of so many
)

// rows writes a window's rows; window.go tells how.
func (w *writer) rows(of *store.Window, leaves []uint32) {
	rows := &of.Rows
	order, single := arrange(rows, leaves)
	w.number(uint64(len(order)))
	w.number(uint64(single))
	w.number(columnsOf(of))
	column := make([]uint64, len(order))
	for _, run := range [][]int{order[:single], order[single:]} {
		before := uint32(0)
		for i, at := range run {
			column[i] = uint64(leaves[at] - before)
			before = leaves[at]
		}
		w.column(column[:len(run)])
	}
	w.signeds(column, rows.N, order[single:])
	for t := range of.Head.Types {
		w.values(column, rows.Value[t*len(order):], rows.N, order)
	}
	if rows.Spread != nil || rows.Excess != nil {
		for i, at := range order[single:] {
			column[i] = excess(rows, at)
		}
		w.column(column[:len(order)-single])
	}
	for _, numbers := range [][]uint32{rows.Thread, rows.Context, rows.Slot} {
		if numbers != nil {
			for i, at := range order {
				column[i] = uint64(numbers[at])
			}
			w.column(column)
		}
	}
	if rows.Groups != nil {
		w.groups(rows, order)
	}
	if of.Of != 0 {
		w.number(uint64(of.Of))
	}
	if i := of.Head.Instances; i != (profile.Instances{}) {
		w.number(uint64(i.Recorded))
		w.number(uint64(i.Eligible))
	}
}

// arrange puts single rows before others, each by their leaves.
func arrange(rows *store.Rows, leaves []uint32) (order []int, single int) {
	var others []int
	for i, n := range rows.N {
		if n == 1 && excess(rows, i) == 0 {
			order = append(order, i)
		} else {
			others = append(others, i)
		}
	}
	byLeaf := func(a, b int) int { return cmp.Compare(leaves[a], leaves[b]) }
	slices.SortStableFunc(order, byLeaf)
	slices.SortStableFunc(others, byLeaf)
	return append(order, others...), len(order)
}

func columnsOf(of *store.Window) (has uint64) {
	rows := &of.Rows
	for i, there := range []bool{rows.Spread != nil || rows.Excess != nil, rows.Thread != nil, rows.Context != nil, rows.Slot != nil,
		rows.Groups != nil, of.Of != 0, of.Head.Instances != (profile.Instances{})} {
		if there {
			has |= 1 << i // as the constants are
		}
	}
	return has
}

// An excess is kept in these parts of one: it is the variance of weights, and to
// know that of a row to a hundredth is more than its samples tell.
const excessParts = 64

// excess is by how much the sum of a row's squared weights is above what it were
// if all of them were alike.
func excess(rows *store.Rows, i int) uint64 {
	switch {
	case rows.Excess != nil:
		return uint64(math.Round(excessParts * min(max(float64(rows.Excess[i]), 0), 1<<40)))
	case rows.Spread == nil || rows.Spread[i] <= 0 || rows.Value[i] == 0:
		return 0
	}
	value := float64(rows.Value[i])
	return uint64(math.Round(excessParts * min(float64(rows.Spread[i])*float64(rows.N[i])/(value*value), 1<<40)))
}

// signeds writes a column of numbers that may be below zero. room is of any use.
func (w *writer) signeds(room []uint64, numbers []int64, order []int) {
	below := slices.ContainsFunc(order, func(at int) bool { return numbers[at] < 0 })
	w.flag(below)
	for i, at := range order {
		room[i] = uint64(numbers[at])
		if below {
			room[i] = uint64(numbers[at]<<1 ^ numbers[at]>>63)
		}
	}
	w.column(room[:len(order)])
}

// values writes the values of a type, less what as many samples have at least.
func (w *writer) values(room []uint64, values, n []int64, order []int) {
	least := int64(0)
	for i, at := range order {
		if each := values[at] / max(n[at], 1); i == 0 || each < least {
			least = each
		}
	}
	w.signed(least)
	above := make([]int64, len(order))
	for _, at := range order {
		above[at] = values[at] - least*n[at]
	}
	w.signeds(room, above, order)
}

// groups writes which groups have values, and for each of these but the last a
// column: by how much it has more than its share of what the row has left.
func (w *writer) groups(rows *store.Rows, order []int) {
	which := byte(0)
	for i, v := range rows.Groups {
		if v != 0 {
			which |= 1 << (i % store.Groups)
		}
	}
	*w = append(*w, which)
	left, room, more := make([]int64, len(order)), make([]uint64, len(order)), make([]int64, len(order))
	for _, at := range order {
		left[at] = rows.Value[at]
	}
	for ; which&(which-1) != 0; which &= which - 1 {
		g, groups := bits.TrailingZeros8(which), int64(bits.OnesCount8(which))
		for _, at := range order {
			v := rows.Groups[at*store.Groups+g]
			more[at] = v - left[at]/groups
			left[at] -= v
		}
		w.signeds(room, more, order)
	}
}

// groups reads them; values are the rows', and room is of any use.
func (r *reader) groups(out, values, room []int64) {
	clear(out)
	copy(room, values)
	which := r.bytes(1)[0]
	left, more := room[:len(values)], room[len(values):2*len(values)]
	for ; which&(which-1) != 0; which &= which - 1 {
		g, groups := bits.TrailingZeros8(which), int64(bits.OnesCount8(which))
		r.signeds(more)
		for i, m := range more {
			v := m + left[i]/groups
			out[i*store.Groups+g] = v
			left[i] -= v
		}
	}
	if which != 0 {
		for i, v := range left {
			out[i*store.Groups+bits.TrailingZeros8(which)] = v
		}
	}
}

// excess reads a column of excesses; single rows have none.
func (r *reader) excess(out []float32, single int, room []int64) {
	clear(out[:single])
	room = room[:len(out)-single]
	readColumn(r, room)
	for i, parts := range room {
		out[single+i] = float32(parts) / excessParts
	}
}

// shape reads how many rows there are, how many of them are single, and which
// columns they have. Each block of a column takes a byte at least, and there is
// one of leaves and one of each type.
func (r *reader) shape(types int) (rows, single int, has uint64) {
	n, alone, has := r.number(), r.number(), r.number()
	if r.bad || alone > n || n > blockNumbers*uint64(len(r.data))/uint64(types+1) {
		r.bad, r.data = true, nil
		return 0, 0, 0
	}
	return int(n), int(alone), has
}

// leaves reads a column of leaves; they are below size.
func (r *reader) leaves(out []uint32, single int, size int64) {
	for _, run := range [][]uint32{out[:single], out[single:]} {
		readColumn(r, run)
		last := uint64(0)
		for i, more := range run {
			last += uint64(more)
			run[i] = uint32(last)
		}
		if len(run) > 0 && (last > math.MaxUint32 || int64(last) >= size) {
			r.bad, r.data = true, nil
		}
	}
}

// counts reads how many samples each row is of.
func (r *reader) counts(out []int64, single int) {
	for i := range out[:single] {
		out[i] = 1
	}
	r.signeds(out[single:])
}

// signeds reads a column of numbers that may be below zero.
func (r *reader) signeds(out []int64) {
	below := r.flag()
	readColumn(r, out)
	if below {
		for i, v := range out {
			out[i] = int64(uint64(v)>>1) ^ -(v & 1)
		}
	}
}

// values reads those of a type.
func (r *reader) values(out, n []int64) {
	least := r.signed()
	r.signeds(out)
	for i := range out {
		out[i] += least * n[i]
	}
}

// skip leaves a column out.
func (r *reader) skip(n int) {
	var room [blockNumbers]uint32
	for ; n > 0 && !r.bad; n -= blockNumbers {
		readBlock(r, room[:min(n, blockNumbers)])
	}
}

// rows reads a window's rows for a scan.
func (r *reader) rows(w *store.Window) {
	rows, types := &w.Rows, len(w.Head.Types)
	n, single, has := r.shape(types)
	if r.bad || has&hasGroups != 0 && types == 0 {
		r.bad = true
		return
	}
	rows.Stack, rows.N, rows.Value = make([]uint32, n), make([]int64, n), make([]int64, n*types)
	r.leaves(rows.Stack, single, math.MaxInt64)
	r.counts(rows.N, single)
	for t := range types {
		r.values(rows.Value[t*n:(t+1)*n], rows.N)
	}
	room := make([]int64, 2*n)
	if has&hasExcess != 0 {
		rows.Excess = make([]float32, n)
		r.excess(rows.Excess, single, room)
	}
	for _, c := range []struct {
		has    uint64
		column *[]uint32
	}{{hasThread, &rows.Thread}, {hasContext, &rows.Context}, {hasSlot, &rows.Slot}} {
		if has&c.has != 0 {
			*c.column = make([]uint32, n)
			readColumn(r, *c.column)
		}
	}
	if has&hasGroups != 0 {
		rows.Groups = make([]int64, n*store.Groups)
		r.groups(rows.Groups, rows.Value[:n], room)
	}
	if has&hasOf != 0 {
		w.Of = int(r.small(31))
	}
	w.Head.Instances = r.instances(has)
}

// instances reads how many were recorded of how many, if that is told.
func (r *reader) instances(has uint64) (i profile.Instances) {
	if has&hasInstances != 0 {
		i.Recorded, i.Eligible = int(r.small(32)), int(r.small(32))
	}
	return i
}
