package agent

import (
	"math/rand/v2"
	"time"
)

// untilEdge is how long it takes to the next multiple of a window's length by
// the wall clock, so that the windows of all agents begin together.
func untilEdge(now time.Time, window time.Duration) time.Duration {
	return now.Truncate(window).Add(window).Sub(now)
}

// backoff is how long to wait after so many failures in a row: twice as long
// each time up to a minute, and anywhere between half of that and all of it, so
// that a thousand agents do not come back at once.
func backoff(failures int) time.Duration {
	const first, most = 500 * time.Millisecond, time.Minute
	wait := most
	if failures < 10 {
		wait = min(first<<max(failures-1, 0), most)
	}
	return wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1))
}

// clockOffset is how far our clock is ahead of the server's, and by how much
// that may be wrong: what a request took there and back, less what the server
// took for it, may all have been spent one way.
func clockOffset(sent, received, answered, back time.Time) (offset, uncertain time.Duration) {
	travel := max(back.Sub(sent)-answered.Sub(received), 0)
	ahead := sent.Add(travel / 2).Sub(received)
	return ahead, travel / 2
}
