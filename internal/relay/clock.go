package relay

import (
	"time"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

func (r *Relay) now() wire.Moment {
	return wire.Moment{Wall: r.options.Now().Round(0), Since: r.elapsed()}
}

// comparison is how far the clock was ahead of the server's when they were compared.
type comparison struct {
	at                wire.Moment
	offset, uncertain time.Duration
}

// byServer is what the server's clock said at a moment: the clock may have been set
// since the comparison, or before it while windows waited to be passed on.
func (c *comparison) byServer(m wire.Moment) int64 {
	return m.Wall.Add(-c.offset - m.SetSince(c.at)).UnixNano()
}

// compare learns from an answer of the server how far the clock is ahead. The relay is
// locked.
func (r *Relay) compare(sent wire.Moment, answer *atysv1.PushResponse) {
	back := r.now()
	if offset, uncertain, known := wire.Compare(sent, back, answer); known {
		r.compared = comparison{back, offset, uncertain}
	}
}
