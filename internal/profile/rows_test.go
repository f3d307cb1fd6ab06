package profile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// randomRow has as many values and squares as the types, mostly.
func randomRow(r *rand.Rand, types int) Row {
	row := Row{Stack: StackID(r.IntN(9)), N: int64(r.IntN(5)), Thread: ThreadID(r.IntN(3) * r.IntN(2)), Context: ContextID(r.IntN(2) * r.IntN(2)), Slot: uint32(r.IntN(2) * r.IntN(3))}
	for range types + r.IntN(2) {
		row.Values = append(row.Values, int64(r.IntN(100)-20))
	}
	for range r.IntN(types + 2) {
		row.Squares = append(row.Squares, float64(r.IntN(1000)))
	}
	return row
}

// fitted pads or cuts a row to the given number of types.
func fitted(row Row, types int) Row {
	values, squares := make([]int64, types), make([]float64, types)
	copy(values, row.Values)
	copy(squares, row.Squares)
	row.Values, row.Squares = values, squares
	return row
}

// TestRows does at random what can be done to rows, and the same to a list of rows.
func TestRows(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		types := r.IntN(3)
		rows, want := Rows{Types: types}, []Row{}
		for range 60 {
			any, row := r.IntN(max(len(want), 1)), randomRow(r, types)
			switch op := r.IntN(9); {
			case op < 4 || len(want) == 0:
				rows.Append(row)
				want = append(want, fitted(row, types))
			case op == 4:
				rows.Set(any, row)
				want[any] = fitted(row, types)
			case op == 5:
				sign := int64(1 - 2*r.IntN(2))
				rows.AddTo(any, row, sign)
				add(&want[any], fitted(row, types), sign)
			case op == 6:
				other := r.IntN(len(want))
				rows.Swap(any, other)
				want[any], want[other] = want[other], want[any]
			case op == 7:
				rows.SetThread(any, row.Thread)
				rows.SetContext(any, row.Context)
				rows.SetSlot(any, row.Slot)
				want[any].Thread, want[any].Context, want[any].Slot = row.Thread, row.Context, row.Slot
			case op == 8:
				rows = rows.Clone()
			}
			equalRows(t, &rows, want)
		}
		if types > 1 {
			only := rows.Only(1)
			for i := range want {
				want[i].Values, want[i].Squares = want[i].Values[1:2], want[i].Squares[1:2]
			}
			equalRows(t, &only, want)
		}
	}
}

func add(to *Row, row Row, sign int64) {
	to.N += sign * row.N
	for i := range to.Values {
		to.Values[i] += sign * row.Values[i]
		to.Squares[i] += float64(sign) * row.Squares[i]
	}
}

func equalRows(t *testing.T, rows *Rows, want []Row) {
	t.Helper()
	if rows.Len() != len(want) {
		t.Fatalf("%d rows, want %d", rows.Len(), len(want))
	}
	var n, first int64
	for i, row := range rows.All() {
		if got, want := fmt.Sprint(row), fmt.Sprint(want[i]); got != want {
			t.Fatalf("row %d is %s, want %s", i, got, want)
		}
		n, first = n+row.N, first+row.Sum(0).Value
	}
	if total := rows.Total(0); total.N != n || total.Value != first {
		t.Fatalf("total %+v, want %d samples of %d", total, n, first)
	}
}

// TestSpread compares weights with their definition.
func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 100 {
		var s Sum
		for range 1 + r.IntN(20) {
			weight := int64(1 + r.IntN(1000))
			s.Add(Sum{1, weight, float64(weight) * float64(weight)})
		}
		mean, deviations := float64(s.Value)/float64(s.N), s.Squares
		deviations -= 2*mean*float64(s.Value) - float64(s.N)*mean*mean
		if got := s.Spread(); s.N > 1 && math.Abs(got-deviations) > 1e-6*s.Squares {
			t.Errorf("the spread of %+v is %g, want the sum of squared deviations %g", s, got, deviations)
		}
		if got := Alike(s.N, s.Value) * (1 + s.Excess()); math.Abs(got-s.Squares) > 1e-6*s.Squares {
			t.Errorf("%+v has an excess of %g", s, s.Excess())
		}
	}
	for _, s := range []Sum{{}, {1, 5, 25}, {3, 9, 0}, {2, 0, 0}} {
		if s.Spread() != 0 || s.Excess() != 0 {
			t.Errorf("%+v spreads by %g", s, s.Spread())
		}
	}
	if got := FromWeights.Known(Sum{3, 9, 0}); got.Squares != 27 {
		t.Errorf("squares of equal weights %g", got.Squares)
	}
}
