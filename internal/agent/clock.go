package agent

import "time"

// untilEdge is how long it takes to the next multiple of a window's length by
// the wall clock, so that the windows of all agents begin together.
func untilEdge(now time.Time, window time.Duration) time.Duration {
	return now.Truncate(window).Add(window).Sub(now)
}
