package codec

import (
	"math"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// A variance column. It depends on how the variance of the type is known.
//
//	from weights  base, then a column of the rows of several samples: the excess above that
//	              of samples of equal weight, less what is usual
//	measured      a column of all rows: the upper 16 bits of the variance in squared scales,
//	              as a float32, which err by 0.4% at most
//
// The weights of a window's samples differ by its sampler's design, those of one row by
// chance as well. So one base is stored for all rows: a row of n samples is expected to have
// an excess of base*(1-1/n), and the difference is stored only if it is more than chance, as
// where windows of several rates were merged.
const (
	baseParts   = 4096
	excessParts = 8
	byChance    = 0.25
)

// variance is a variance column to be written.
type variance struct {
	rule   profile.Variance
	base   float64
	column []uint64
	some   bool // it is not the default
}

// varianceFlag returns the flag of type t's variance column.
func varianceFlag(t int) uint64 {
	if t == 0 {
		return hasVariance
	}
	return hasVariances
}

func usualExcess(base float64, n int64) float64 { return base * (1 - 1/float64(n)) }

// varianceOf returns the variance column of type t.
func varianceOf(of *store.Window, t int, order []int, single int) variance {
	v := variance{rule: of.Head.Types[t].Variance}
	if v.rule == profile.FromWeights {
		v.fromWeights(&of.Rows, t, order[single:])
	} else {
		v.measured(&of.Rows, t, order, of.Scales[t])
	}
	for _, n := range v.column {
		v.some = v.some || n != 0
	}
	v.some = v.some || v.base > 0
	return v
}

func (v *variance) fromWeights(rows *profile.Rows, t int, order []int) {
	for near := range 3 { // the first is of all rows, the others of those near the one before
		excess, usual := 0.0, 0.0
		for _, at := range order {
			sum := rows.At(at).Sum(t)
			if ratio := sum.Excess(); sum.N > 1 && (near == 0 || math.Abs(ratio-usualExcess(v.base, sum.N)) <= byChance) {
				alike := profile.Alike(sum.N, sum.Value)
				excess, usual = excess+alike*ratio, usual+alike*usualExcess(1, sum.N)
			}
		}
		if usual > 0 {
			v.base = math.Round(baseParts*min(max(excess/usual, 0), 1<<30)) / baseParts
		}
	}
	for _, at := range order {
		if sum := rows.At(at).Sum(t); sum.N > 1 {
			above := min(sum.Excess(), 1<<40) - usualExcess(v.base, sum.N)
			if math.Abs(above) <= byChance {
				above = 0
			}
			v.column = append(v.column, zigzag(int64(math.Round(excessParts*above))))
		}
	}
}

func (v *variance) measured(rows *profile.Rows, t int, order []int, scale int64) {
	squared := float64(max(scale, 1)) * float64(max(scale, 1))
	for _, at := range order {
		bits := math.Float32bits(float32(min(max(rows.At(at).Sum(t).Squares/squared, 0), math.MaxFloat32/2)))
		v.column = append(v.column, uint64(bits+1<<15)>>16)
	}
}

func (w *Writer) variance(v *variance) {
	if v.rule == profile.FromWeights {
		w.Number(uint64(v.base * baseParts))
	}
	w.column(v.column)
}

// variance reads a variance column: excesses, or variances in squared scales.
func (r *windowReader) variance(rule profile.Variance, out []float32, n []int64, single int, room []int64) {
	if rule == profile.FromWeights {
		r.excess(out, n, single, room)
		return
	}
	readColumn(&r.Reader, room[:len(out)])
	for i, bits := range room[:len(out)] {
		if out[i] = math.Float32frombits(uint32(bits) << 16); !(out[i] >= 0) || bits>>16 != 0 {
			r.Bad = true
		}
	}
}

// squares returns the variance of a row, of which column is what its column has.
func squares(rule profile.Variance, sum profile.Sum, column float32, scale int64) float64 {
	if rule == profile.FromWeights {
		return profile.Alike(sum.N, sum.Value) * (1 + float64(column))
	}
	return float64(column) * float64(scale) * float64(scale)
}

// excess reads the excesses of rows of several samples; n says which those are, none of the
// single ones.
func (r *windowReader) excess(out []float32, n []int64, single int, room []int64) {
	clear(out[:single])
	out, n = out[single:], n[single:]
	several := room[:0]
	for _, n := range n {
		if n > 1 {
			several = append(several, 0)
		}
	}
	base := float64(r.Number()) / baseParts
	readColumn(&r.Reader, several)
	for i, n := range n {
		out[i] = 0
		if n > 1 {
			out[i] = float32(max(0, usualExcess(base, n)+float64(unzigzag(several[0]))/excessParts))
			several = several[1:]
		}
	}
}
