package granularity

import (
	"math"
	"slices"
)

// Distribution is what many values are like.
type Distribution struct {
	N        int     `json:"n"`
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
	Min      float64 `json:"min"`
	P10      float64 `json:"p10"`
	Median   float64 `json:"median"`
	P90      float64 `json:"p90"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
	Bins     []Bin   `json:"bins"`
}

// Bin counts the values from one edge up to the next bin's; the last takes the
// greatest too.
type Bin struct {
	From float64 `json:"from"`
	N    int     `json:"n"`
}

// Deviation is the root of the variance.
func (d *Distribution) Deviation() float64 { return math.Sqrt(d.Variance) }

// distribution sorts values.
func distribution(values []float64) Distribution {
	d := Distribution{N: len(values), Bins: []Bin{}}
	if d.N == 0 {
		return d
	}
	slices.Sort(values)
	for _, v := range values {
		d.Mean += v / float64(d.N)
	}
	for _, v := range values {
		d.Variance += (v - d.Mean) * (v - d.Mean) / float64(max(d.N-1, 1))
	}
	at := func(part float64) float64 { return values[int(part*float64(d.N-1)+0.5)] }
	d.Min, d.P10, d.Median, d.P90, d.P99, d.Max = values[0], at(0.1), at(0.5), at(0.9), at(0.99), values[d.N-1]
	d.Bins = bins(values)
	return d
}

const (
	mostBins = 12
	// wideRange is from how many times the least value on the greatest is too
	// far away for bins of one width: theirs then grow by a factor.
	wideRange = 20
)

// bins counts sorted values.
func bins(values []float64) (out []Bin) {
	low, high := values[0], values[len(values)-1]
	if low == high {
		return []Bin{{low, len(values)}}
	}
	edge := func(i int) float64 { return low + (high-low)*float64(i)/mostBins }
	if low > 0 && high > wideRange*low {
		edge = func(i int) float64 { return low * math.Pow(high/low, float64(i)/mostBins) }
	}
	below := 0
	for i := range mostBins {
		upTo := len(values)
		if i < mostBins-1 {
			upTo, _ = slices.BinarySearch(values, edge(i+1))
		}
		out = append(out, Bin{edge(i), upTo - below})
		below = upTo
	}
	return out
}
