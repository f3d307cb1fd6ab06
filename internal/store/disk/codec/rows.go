package codec

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Which columns a window has, and which facts behind them.
const (
	hasVariance = 1 << iota // of the first type
	hasThread
	hasContext
	hasSlot
	hasGroups
	hasOf        // number of windows that were merged into it
	hasInstances // numbers of instances, recorded and eligible
	hasRate      // sampling rate, and who decided it
	hasSlots     // length of slots
	hasTypes     // temporality, variance and base of each type; without: as is usual
	hasFarewell  // no window of the recording follows
	hasVariances // of the types after the first
	hasPeer
	hasMinutes // that a level was observed in
	hasPrimary // kind, which is not the window's own
	hasPushed  // no agent cut the window: a flag without a fact
)

// scratch is what rows are sorted and gathered in. It is used again: a server
// writes hundreds of windows a second.
type scratch struct {
	order  []int
	room   []uint64
	values []int64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// rows writes a window's rows; window.go tells how.
func (w *Writer) rows(of *store.Window, l Leaves) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	rows, types := &of.Rows, of.Head.Types
	single := s.arrange(of, l.Rows)
	order, room := s.order, s.room
	has, variances := columnsOf(of, l), make([]variance, len(types))
	for t := range types {
		if variances[t] = varianceOf(of, t, order, single); variances[t].some {
			has |= varianceFlag(t)
		}
	}
	w.Number(uint64(len(order)))
	w.Number(uint64(single))
	w.Number(has)
	if has&hasTypes != 0 {
		w.descriptions(types)
	}
	w.leaves(room, l.Rows, order[:single])
	w.leaves(room, l.Rows, order[single:])
	w.counts(room, rows.N, order[single:])
	for t := range types {
		w.values(room, s.scaled(of, t), rows.N, order)
	}
	for t := range types {
		if has&varianceFlag(t) != 0 {
			w.variance(&variances[t])
		}
	}
	writeNumbers(w, room, rows.Thread, order)
	writeNumbers(w, room, rows.Context, order)
	writeNumbers(w, room, rows.Slot, order)
	writeNumbers(w, room, l.Peers, order)
	for t := range types {
		if of.Groups != nil {
			w.groups(room, of, t, order)
		}
	}
	w.facts(of)
}

// facts writes what is known of a window beside its columns.
func (w *Writer) facts(of *store.Window) {
	if of.Of != 0 {
		w.Number(uint64(of.Of))
	}
	if i := of.Head.Instances; i != (profile.Instances{}) {
		w.Number(uint64(i.Recorded))
		w.Number(uint64(i.Eligible))
	}
	if of.Head.Rate != (profile.Rate{}) {
		w.rate(of.Head.Rate)
	}
	if of.Head.Slot != 0 {
		w.Number(uint64(of.Head.Slot))
	}
	if of.Minutes != nil {
		w.minutes(of.Minutes)
	}
	if of.Primary != "" {
		w.Word(of.Primary)
	}
}

// minutes writes a sorted set, each by its distance from the one before.
func (w *Writer) minutes(set store.Minutes) {
	w.Number(uint64(len(set)))
	last := int64(0)
	for _, minute := range set.Sorted() {
		w.Signed(minute - last)
		last = minute
	}
}

func (r *windowReader) minutes(has uint64) (set store.Minutes) {
	if has&hasMinutes == 0 {
		return nil
	}
	set = store.Minutes{}
	last := int64(0)
	for n := r.length(); n > 0 && !r.Bad; n-- {
		last += r.Signed()
		set[last] = true
	}
	return set
}

func (w *Writer) descriptions(types []profile.ValueType) {
	for i := range types {
		w.Number(uint64(types[i].Temporality))
		w.Number(uint64(types[i].Variance))
		w.Word(types[i].EncodedBase())
	}
}

// writeNumbers writes a column of identifiers, unless there is none.
func writeNumbers[T ~uint32](w *Writer, room []uint64, column []T, order []int) {
	if column == nil {
		return
	}
	for i, at := range order {
		room[i] = uint64(column[at])
	}
	w.column(room)
}

// readNumbers reads a column of n identifiers, if there is one.
func readNumbers[T ~uint32](r *windowReader, there bool, n int) []T {
	if !there {
		return nil
	}
	column := make([]T, n)
	readColumn(&r.Reader, column)
	return column
}

// scaled returns the values of a type in multiples of its scale.
func (s *scratch) scaled(of *store.Window, t int) []int64 {
	rows := &of.Rows
	s.values = resize(s.values, rows.Len())
	for i := range s.values {
		s.values[i] = rows.Values[i*rows.Types+t] / max(of.Scales[t], 1)
	}
	return s.values
}

// described reports whether some type is not a delta of its usual base and variance.
func described(types []profile.ValueType) bool {
	return slices.ContainsFunc(types, func(t profile.ValueType) bool {
		return t.Temporality != profile.Delta || t.Variance != profile.FromWeights || t.EncodedBase() != ""
	})
}

// describe reads the temporality, variance and base of a type.
func (r *windowReader) describe(t *profile.ValueType) {
	t.Temporality = profile.Temporality(r.Small(8))
	if r.version >= 5 {
		t.Variance = profile.Variance(r.Small(8))
	}
	t.DecodeBase(r.Word())
}

// descriptions reads the descriptions of types, at the place where the window's version has
// them.
func (r *windowReader) descriptions(has uint64, types []profile.ValueType, behindRows bool) {
	if has&hasTypes == 0 || behindRows != (r.version < 5) {
		return
	}
	for i := range types {
		r.describe(&types[i])
	}
}

// arrange sorts rows by their leaves. As windows are cut, most rows are single:
// those come first, and need no column of counts.
func (s *scratch) arrange(of *store.Window, leaves []uint32) (single int) {
	n := len(of.Rows.N)
	s.order, s.room = slices.Grow(s.order[:0], n)[:n], slices.Grow(s.room[:0], n)[:n]
	const others, rowBits = 1 << 63, 31
	for row, count := range of.Rows.N {
		key := uint64(leaves[row])<<rowBits | uint64(row)
		if count == 1 && of.Of == 0 {
			single++
		} else {
			key |= others
		}
		s.room[row] = key
	}
	slices.Sort(s.room) // of one leaf, as they came
	for i, key := range s.room {
		s.order[i] = int(key & (1<<rowBits - 1))
	}
	return single
}

// columnsOf returns the flags of what a window has, except those of variances.
func columnsOf(of *store.Window, l Leaves) (has uint64) {
	rows := &of.Rows
	for flag, there := range map[uint64]bool{hasThread: rows.Thread != nil, hasContext: rows.Context != nil, hasSlot: rows.Slot != nil,
		hasPeer: l.Peers != nil, hasGroups: of.Groups != nil, hasOf: of.Of != 0, hasInstances: of.Head.Instances != (profile.Instances{}),
		hasRate: of.Head.Rate != (profile.Rate{}), hasSlots: of.Head.Slot != 0, hasTypes: described(of.Head.Types),
		hasFarewell: of.Head.Farewell, hasMinutes: of.Minutes != nil, hasPrimary: of.Primary != "", hasPushed: of.Head.Origin != profile.OriginAgent} {
		if there {
			has |= flag
		}
	}
	return has
}

// leaves writes by how much each leaf is above the one before, less one where
// none comes twice: of the hot ones, which are all there, nothing is left then.
func (w *Writer) leaves(room []uint64, leaves []uint32, order []int) {
	before, least := int64(-1), uint64(1)
	for i, at := range order {
		room[i] = uint64(int64(leaves[at]) - before)
		before, least = int64(leaves[at]), min(least, room[i])
	}
	w.Number(least)
	for i := range order {
		room[i] -= least
	}
	w.column(room[:len(order)])
}

// counts writes how many samples rows are of, less the least of them.
func (w *Writer) counts(room []uint64, n []int64, order []int) {
	least := int64(0)
	for i, at := range order {
		if i == 0 || n[at] < least {
			least = n[at]
		}
	}
	w.Signed(least)
	for i, at := range order {
		room[i] = uint64(n[at] - least)
	}
	w.column(room[:len(order)])
}

// values writes the values of a type, less what as many samples have on average.
func (w *Writer) values(room []uint64, values, n []int64, order []int) {
	each := average(values, n, order)
	w.Signed(each)
	for i, at := range order {
		room[i] = zigzag(values[at] - expected(each, n[at]))
	}
	w.column(room[:len(order)])
}

// An average is kept in these parts of a step.
const averageParts = 256

func average(values, n []int64, order []int) int64 {
	value, samples := 0.0, 0.0
	for _, at := range order {
		value, samples = value+float64(values[at]), samples+float64(n[at])
	}
	if samples <= 0 {
		return 0
	}
	return int64(min(max(averageParts*value/samples, -1<<60), 1<<60)) // any number will do: of absurd ones products wrap around, and back
}

func expected(each, n int64) int64 { return (each*n + averageParts/2) / averageParts }

// zigzag has numbers near zero be small.
func zigzag(v int64) uint64 { return uint64(v<<1 ^ v>>63) }

func unzigzag(v int64) int64 { return int64(uint64(v)>>1) ^ -(v & 1) }

// groups writes which groups have values of a type, and for each of these but the last a
// column: by how much it has more than its share of what the row has left.
func (w *Writer) groups(room []uint64, of *store.Window, t int, order []int) {
	scale, types := max(of.Scales[t], 1), of.Rows.Types
	which := byte(0)
	for _, at := range order {
		for g, v := range of.Groups[(at*types+t)*store.Groups : (at*types+t+1)*store.Groups] {
			if v != 0 {
				which |= 1 << g
			}
		}
	}
	*w = append(*w, which)
	left := make([]int64, len(order))
	for _, at := range order {
		left[at] = of.Rows.Values[at*types+t] / scale
	}
	for ; which&(which-1) != 0; which &= which - 1 {
		g, groups := bits.TrailingZeros8(which), int64(bits.OnesCount8(which))
		for i, at := range order {
			v := of.Groups[(at*types+t)*store.Groups+g] / scale
			room[i] = zigzag(v - left[at]/groups)
			left[at] -= v
		}
		w.column(room)
	}
}

// groups reads them; values are the rows', and room is of any use.
func (r *windowReader) groups(out, values, room []int64) {
	clear(out)
	copy(room, values)
	which := r.Bytes(1)[0]
	left, more := room[:len(values)], room[len(values):2*len(values)]
	for ; which&(which-1) != 0; which &= which - 1 {
		g, groups := bits.TrailingZeros8(which), int64(bits.OnesCount8(which))
		readColumn(&r.Reader, more)
		for i, m := range more {
			v := unzigzag(m) + left[i]/groups
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

// skipGroups reads past the groups of a type.
func (r *windowReader) skipGroups(rows int) {
	for which := r.Bytes(1)[0]; which&(which-1) != 0; which &= which - 1 {
		r.skip(rows)
	}
}

// shape reads how many rows there are, how many of them are single, and which
// columns they have. Each block of a column takes a byte at least, and there is
// one of leaves and one of each type.
func (r *windowReader) shape(types int) (rows, single int, has uint64) {
	n, alone, has := r.Number(), r.Number(), r.Number()
	if r.Bad || alone > n || n > blockNumbers*uint64(len(r.Data))/uint64(types+1) {
		r.Bad, r.Data = true, nil
		return 0, 0, 0
	}
	return int(n), int(alone), has
}

// leaves reads a column of leaves; they are below size.
func readLeaves[T ~uint32](r *windowReader, out []T, size int64) {
	least := r.Small(1)
	readColumn(&r.Reader, out)
	last := uint64(math.MaxUint64)
	for i, more := range out {
		last += uint64(more) + least
		out[i] = T(last)
	}
	if n := len(out); n > 0 && (last > math.MaxUint32 || int64(last) >= size || out[0] > out[n-1]) { // the first may be before 0
		r.Bad, r.Data = true, nil
	}
}

// counts reads how many samples each row is of.
func (r *windowReader) counts(out []int64, single int) {
	for i := range out[:single] {
		out[i] = 1
	}
	least := r.Signed()
	readColumn(&r.Reader, out[single:])
	for i := range out[single:] {
		out[single+i] += least
	}
}

// values reads those of a type.
func (r *windowReader) values(out, n []int64, single int) {
	each := r.Signed()
	readColumn(&r.Reader, out)
	one := expected(each, 1)
	for i, v := range out[:single] {
		out[i] = unzigzag(v) + one
	}
	for i := single; i < len(out); i++ {
		out[i] = unzigzag(out[i]) + expected(each, n[i])
	}
}

// skip leaves a column out.
func (r *windowReader) skip(n int) {
	var room [blockNumbers]int64 // numbers may be large
	for ; n > 0 && !r.Bad; n -= blockNumbers {
		readBlock(&r.Reader, room[:min(n, blockNumbers)])
	}
}

// rows reads a window's rows for a scan.
func (r *windowReader) rows(w *store.Window) {
	rows, types := &w.Rows, len(w.Head.Types)
	n, single, has := r.shape(types)
	if r.Bad || has&hasGroups != 0 && types == 0 {
		r.Bad = true
		return
	}
	r.descriptions(has, w.Head.Types, false)
	*rows = profile.MakeRows(types, n)
	readLeaves(r, rows.Stack[:single], math.MaxInt64)
	readLeaves(r, rows.Stack[single:], math.MaxInt64)
	r.counts(rows.N, single)
	values := make([]int64, n*types)
	for t := range types {
		of := values[t*n : (t+1)*n]
		r.values(of, rows.N, single)
		for i, v := range of {
			rows.Values[i*types+t] = v * w.Scales[t]
		}
	}
	room, column := make([]int64, 2*n), make([]float32, n)
	for t, of := range w.Head.Types {
		if has&varianceFlag(t) != 0 {
			r.variance(of.Variance, column, rows.N, single, room)
		} else {
			clear(column)
		}
		for i, v := range column {
			sum := profile.Sum{N: rows.N[i], Value: rows.Values[i*types+t]}
			rows.Squares[i*types+t] = squares(of.Variance, sum, v, w.Scales[t])
		}
	}
	rows.Thread = readNumbers[profile.ThreadID](r, has&hasThread != 0, n)
	rows.Context = readNumbers[profile.ContextID](r, has&hasContext != 0, n)
	rows.Slot = readNumbers[uint32](r, has&hasSlot != 0, n)
	rows.Peer = readNumbers[profile.PeerID](r, has&hasPeer != 0, n)
	if has&hasGroups != 0 {
		w.Groups = make([]int64, n*types*store.Groups)
		ofType := make([]int64, n*store.Groups)
		for t, scale := range w.Scales {
			r.groups(ofType, values[t*n:(t+1)*n], room)
			for i, v := range ofType {
				w.Groups[(i/store.Groups*types+t)*store.Groups+i%store.Groups] = v * scale
			}
		}
	}
	w.Of, w.Minutes, w.Primary = r.facts(&w.Head, has)
	r.descriptions(has, w.Head.Types, true)
}

// facts reads what is known of a window beside its columns.
func (r *windowReader) facts(h *profile.Head, has uint64) (of int, minutes store.Minutes, primary string) {
	if has&hasOf != 0 {
		of = int(r.Small(31))
	}
	h.Instances, h.Rate, h.Slot = r.instances(has), r.rateOf(has), r.slots(has)
	h.Farewell = has&hasFarewell != 0
	if has&hasPushed != 0 {
		h.Origin = profile.OriginPushed
	}
	minutes = r.minutes(has)
	if has&hasPrimary != 0 {
		primary = r.Word()
	}
	return of, minutes, primary
}

// instances reads how many were recorded of how many, if that is told.
func (r *windowReader) instances(has uint64) (i profile.Instances) {
	if has&hasInstances != 0 {
		i.Recorded, i.Eligible = int(r.Small(32)), int(r.Small(32))
	}
	return i
}

// slots reads how long slots are, if that is told.
func (r *windowReader) slots(has uint64) time.Duration {
	if has&hasSlots == 0 {
		return 0
	}
	return time.Duration(r.Small(63))
}

// rateOf reads how often was sampled, if that is told.
func (r *windowReader) rateOf(has uint64) (rate profile.Rate) {
	if has&hasRate != 0 {
		rate = r.rate()
	}
	return rate
}
