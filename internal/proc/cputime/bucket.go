package cputime

import (
	"sync"
	"time"
)

// Bucket lets work take CPU time at a rate, as a token bucket does. Work that has
// begun is never interrupted: what it takes too much is waited for before the next.
// Its zero value bounds nothing.
type Bucket struct {
	mu     sync.Mutex    // guards all below
	cores  float64       // at which it fills; 0: no bound
	left   time.Duration // negative: it is owed
	filled time.Time     // up to when
}

// bucketHolds is how much time a bucket saves up: of so long without work.
const bucketHolds = 10 * time.Second

// SetRate bounds what is taken from now on to a part of a core; 0 bounds nothing.
func (b *Bucket) SetRate(cores float64) { b.setRate(cores, time.Now()) }

func (b *Bucket) setRate(cores float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cores == 0 {
		b.left = 0 // what was taken without a bound is forgiven
	} else {
		b.fill(now)
	}
	b.cores, b.filled = cores, now
	b.left = min(b.left, b.holds())
}

// Bounded tells whether there is a bound.
func (b *Bucket) Bounded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cores > 0
}

// Wait tells how long it takes until work may begin; 0: it may now.
func (b *Bucket) Wait() time.Duration { return b.wait(time.Now()) }

func (b *Bucket) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cores == 0 {
		return 0
	}
	b.fill(now)
	if b.left > 0 {
		return 0
	}
	return max(time.Duration(float64(-b.left)/b.cores), time.Millisecond)
}

// Take takes what work has used.
func (b *Bucket) Take(used time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left -= used
}

// fill adds what has come in since it was done last. The lock is held.
func (b *Bucket) fill(now time.Time) {
	in := time.Duration(b.cores * float64(now.Sub(b.filled)))
	b.left, b.filled = min(b.left+max(in, 0), b.holds()), now
}

func (b *Bucket) holds() time.Duration { return time.Duration(b.cores * float64(bucketHolds)) }
