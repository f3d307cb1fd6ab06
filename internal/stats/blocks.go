package stats

import (
	"math/rand/v2"
	"time"
)

// A timer of one fixed period can run in step with the program: of a 10 ms loop
// it would see the same instant again and again. So time is cut into blocks, the
// same for all CPUs, and each CPU's period is drawn anew for each of them, evenly
// between half and one and a half times the asked one. The width of one whole
// period matters: whatever cycle the program has at or above the sampling rate,
// its phase is then uncorrelated from sample to sample, on average over blocks.
// One draw a sample would need a second timer interrupt each, and each draw wakes
// the sampler: so a block is long enough for that to cost next to nothing.
const (
	blockPeriods = 20
	minBlock     = 50 * time.Millisecond
	maxBlock     = 400 * time.Millisecond
	// leastPeriods goes before maxBlock: a timer that starts afresh more often
	// than it fires takes no samples at all.
	leastPeriods = 4
)

// BlockLength is the mean length of a block: 20 periods, between 50 and 400 ms,
// but never less than 4 periods.
func BlockLength(period time.Duration) time.Duration {
	return max(min(max(blockPeriods*period, minBlock), maxBlock), leastPeriods*period)
}

// DrawBlock gives the length of the next block, within a quarter of the mean.
func DrawBlock(rng *rand.Rand, period time.Duration) time.Duration {
	return DrawLength(rng, BlockLength(period))
}

// DrawLength gives a length within a quarter of the mean.
func DrawLength(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration((0.75 + 0.5*rng.Float64()) * float64(mean))
}

// DrawPeriod gives a period between half and one and a half times the mean.
func DrawPeriod(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration((0.5 + rng.Float64()) * float64(mean))
}

// BlockWeight is what each sample of a block stands for.
//
// The timer starts afresh with each block, so that half a period on average is
// left over at its end. The weight makes up for that: it is the block's length
// over the expected number of samples, length/period - 1/2.
func BlockWeight(length, period time.Duration) time.Duration {
	expected := float64(length)/float64(period) - 0.5
	return time.Duration(float64(length)/expected + 0.5)
}
