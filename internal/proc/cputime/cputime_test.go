package cputime

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// burn uses CPU time of the calling thread.
func burn(d time.Duration) {
	for began := Clock(); Clock()-began < d; {
	}
}

// alone is an account to which nothing is added but what is charged.
func alone() *Account {
	a := New()
	a.monitor.thread = 0
	return a
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
	a := alone()
	a.Do(Following, func() {
		burn(20 * time.Millisecond)
		a.Do(Tables, func() {
			burn(40 * time.Millisecond)
			a.Do(Naming, func() { burn(10 * time.Millisecond) })
		})
		burn(20 * time.Millisecond)
	})
	s := a.Spent()
	between(t, "following", s[Following], 40*time.Millisecond, 50*time.Millisecond)
	between(t, "tables", s[Tables], 40*time.Millisecond, 50*time.Millisecond)
	between(t, "naming", s[Naming], 10*time.Millisecond, 20*time.Millisecond)
	if len(a.threads) != 0 {
		t.Errorf("%d threads are at work still", len(a.threads))
	}
}

// TestAtWork charges what has not ended, from another thread.
func TestAtWork(t *testing.T) {
	a := alone()
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
	a := alone()
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

// TestMonitor has the time of Go's monitor be of the causes, in proportion to theirs.
func TestMonitor(t *testing.T) {
	a := New()
	if a.monitor.thread == 0 {
		t.Fatal("the monitor was not found")
	}
	since := a.monitor.spent
	a.Do(Tables, func() { burn(150 * time.Millisecond) })
	a.Do(Naming, func() { burn(50 * time.Millisecond) })
	charged := a.spent[Tables] + a.spent[Naming]
	s := a.Spent()
	added := s[Tables] + s[Naming] - charged
	now, err := clockOf(a.monitor.thread)
	if err != nil {
		t.Fatal(err)
	}
	if added <= 0 || added > now-since {
		t.Errorf("%v were added, the monitor has taken %v", added, now-since)
	}
	if ratio := float64(s[Tables]) / float64(s[Naming]); ratio < 2.5 || ratio > 3.5 {
		t.Errorf("tables and naming are as %.2f to 1", ratio)
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
