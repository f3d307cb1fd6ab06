package sampler

import (
	"sync"
	"time"
)

// Background is what an instrument does between its cuts, until it is stopped.
type Background struct {
	stop chan struct{}
	done sync.WaitGroup
}

// NewBackground does nothing yet.
func NewBackground() *Background { return &Background{stop: make(chan struct{})} }

// Go runs work, which returns when stop is closed.
func (b *Background) Go(work func(stop <-chan struct{})) {
	b.done.Go(func() { work(b.stop) })
}

// Every calls work again and again, at such intervals.
func (b *Background) Every(interval time.Duration, work func(now time.Time)) {
	b.Go(func(stop <-chan struct{}) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				work(now)
			}
		}
	})
}

// Stop ends all work and waits for that. It reports false where it has been stopped before.
func (b *Background) Stop() bool {
	select {
	case <-b.stop:
		return false
	default:
		close(b.stop)
	}
	b.done.Wait()
	return true
}
