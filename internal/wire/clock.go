package wire

import (
	"time"

	"atys.dev/atys/internal/wire/atysv1"
)

// Clock tells how far our clock is ahead of the server's, and by how much that
// may be wrong, from a request that was sent at one time of ours and answered at
// another: what it took there and back, less what the server took for it, may
// all have been spent one way. A relay adds what it does not know itself.
func Clock(sent, back time.Time, r *atysv1.PushResponse) (offset, uncertain time.Duration) {
	received, answered := time.Unix(0, r.GetReceivedUnixNano()), time.Unix(0, r.GetAnsweredUnixNano())
	travel := max(back.Sub(sent)-answered.Sub(received), 0)
	return sent.Add(travel / 2).Sub(received), travel/2 + time.Duration(r.GetClockErrorNs())
}
