package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestBlockLength(t *testing.T) {
	for _, c := range []struct{ period, want time.Duration }{
		{50 * time.Microsecond, 50 * time.Millisecond}, // 20,000 Hz
		{time.Millisecond, 50 * time.Millisecond},
		{5 * time.Millisecond, 100 * time.Millisecond},
		{10 * time.Millisecond, 200 * time.Millisecond},
		{50 * time.Millisecond, 400 * time.Millisecond},
		{100 * time.Millisecond, 400 * time.Millisecond},
		{time.Second, 4 * time.Second}, // never fewer than 4 periods
	} {
		if got := BlockLength(c.period); got != c.want {
			t.Errorf("blocks of a period of %v are %v long, want %v", c.period, got, c.want)
		}
	}
}

// The weights of a block's samples add up to its length on average, even if the block ends
// late, and the number of samples fits the requested rate.
func TestBlocksAreUnbiased(t *testing.T) {
	for _, hz := range []float64{1, 19, 99, 999, 4999, 20000} {
		rng := rand.New(rand.NewPCG(1, uint64(hz)))
		mean := time.Duration(float64(time.Second) / hz)
		var watched, weighed, n float64
		for i := range 20000 {
			length, period := DrawBlock(rng, mean), DrawPeriod(rng, mean)
			if i%2 == 0 {
				length += time.Duration(rng.ExpFloat64() * float64(10*time.Millisecond))
			}
			k := math.Floor(float64(length) / float64(period)) // the timer starts with the block
			weighed += (k-1)*float64(period) + float64(FirstWeight(period))
			watched += float64(length)
			n += k
		}
		if ratio := weighed / watched; math.Abs(ratio-1) > 0.01 {
			t.Errorf("%v Hz: weights add up to %.3f of the time watched", hz, ratio)
		}
		if got := n / (watched / 1e9); got < 0.85*hz || got > 1.15*hz {
			t.Errorf("%v Hz: got %.1f samples a second", hz, got)
		}
	}
}

// In step with nothing: over blocks, every phase of a loop at or above the
// sampling period is seen alike.
func TestBlocksAreNeverInLockStep(t *testing.T) {
	d := Randomised(100)
	for _, loop := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 15 * time.Millisecond, 100 * time.Millisecond} {
		var phases [10]float64
		var total float64
		for _, s := range d.Draw(rand.New(rand.NewPCG(7, 7)), 10*time.Minute) {
			phases[int(10*(s.At%loop)/loop)] += float64(s.Weight)
			total += float64(s.Weight)
		}
		for i, p := range phases {
			if share := p / total; math.Abs(share-0.1) > 0.015 {
				t.Errorf("loop of %v: phase %d has %.3f of the samples, not 0.1", loop, i, share)
			}
		}
	}
}
