package cpu

import (
	"math/rand/v2"
	"time"
)

// block is how long one drawn period holds.
//
// A timer of one fixed period can run in step with the program: of a 10 ms loop
// it would see the same instant again and again. So each CPU's period is drawn
// anew for every block, evenly between half and one and a half times the asked
// one. The width of one whole period matters: whatever cycle the program has at
// or above the sampling rate, its phase is then uncorrelated from sample to
// sample, on average over blocks. One draw a sample would need a second timer
// interrupt each; a block of 20 samples costs a twentieth of that.
func block(period time.Duration) time.Duration {
	return min(max(20*period, 20*time.Millisecond), 400*time.Millisecond)
}

// targetBlock is the length of blocks where the timer runs only while a target
// does. A new period starts the timer afresh, so a thread that runs rarely must
// be left alone long enough to be sampled at all.
const targetBlock = time.Second

// drawTarget is draw for such timers. How much of the block the target runs is
// not known, so the weight is the period itself.
func drawTarget(r *rand.Rand, period time.Duration) (length, timer time.Duration, weight uint64) {
	length = time.Duration((0.75 + 0.5*r.Float64()) * float64(targetBlock))
	timer = time.Duration((0.5 + r.Float64()) * float64(period))
	return length, timer, uint64(timer)
}

// draw gives the length of the next block, its timer period, and the weight
// each of its samples stands for.
//
// The timer starts afresh with each block, so that half a period on average is
// left over at its end. The weight makes up for that: it is the block's length
// over the expected number of samples, length/period - 1/2.
func draw(r *rand.Rand, period time.Duration) (length, timer time.Duration, weight uint64) {
	length = time.Duration((0.75 + 0.5*r.Float64()) * float64(block(period)))
	timer = time.Duration((0.5 + r.Float64()) * float64(period))
	expected := float64(length)/float64(timer) - 0.5
	if expected < 0.5 { // blocks shorter than their period: see samples as they come
		return length, timer, uint64(timer)
	}
	return length, timer, uint64(float64(length)/expected + 0.5)
}
