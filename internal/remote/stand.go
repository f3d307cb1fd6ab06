package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// silence is how long a server may say nothing over a connection that stands:
// it tells every ten seconds that nothing has changed.
const silence = 25 * time.Second

// Stand keeps a connection until the context ends, coming again when it was
// left. connect holds it, and calls heard whenever something comes; failed is
// told why it ended.
func Stand(ctx context.Context, connect func(ctx context.Context, heard func()) error, failed func(failures int, err error)) {
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := standOnce(ctx, connect)
		if failures++; time.Since(began) > time.Minute {
			failures = 1
		}
		if ctx.Err() != nil {
			return
		}
		failed(failures, err)
		timer := time.NewTimer(Backoff(failures))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// standOnce holds one connection, unless nothing is heard.
func standOnce(ctx context.Context, connect func(context.Context, func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing was heard for %v", silence)) })
	defer watchdog.Stop()
	err := connect(ctx, func() { watchdog.Reset(silence) })
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Backoff is how long to wait after so many failures in a row: twice as long
// each time up to a minute, and anywhere between half of that and all of it, so
// that a thousand agents do not come back at once.
func Backoff(failures int) time.Duration {
	const first, most = 500 * time.Millisecond, time.Minute
	wait := most
	if failures < 10 {
		wait = min(first<<max(failures-1, 0), most)
	}
	return wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1))
}
