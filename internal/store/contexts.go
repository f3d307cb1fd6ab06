package store

import (
	"cmp"

	"atys.dev/atys/internal/profile"
)

// MaxContexts is the largest number of contexts that a rolled-up window tells apart. The
// samples of the others, those with the least value, count under OtherContext, and as a loss
// of profile.LossContexts.
const MaxContexts = 64

// OtherContext stands for all contexts of a rolled-up window that are not told apart.
var OtherContext = profile.Context{Reason: "other", Endpoint: "other", Interval: "other", Labels: "other"}

// CompareContexts orders contexts.
func CompareContexts(a, b profile.Context) int {
	return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Interval, b.Interval), cmp.Compare(a.Labels, b.Labels))
}
