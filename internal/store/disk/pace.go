package disk

import (
	"context"
	"sync/atomic"
	"time"
)

// pace has long work leave the processors to those whose windows come meanwhile:
// they wait for an answer, and nobody waits for what is added up.
type pace struct {
	puts  *atomic.Uint64 // that came so far
	began time.Time      // of work without a rest
	seen  uint64         // puts by then
}

// stint is how long is worked before a rest.
const stint = 10 * time.Millisecond

func (p *pace) work() { p.began, p.seen = time.Now(), p.puts.Load() }

// rest rests for as long as there was work, once that was a stint, if something
// came meanwhile.
func (p *pace) rest(ctx context.Context) error {
	worked := time.Since(p.began)
	if worked < stint {
		return nil
	}
	if p.puts.Load() != p.seen {
		select {
		case <-time.After(worked):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.work()
	return nil
}
