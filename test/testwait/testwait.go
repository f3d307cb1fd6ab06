// Package testwait bounds how long tests wait, by the time that go test leaves them.
//
//	Longest  the longest that a test may wait for one condition
//	Until    polls a condition
//	Receive  receives from a channel
//
// A test that gives up after ten seconds of its own fails on a machine that is ten
// times as slow as the one it was written on, and says nothing about the code. These
// waits return as soon as the condition holds, and fail only when something hangs.
package testwait

import (
	"testing"
	"time"
)

const (
	atMost  = 3 * time.Minute
	atLeast = 20 * time.Second
	pause   = 10 * time.Millisecond // between two polls
)

// Longest is how long a test may wait for one condition: three minutes, or half of the time
// until go test would end the whole package, so that the test that hangs can still say
// what it waits for.
func Longest(t testing.TB) time.Duration {
	dated, ok := t.(interface{ Deadline() (time.Time, bool) }) // a benchmark has none
	if !ok {
		return atMost
	}
	deadline, ok := dated.Deadline()
	if !ok {
		return atMost
	}
	return bound(time.Until(deadline))
}

// bound is how long to wait with so much time left.
func bound(left time.Duration) time.Duration {
	return max(atLeast, min(atMost, left/2))
}

// Until polls until a condition holds, and fails the test if it never does; more, if
// given, says what there is to know then.
func Until(t testing.TB, what string, holds func() bool, more ...func() string) {
	t.Helper()
	patience := Longest(t)
	for began := time.Now(); !holds(); time.Sleep(pause) {
		if time.Since(began) < patience {
			continue
		}
		text := ""
		for _, say := range more {
			text += ": " + say()
		}
		t.Fatalf("not within %v: %s%s", patience, what, text)
	}
}

// Receive receives from a channel, and fails the test if nothing ever comes.
func Receive[T any](t testing.TB, what string, from <-chan T) (received T) {
	t.Helper()
	patience := Longest(t)
	select {
	case received = <-from:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return received
}
