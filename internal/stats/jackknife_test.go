package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestJackknifeOfMeans compares with what is known of means: where all groups
// are alike in size the jackknife's error is that of the mean of shares.
func TestJackknifeOfMeans(t *testing.T) {
	part, whole := []float64{1, 2, 3, 6}, []float64{10, 10, 10, 10}
	got, known := JackknifeShare(part, whole)
	se := math.Sqrt((0.2*0.2 + 0.1*0.1 + 0 + 0.3*0.3) / 3 / 4)
	want := Interval{0.3, 0.3 - 3.1824*se, 0.3 + 3.1824*se}
	if !known || math.Abs(got.Value-want.Value) > 1e-12 || math.Abs(got.High-want.High) > 1e-12 || got.Low != max(want.Low, 0) {
		t.Errorf("%+v, %v; want %+v", got, known, want)
	}
	for _, few := range [][]float64{nil, {0, 0}, {5, 0, 0}} {
		if got, known := JackknifeShare(make([]float64, len(few)), few); known {
			t.Errorf("of groups %v: %+v", few, got)
		}
	}
}

// TestJackknifeCovers has eight groups of instances whose shares differ: the
// truth of all instances lies within the interval as often as it says.
func TestJackknifeCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rounds = 4000
	covered := 0
	for range rounds {
		part, whole := make([]float64, 8), make([]float64, 8)
		for range 64 {
			g, w := r.IntN(8), 50+100*r.Float64()
			whole[g] += w
			part[g] += w * min(max(0.3+0.1*r.NormFloat64(), 0), 1)
		}
		if i, known := JackknifeShare(part, whole); known && i.Contains(0.3) {
			covered++
		}
	}
	if c := float64(covered) / rounds; c < 0.93 || c > 0.97 {
		t.Errorf("%.1f%% of the intervals hold the truth", 100*c)
	}
}
