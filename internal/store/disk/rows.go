package disk

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
	hasExcess = 1 << iota
	hasThread
	hasContext
	hasSlot
	hasGroups
	hasOf        // number of windows that were merged into it
	hasInstances // numbers of instances, recorded and eligible
	hasRate      // sampling rate, and who decided it
	hasSlots     // length of slots
	hasTypes     // temporality and base of each type; without: deltas of their usual bases
	hasFarewell  // no window of the recording follows
)

// scratch is what rows are sorted and gathered in. It is used again: a server
// writes hundreds of windows a second.
type scratch struct {
	order  []int
	room   []uint64
	values []int64
	more   []uint64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// rows writes a window's rows; window.go tells how.
func (w *writer) rows(of *store.Window, leaves []uint32) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	rows := &of.Rows
	single := s.arrange(of, leaves)
	order, room := s.order, s.room
	base, more := s.excess(rows, order[single:])
	has := columnsOf(of)
	if base > 0 || slices.ContainsFunc(more, func(m uint64) bool { return m != 0 }) {
		has |= hasExcess
	}
	w.number(uint64(len(order)))
	w.number(uint64(single))
	w.number(has)
	w.leaves(room, leaves, order[:single])
	w.leaves(room, leaves, order[single:])
	w.counts(room, rows.N, order[single:])
	for t := range of.Head.Types {
		w.values(room, s.scaled(of, t), rows.N, order)
	}
	if has&hasExcess != 0 {
		w.number(uint64(base * baseParts))
		w.column(more)
	}
	writeNumbers(w, room, rows.Thread, order)
	writeNumbers(w, room, rows.Context, order)
	writeNumbers(w, room, rows.Slot, order)
	if of.Groups != nil {
		w.groups(room, of, order)
	}
	if of.Of != 0 {
		w.number(uint64(of.Of))
	}
	if i := of.Head.Instances; i != (profile.Instances{}) {
		w.number(uint64(i.Recorded))
		w.number(uint64(i.Eligible))
	}
	if of.Head.Rate != (profile.Rate{}) {
		w.rate(of.Head.Rate)
	}
	if of.Head.Slot != 0 {
		w.number(uint64(of.Head.Slot))
	}
	if described(of.Head.Types) {
		for i := range of.Head.Types {
			t := &of.Head.Types[i]
			w.number(uint64(t.Temporality))
			w.word(t.EncodedBase())
		}
	}
}

// writeNumbers writes a column of identifiers, unless there is none.
func writeNumbers[T ~uint32](w *writer, room []uint64, column []T, order []int) {
	if column == nil {
		return
	}
	for i, at := range order {
		room[i] = uint64(column[at])
	}
	w.column(room)
}

// readNumbers reads a column of n identifiers, if there is one.
func readNumbers[T ~uint32](r *reader, there bool, n int) []T {
	if !there {
		return nil
	}
	column := make([]T, n)
	readColumn(r, column)
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

// described tells whether some type is not a delta of its usual base.
func described(types []profile.ValueType) bool {
	return slices.ContainsFunc(types, func(t profile.ValueType) bool { return t.Temporality != profile.Delta || t.EncodedBase() != "" })
}

// readDescription reads the temporality and the base of a type.
func readDescription(r *reader) (profile.Temporality, string) {
	return profile.Temporality(r.small(8)), r.word()
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

// columnsOf returns the flags of what a window has, except hasExcess.
func columnsOf(of *store.Window) (has uint64) {
	rows := &of.Rows
	for i, there := range []bool{false, rows.Thread != nil, rows.Context != nil, rows.Slot != nil,
		of.Groups != nil, of.Of != 0, of.Head.Instances != (profile.Instances{}), of.Head.Rate != (profile.Rate{}), of.Head.Slot != 0,
		described(of.Head.Types), of.Head.Farewell} {
		if there {
			has |= 1 << i // as the constants are
		}
	}
	return has
}

// leaves writes by how much each leaf is above the one before, less one where
// none comes twice: of the hot ones, which are all there, nothing is left then.
func (w *writer) leaves(room []uint64, leaves []uint32, order []int) {
	before, least := int64(-1), uint64(1)
	for i, at := range order {
		room[i] = uint64(int64(leaves[at]) - before)
		before, least = int64(leaves[at]), min(least, room[i])
	}
	w.number(least)
	for i := range order {
		room[i] -= least
	}
	w.column(room[:len(order)])
}

// counts writes how many samples rows are of, less the least of them.
func (w *writer) counts(room []uint64, n []int64, order []int) {
	least := int64(0)
	for i, at := range order {
		if i == 0 || n[at] < least {
			least = n[at]
		}
	}
	w.signed(least)
	for i, at := range order {
		room[i] = uint64(n[at] - least)
	}
	w.column(room[:len(order)])
}

// values writes the values of a type, less what as many samples have on average.
func (w *writer) values(room []uint64, values, n []int64, order []int) {
	each := average(values, n, order)
	w.signed(each)
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

// The weights of a window's samples differ by its sampler's design, those of one
// row by chance as well. So one base is kept for all rows: a row of n samples is
// thought to have an excess of base*(1-1/n), and what it has above or below that
// is kept only if it is more than chance, as where windows of several rates were
// added up.
const (
	baseParts   = 4096
	excessParts = 8
	byChance    = 0.25
)

func usualExcess(base float64, n int64) float64 { return base * (1 - 1/float64(n)) }

// excess returns the base, and the deviation from it of each row of several samples.
func (s *scratch) excess(rows *profile.Rows, order []int) (base float64, more []uint64) {
	for near := range 3 { // the first is of all rows, the others of those near the one before
		excess, usual := 0.0, 0.0
		for _, at := range order {
			sum := rows.At(at).Sum(0)
			if ratio := sum.Excess(); sum.N > 1 && (near == 0 || math.Abs(ratio-usualExcess(base, sum.N)) <= byChance) {
				alike := profile.Alike(sum.N, sum.Value)
				excess, usual = excess+alike*ratio, usual+alike*usualExcess(1, sum.N)
			}
		}
		if usual > 0 {
			base = math.Round(baseParts*min(max(excess/usual, 0), 1<<30)) / baseParts
		}
	}
	s.more = s.more[:0]
	for _, at := range order {
		if sum := rows.At(at).Sum(0); sum.N > 1 {
			above := min(sum.Excess(), 1<<40) - usualExcess(base, sum.N)
			if math.Abs(above) <= byChance {
				above = 0
			}
			s.more = append(s.more, zigzag(int64(math.Round(excessParts*above))))
		}
	}
	return base, s.more
}

// groups writes which groups have values, and for each of these but the last a
// column: by how much it has more than its share of what the row has left.
func (w *writer) groups(room []uint64, of *store.Window, order []int) {
	scale := max(of.Scales[0], 1)
	which := byte(0)
	for i, v := range of.Groups {
		if v != 0 {
			which |= 1 << (i % store.Groups)
		}
	}
	*w = append(*w, which)
	left := make([]int64, len(order))
	for _, at := range order {
		left[at] = of.Rows.Values[at*of.Rows.Types] / scale
	}
	for ; which&(which-1) != 0; which &= which - 1 {
		g, groups := bits.TrailingZeros8(which), int64(bits.OnesCount8(which))
		for i, at := range order {
			v := of.Groups[at*store.Groups+g] / scale
			room[i] = zigzag(v - left[at]/groups)
			left[at] -= v
		}
		w.column(room)
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
		readColumn(r, more)
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

// excess reads what rows of several samples have; n says which those are, none of
// the single ones.
func (r *reader) excess(out []float32, n []int64, single int, room []int64) {
	clear(out[:single])
	out, n = out[single:], n[single:]
	several := room[:0]
	for _, n := range n {
		if n > 1 {
			several = append(several, 0)
		}
	}
	base := float64(r.number()) / baseParts
	readColumn(r, several)
	for i, n := range n {
		out[i] = 0
		if n > 1 {
			out[i] = float32(max(0, usualExcess(base, n)+float64(unzigzag(several[0]))/excessParts))
			several = several[1:]
		}
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
func readLeaves[T ~uint32](r *reader, out []T, size int64) {
	least := r.small(1)
	readColumn(r, out)
	last := uint64(math.MaxUint64)
	for i, more := range out {
		last += uint64(more) + least
		out[i] = T(last)
	}
	if n := len(out); n > 0 && (last > math.MaxUint32 || int64(last) >= size || out[0] > out[n-1]) { // the first may be before 0
		r.bad, r.data = true, nil
	}
}

// counts reads how many samples each row is of.
func (r *reader) counts(out []int64, single int) {
	for i := range out[:single] {
		out[i] = 1
	}
	least := r.signed()
	readColumn(r, out[single:])
	for i := range out[single:] {
		out[single+i] += least
	}
}

// values reads those of a type.
func (r *reader) values(out, n []int64, single int) {
	each := r.signed()
	readColumn(r, out)
	one := expected(each, 1)
	for i, v := range out[:single] {
		out[i] = unzigzag(v) + one
	}
	for i := single; i < len(out); i++ {
		out[i] = unzigzag(out[i]) + expected(each, n[i])
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
	room, excess := make([]int64, 2*n), make([]float32, n)
	if has&hasExcess != 0 {
		r.excess(excess, rows.N, single, room)
	}
	if types > 0 {
		for i, more := range excess {
			rows.Squares[i*types] = profile.Alike(rows.N[i], rows.Values[i*types]) * (1 + float64(more))
		}
	}
	rows.Thread = readNumbers[profile.ThreadID](r, has&hasThread != 0, n)
	rows.Context = readNumbers[profile.ContextID](r, has&hasContext != 0, n)
	rows.Slot = readNumbers[uint32](r, has&hasSlot != 0, n)
	if has&hasGroups != 0 {
		w.Groups = make([]int64, n*store.Groups)
		r.groups(w.Groups, values[:n], room)
		for i := range w.Groups {
			w.Groups[i] *= w.Scales[0]
		}
	}
	if has&hasOf != 0 {
		w.Of = int(r.small(31))
	}
	w.Head.Instances, w.Head.Rate, w.Head.Slot = r.instances(has), r.rateOf(has), r.slots(has)
	if has&hasTypes != 0 {
		for i := range w.Head.Types {
			temporality, base := readDescription(r)
			w.Head.Types[i].Temporality = temporality
			w.Head.Types[i].DecodeBase(base)
		}
	}
	w.Head.Farewell = has&hasFarewell != 0
}

// instances reads how many were recorded of how many, if that is told.
func (r *reader) instances(has uint64) (i profile.Instances) {
	if has&hasInstances != 0 {
		i.Recorded, i.Eligible = int(r.small(32)), int(r.small(32))
	}
	return i
}

// slots reads how long slots are, if that is told.
func (r *reader) slots(has uint64) time.Duration {
	if has&hasSlots == 0 {
		return 0
	}
	return time.Duration(r.small(63))
}

// rateOf reads how often was sampled, if that is told.
func (r *reader) rateOf(has uint64) (rate profile.Rate) {
	if has&hasRate != 0 {
		rate = r.rate()
	}
	return rate
}
