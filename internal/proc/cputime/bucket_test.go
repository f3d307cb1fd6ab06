package cputime

import (
	"testing"
	"time"
)

// TestBucket has work of 300 ms at a time take all that it may for an hour: what it
// takes is what flows in, but for what was saved up and one piece that is owed.
func TestBucket(t *testing.T) {
	const cores, piece, length = 0.02, 300 * time.Millisecond, time.Hour
	var b Bucket
	now := time.Unix(1000, 0)
	if b.wait(now) != 0 || b.Bounded() {
		t.Fatal("the zero value bounds something")
	}
	b.Take(time.Hour) // forgiven
	b.setRate(cores, now)
	end, taken := now.Add(length), time.Duration(0)
	for now.Before(end) {
		if wait := b.wait(now); wait > 0 {
			now = now.Add(wait)
			continue
		}
		b.Take(piece)
		taken += piece
	}
	want := time.Duration(cores * float64(length))
	if taken < want-piece || taken > want+piece+b.holds() {
		t.Errorf("%v were taken, want %v", taken, want)
	}
	if b.setRate(0, now); b.wait(now) != 0 {
		t.Error("without a bound it is still waited")
	}
}

// TestBucketSaves has a bucket that nobody takes from hold no more than ten seconds'.
func TestBucketSaves(t *testing.T) {
	var b Bucket
	now := time.Unix(1000, 0)
	b.setRate(0.1, now)
	now = now.Add(time.Hour)
	if b.wait(now) != 0 {
		t.Fatal("a full bucket is waited for")
	}
	b.Take(time.Second)
	if wait := b.wait(now); wait <= 0 || wait > 10*time.Millisecond {
		t.Errorf("after all that it holds was taken: wait %v", wait)
	}
}
