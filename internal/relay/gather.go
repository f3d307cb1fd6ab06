package relay

import (
	"context"
	"sync"
	"time"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// What is passed on at once, and how many times beside each other: as much as
// makes a batch's overhead small, and far less than a request may hold.
const (
	enoughBytes   = 4 << 20
	enoughWindows = wire.MaxWindows / 2
	mostForwards  = 4
)

// How long windows wait for others: those of one time are shipped within half a
// window (agents' jitter), so that most of those that last ten seconds are added up
// to one. What is old when it comes waits no longer than it must: its agent has
// more of it.
const (
	shortGather = 200 * time.Millisecond
	longGather  = 6 * time.Second
	old         = 30 * time.Second
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
			windows += windowsIn(p.request)
			if bytes >= enoughBytes || windows >= enoughWindows {
				return group
			}
			if moment == nil {
				timer := time.NewTimer(r.patienceFor(p))
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

// windowsIn counts the windows and records of a request, and the windows that these contain.
func windowsIn(r *atysv1.PushRequest) (n int) {
	for _, w := range r.GetWindows() {
		n += max(len(w.GetContains()), 1)
	}
	return n + len(r.GetRecords())
}

// patienceFor is how long a request waits for others.
func (r *Relay) patienceFor(p *push) time.Duration {
	newest := int64(0)
	for _, w := range p.request.GetWindows() {
		newest = max(newest, w.GetStartUnixNano()+w.GetDurationNs())
	}
	if r.options.Now().Sub(time.Unix(0, newest)) > old {
		return min(r.options.Gather, shortGather)
	}
	return r.options.Gather
}

// answer tells all of a group how it ended.
func answer(group []*push, o outcome) {
	for _, p := range group {
		p.done <- o
	}
}
