package unwind

import (
	"sync"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

// Several that develop at once all return: all recordings of a machine share its
// unwinder.
func TestDevelopAtOnce(t *testing.T) {
	u := tracked(t, Options{Wanted: func(int) bool { return false }})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				u.Develop()
			}
		})
	}
	returned := make(chan struct{})
	go func() {
		all.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(testwait.Longest(t)):
		t.Fatal("somebody waits for ever")
	}
}
