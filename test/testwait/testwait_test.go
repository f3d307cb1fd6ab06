package testwait

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBound(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		time.Hour:        atMost,
		2 * time.Minute:  time.Minute,
		10 * time.Second: atLeast,
		-time.Minute:     atLeast,
	} {
		if got := bound(left); got != want {
			t.Errorf("with %v left: %v, want %v", left, got, want)
		}
	}
}

// failing is a test without a deadline that notes how it fails.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// ends runs a wait, and gives how long it took and how it failed.
func ends(wait func(t testing.TB)) (took time.Duration, said string) {
	f := &failing{}
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		wait(f)
	}()
	<-ended
	return time.Since(began), f.said
}

func TestWaits(t *testing.T) {
	for name, c := range map[string]struct {
		wait func(t testing.TB)
		took time.Duration
		said string
	}{
		"a condition that comes to hold": {func(t testing.TB) {
			at := time.Now().Add(time.Second)
			Until(t, "a second has passed", func() bool { return !time.Now().Before(at) })
		}, time.Second, ""},
		"one that never holds": {func(t testing.TB) {
			Until(t, "the sun rises", func() bool { return false }, func() string { return "it is dark" })
		}, atMost, "not within 3m0s: the sun rises: it is dark"},
		"a value that comes": {func(t testing.TB) {
			c := make(chan int)
			time.AfterFunc(time.Minute, func() { c <- 7 })
			if got := Receive(t, "a number", c); got != 7 {
				t.Fatalf("received %d", got)
			}
		}, time.Minute, ""},
		"a channel that is closed": {func(t testing.TB) {
			c := make(chan int)
			close(c)
			Receive(t, "a number", c)
		}, 0, ""},
		"a value that never comes": {func(t testing.TB) { Receive(t, "a number", make(chan int)) }, atMost, "not within 3m0s: a number"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took, said := ends(c.wait)
				if took != c.took || !strings.HasPrefix(said, c.said) || (said == "") != (c.said == "") {
					t.Errorf("after %v it says %q; want %v, %q", took, said, c.took, c.said)
				}
			})
		})
	}
}
