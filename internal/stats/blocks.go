package stats

import (
	"math"
	"math/rand/v2"
	"time"
)

// A timer of one fixed period can run in step with the program: of a 10 ms loop
// it would see the same instant again and again. So time is cut into blocks, the
// same for all CPUs, and each CPU's period is drawn anew for each of them, evenly
// between 0.58 and 1.58 times the asked one (DrawPeriod). The width of one whole
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

// shortest is where periods begin: drawn evenly from there on, over the width of
// one, they make as many samples as the asked one does. The mean of 1/period is
// ln((shortest+1)/shortest), which is 1.
const shortest = 1 / (math.E - 1)

// DrawPeriod gives a period between 0.58 and 1.58 times the asked one.
func DrawPeriod(rng *rand.Rand, asked time.Duration) time.Duration {
	return time.Duration((shortest + rng.Float64()) * float64(asked))
}

// FirstWeight is the weight of the first sample of a block. Every other sample weighs one
// period.
//
// Each block restarts the timer, so half a period on average is left over when a block
// ends. The first sample makes up for it. This holds for any length of the block, even if
// a late wakeup makes it longer than was drawn.
func FirstWeight(period time.Duration) time.Duration { return period + period/2 }
