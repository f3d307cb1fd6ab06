package relay

import (
	"context"
	"sync"
	"time"

	"atys.dev/atys/internal/wire"
)

// What is passed on at once, and how many times beside each other: as much as
// makes a batch's overhead small, and far less than a request may hold.
const (
	enoughBytes   = 4 << 20
	enoughWindows = wire.MaxWindows / 2
	mostForwards  = 4
)

// gather puts requests together that come within a moment, and passes them on,
// until the context ends.
func (r *Relay) gather(ctx context.Context) {
	var forwards sync.WaitGroup
	defer forwards.Wait()
	slots := make(chan struct{}, mostForwards)
	for {
		group := r.group(ctx)
		if len(group) == 0 {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			answer(group, outcome{err: errEnding})
			return
		}
		forwards.Go(func() {
			defer func() { <-slots }()
			r.forward(ctx, group)
		})
	}
}

// group waits for a request and then a moment for others; none: the context has ended.
func (r *Relay) group(ctx context.Context) (group []*push) {
	bytes, windows := 0, 0
	var moment <-chan time.Time
	for {
		select {
		case p := <-r.pushes:
			group = append(group, p)
			bytes += p.bytes
			windows += len(p.request.GetWindows())
			if bytes >= enoughBytes || windows >= enoughWindows {
				return group
			}
			if moment == nil {
				timer := time.NewTimer(r.options.Gather)
				defer timer.Stop()
				moment = timer.C
			}
		case <-moment:
			return group
		case <-ctx.Done():
			answer(group, outcome{err: errEnding})
			return nil
		}
	}
}

// answer tells all of a group how it ended.
func answer(group []*push, o outcome) {
	for _, p := range group {
		p.done <- o
	}
}
