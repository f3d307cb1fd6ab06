package render

import (
	"math"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// curve tabulates an interval as a function of the share, for a whole of N
// effective samples.
type curve struct {
	N      float64      `json:"n"`
	Points [][3]float64 `json:"points"` // share, lo, hi
}

// curveSteps is how often the effective number of samples is halved: parts
// whose weights vary more than the whole's are worth fewer samples.
const curveSteps = 8

// curves tabulate a column's intervals, so that a page can give those of
// anything it adds up (a search, a merged function) while statistics stay in
// one place. One curve is for the whole's own effective number of samples,
// the others for a half, a quarter ... of it; within one, points lie a sample
// apart near both ends and 15% apart further in. Interpolating between them is
// within 2% of the interval's width (TestCurves).
func curves(c certainty, column int) []curve {
	if !c.known(column) {
		return nil
	}
	whole := c.whole[column]
	n := effective(whole)
	var out []curve
	for range curveSteps {
		part := profile.Sum{N: max(1, int64(math.Round(n))), Value: whole.Value, Squares: squared(whole.Value) / n}
		out = append(out, curve{N: digits6(n), Points: curvePoints(part, n)})
		if n /= 2; n < 1 {
			break
		}
	}
	return out
}

// effective is as many equally weighted samples as would be as sure of the whole.
func effective(whole profile.Sum) float64 {
	if whole.Squares <= 0 {
		return float64(whole.N)
	}
	return max(1, min(squared(whole.Value)/whole.Squares, float64(whole.N)))
}

func squared(v int64) float64 { return float64(v) * float64(v) }

func curvePoints(whole profile.Sum, n float64) [][3]float64 {
	counts := curveCounts(n)
	points := make([][3]float64, 0, len(counts))
	for _, k := range counts {
		p := k / n
		part := profile.Sum{N: int64(math.Round(k)), Value: int64(math.Round(p * float64(whole.Value))), Squares: p * whole.Squares}
		share := stats.Share(sums(part), sums(whole))
		points = append(points, [3]float64{digits6(p), digits6(max(0, share.Low)), digits6(min(1, share.High))})
	}
	return points
}

// curveCounts lists numbers of samples from 0 to n, close together at both ends.
func curveCounts(n float64) []float64 {
	var low []float64
	for k := 0.0; k < n/2; k = max(k+1, math.Floor(k*1.15)) {
		low = append(low, k)
	}
	counts := append([]float64(nil), low...)
	for i := len(low) - 1; i >= 0; i-- {
		counts = append(counts, n-low[i])
	}
	return counts
}

// digits6 rounds to six significant digits, of the distance to 1 where that is the smaller.
func digits6(x float64) float64 {
	size := math.Abs(x)
	if x > 0 && x < 1 {
		size = min(x, 1-x)
	}
	if size == 0 {
		return x
	}
	scale := math.Pow(10, 6-math.Ceil(math.Log10(size)))
	return math.Round(x*scale) / scale
}
