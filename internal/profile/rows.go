package profile

import (
	"iter"
	"math"
	"slices"
)

// Rows holds the samples of a window, added up, in columns: row i is entry i of each column.
// Thread, Context, Slot and Peer can be nil, which means that all entries are zero.
type Rows struct {
	Types   int // number of value types
	Stack   []StackID
	Thread  []ThreadID
	Context []ContextID
	Slot    []uint32 // slot of the window in which it was sampled, plus one; 0: unknown
	Peer    []PeerID
	N       []int64 // samples
	// Per row, an entry for each value type.
	Values  []int64   // sums of the samples' weights
	Squares []float64 // the variances of these sums, as ValueType.Variance says
}

// Row is a view of one row, whose slices are parts of the columns, or a row to be added.
type Row struct {
	Stack   StackID
	Thread  ThreadID
	Context ContextID
	Slot    uint32
	Peer    PeerID
	N       int64
	Values  []int64
	Squares []float64
}

// RowKey is what rows of a window are told apart by: rows with equal keys can be added up.
type RowKey struct {
	Stack   StackID
	Thread  ThreadID
	Context ContextID
	Slot    uint32
	Peer    PeerID
}

// Key returns the row's key.
func (r Row) Key() RowKey { return RowKey{r.Stack, r.Thread, r.Context, r.Slot, r.Peer} }

// RowsOf returns the given rows, with the given number of value types.
func RowsOf(types int, rows ...Row) Rows {
	out := Rows{Types: types}
	for _, row := range rows {
		out.Append(row)
	}
	return out
}

// MakeRows returns n rows that are all zero, with the given number of value types.
func MakeRows(types, n int) Rows {
	return Rows{Types: types, Stack: make([]StackID, n), N: make([]int64, n), Values: make([]int64, n*types), Squares: make([]float64, n*types)}
}

// Sum returns what the row adds to a sum of value type t.
func (r Row) Sum(t int) Sum {
	s := Sum{N: r.N}
	if t < len(r.Values) {
		s.Value = r.Values[t]
	}
	if t < len(r.Squares) {
		s.Squares = r.Squares[t]
	}
	return s
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.Stack) }

// At returns row i.
func (r *Rows) At(i int) Row {
	from, to := i*r.Types, (i+1)*r.Types
	return Row{
		Stack: r.Stack[i], Thread: entry(r.Thread, i), Context: entry(r.Context, i), Slot: entry(r.Slot, i), Peer: entry(r.Peer, i), N: r.N[i],
		Values: r.Values[from:to:to], Squares: r.Squares[from:to:to],
	}
}

// All yields each row with its index.
func (r *Rows) All() iter.Seq2[int, Row] {
	return func(yield func(int, Row) bool) {
		for i := range r.Stack {
			if !yield(i, r.At(i)) {
				return
			}
		}
	}
}

// Append appends a copy of a row. Values and squares that it lacks are zero, and those of more
// types than the rows have are dropped.
func (r *Rows) Append(row Row) {
	i := len(r.Stack)
	r.Stack = append(r.Stack, row.Stack)
	r.N = append(r.N, row.N)
	r.Values = appendEntries(r.Values, row.Values, r.Types)
	r.Squares = appendEntries(r.Squares, row.Squares, r.Types)
	r.Thread = appended(r.Thread, i, row.Thread)
	r.Context = appended(r.Context, i, row.Context)
	r.Slot = appended(r.Slot, i, row.Slot)
	r.Peer = appended(r.Peer, i, row.Peer)
}

// Set replaces row i.
func (r *Rows) Set(i int, row Row) {
	r.Stack[i], r.N[i] = row.Stack, row.N
	clear(r.Values[i*r.Types+copy(r.Values[i*r.Types:(i+1)*r.Types], row.Values) : (i+1)*r.Types])
	clear(r.Squares[i*r.Types+copy(r.Squares[i*r.Types:(i+1)*r.Types], row.Squares) : (i+1)*r.Types])
	r.SetThread(i, row.Thread)
	r.SetContext(i, row.Context)
	r.SetSlot(i, row.Slot)
	r.SetPeer(i, row.Peer)
}

// SetThread sets the thread of row i.
func (r *Rows) SetThread(i int, id ThreadID) { r.Thread = set(r.Thread, len(r.Stack), i, id) }

// SetContext sets the context of row i.
func (r *Rows) SetContext(i int, id ContextID) { r.Context = set(r.Context, len(r.Stack), i, id) }

// SetSlot sets the slot of row i.
func (r *Rows) SetSlot(i int, slot uint32) { r.Slot = set(r.Slot, len(r.Stack), i, slot) }

// SetPeer sets the peer of row i.
func (r *Rows) SetPeer(i int, id PeerID) { r.Peer = set(r.Peer, len(r.Stack), i, id) }

// AddTo adds the samples, values and squares of a row to row i, sign times.
func (r *Rows) AddTo(i int, row Row, sign int64) {
	at := i * r.Types
	r.N[i] += sign * row.N
	for t, v := range row.Values[:min(len(row.Values), r.Types)] {
		r.Values[at+t] += sign * v
	}
	for t, s := range row.Squares[:min(len(row.Squares), r.Types)] {
		r.Squares[at+t] += float64(sign) * s
	}
}

// weigh multiplies the values of type t by a weight, and their variances by its square.
func (r *Rows) weigh(t int, by float64) {
	for at := t; at < len(r.Values); at += r.Types {
		r.Values[at] = int64(math.Round(float64(r.Values[at]) * by))
		r.Squares[at] *= by * by
	}
}

// Total returns the sum of value type t over all rows.
func (r *Rows) Total(t int) (total Sum) {
	for _, row := range r.All() {
		total.Add(row.Sum(t))
	}
	return total
}

// Clone returns a copy that shares nothing.
func (r *Rows) Clone() Rows {
	return Rows{Types: r.Types, Stack: slices.Clone(r.Stack), Thread: slices.Clone(r.Thread), Context: slices.Clone(r.Context),
		Slot: slices.Clone(r.Slot), Peer: slices.Clone(r.Peer), N: slices.Clone(r.N), Values: slices.Clone(r.Values), Squares: slices.Clone(r.Squares)}
}

// Only returns a copy with one of the value types.
func (r *Rows) Only(t int) Rows {
	one := Rows{Types: 1, Stack: slices.Clone(r.Stack), Thread: slices.Clone(r.Thread), Context: slices.Clone(r.Context),
		Slot: slices.Clone(r.Slot), Peer: slices.Clone(r.Peer), N: slices.Clone(r.N)}
	for i := range r.Stack {
		one.Values = append(one.Values, r.Values[i*r.Types+t])
		one.Squares = append(one.Squares, r.Squares[i*r.Types+t])
	}
	return one
}

// Swap exchanges two rows.
func (r *Rows) Swap(i, j int) {
	swap(r.Stack, i, j)
	swap(r.Thread, i, j)
	swap(r.Context, i, j)
	swap(r.Slot, i, j)
	swap(r.Peer, i, j)
	swap(r.N, i, j)
	for t := range r.Types {
		swap(r.Values, i*r.Types+t, j*r.Types+t)
		swap(r.Squares, i*r.Types+t, j*r.Types+t)
	}
}

// Truncate drops all rows after the first n.
func (r *Rows) Truncate(n int) {
	r.Stack, r.N = r.Stack[:n], r.N[:n]
	r.Values, r.Squares = r.Values[:n*r.Types], r.Squares[:n*r.Types]
	r.Thread, r.Context, r.Slot, r.Peer = cut(r.Thread, n), cut(r.Context, n), cut(r.Slot, n), cut(r.Peer, n)
}

// appendEntries appends n entries of a row, which may have fewer or more.
func appendEntries[T int64 | float64](column, row []T, n int) []T {
	have := min(len(row), n)
	column = append(column, row[:have]...)
	for range n - have {
		column = append(column, 0)
	}
	return column
}

// entry returns entry i of a column that may be nil.
func entry[T ~uint32](column []T, i int) T {
	if column == nil {
		return 0
	}
	return column[i]
}

// appended appends entry n to a column that may be nil.
func appended[T ~uint32](column []T, n int, v T) []T {
	if column == nil {
		if v == 0 {
			return nil
		}
		column = make([]T, n, n+1)
	}
	return append(column, v)
}

// set sets entry i of a column of n entries that may be nil.
func set[T ~uint32](column []T, n, i int, v T) []T {
	if column == nil {
		if v == 0 {
			return nil
		}
		column = make([]T, n)
	}
	column[i] = v
	return column
}

func swap[T any](column []T, i, j int) {
	if column != nil {
		column[i], column[j] = column[j], column[i]
	}
}

func cut[T any](column []T, n int) []T {
	if column == nil {
		return nil
	}
	return column[:n]
}
