package agent

import (
	"testing"
	"time"
)

func TestUntilEdge(t *testing.T) {
	edge := time.Unix(1_700_000_000, 0).Truncate(10 * time.Second)
	for _, test := range []struct{ past, want time.Duration }{
		{0, 10 * time.Second}, {time.Second, 9 * time.Second}, {10*time.Second - 1, 1},
	} {
		if got := untilEdge(edge.Add(test.past), 10*time.Second); got != test.want {
			t.Errorf("%v after an edge: %v to the next, want %v", test.past, got, test.want)
		}
	}
}
