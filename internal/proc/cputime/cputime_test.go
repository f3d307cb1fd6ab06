package cputime

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// burn uses CPU time of the calling thread.
func burn(d time.Duration) {
	for began := threadClock(); threadClock()-began < d; {
	}
}

// between fails where a duration is not within limits that hold on a busy machine:
// what is burnt is of the thread's own clock.
func between(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

// TestNested charges each moment once: an inner cause interrupts the outer one.
func TestNested(t *testing.T) {
	a := New()
	a.Do(Following, func() {
		burn(20 * time.Millisecond)
		a.Do(Tables, func() {
			burn(40 * time.Millisecond)
			a.Do(Naming, func() { burn(10 * time.Millisecond) })
		})
		burn(20 * time.Millisecond)
	})
	s := a.Spent()
	between(t, "following", s[Following], 40*time.Millisecond, 45*time.Millisecond)
	between(t, "tables", s[Tables], 40*time.Millisecond, 45*time.Millisecond)
	between(t, "naming", s[Naming], 10*time.Millisecond, 15*time.Millisecond)
	if len(a.threads) != 0 {
		t.Errorf("%d threads are at work still", len(a.threads))
	}
}

// TestAtWork charges what has not ended, from another thread.
func TestAtWork(t *testing.T) {
	a := New()
	burnt, done := make(chan struct{}), make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		defer a.Begin(Shipping)()
		burn(30 * time.Millisecond)
		close(burnt)
		<-done
		burn(30 * time.Millisecond)
	})
	<-burnt
	between(t, "so far", a.Spent()[Shipping], 30*time.Millisecond, 35*time.Millisecond)
	close(done)
	working.Wait()
	between(t, "in all", a.Spent()[Shipping], 60*time.Millisecond, 70*time.Millisecond)
}

// TestAllIsCharged has many goroutines work at once: the sum is what the process used
// meanwhile, but for a little that is nobody's.
func TestAllIsCharged(t *testing.T) {
	a := New()
	before := processClock(t)
	var working sync.WaitGroup
	for i := range 8 {
		working.Go(func() {
			for range 10 {
				a.Do(Causes()[i%len(Causes())], func() { burn(5 * time.Millisecond) })
			}
		})
	}
	working.Wait()
	used, sum := processClock(t)-before, time.Duration(0)
	for _, d := range a.Spent() {
		sum += d
	}
	if sum > used || float64(sum) < 0.8*float64(used) {
		t.Errorf("%v were charged of %v", sum, used)
	}
}

// TestNil has code that is not accounted for work as it does.
func TestNil(t *testing.T) {
	var a *Account
	ran := false
	a.Do(Tables, func() { ran = true })
	if !ran || len(a.Spent()) != 0 {
		t.Errorf("ran %v, charged %v", ran, a.Spent())
	}
}

func processClock(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
