package store

import (
	"cmp"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
)

// MaxContexts is the largest number of contexts that a rolled-up window tells apart. The
// samples of the others, those with the least value, count under OtherContext, and as a loss
// of profile.LossContexts.
const MaxContexts = 64

// OtherContext stands for all contexts of a rolled-up window that are not told apart.
var OtherContext = profile.Context{Reason: "other", Endpoint: "other", Interval: "other", Labels: "other"}

// Refine applies rules to the context of some samples, by the names that their frames have
// now. What is not told apart stays so.
func Refine(rules []refine.Rule, frames []profile.Frame, c profile.Context) profile.Context {
	if c == OtherContext {
		return c
	}
	return refine.Context(rules, frames, c)
}

// AddFolded counts samples of a rolled-up window whose contexts are not told apart. Of levels only
// their number: values are sums over minutes.
func (w *Window) AddFolded(s profile.Sum) {
	l := profile.Loss{Reason: profile.LossContexts, N: s.N, Value: s.Value}
	if w.Minutes != nil {
		l.Value = 0
	}
	w.Head.AddLoss(l)
}

// CompareContexts orders contexts.
func CompareContexts(a, b profile.Context) int {
	return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Interval, b.Interval), cmp.Compare(a.Labels, b.Labels))
}

// Parts of a context, as ContextLabels names them.
const (
	ContextReason   = "reason"
	ContextEndpoint = "endpoint"
	ContextInterval = "interval"
	ContextProgram  = "labels" // that the program set
)

// ContextParts lists the names of the parts of a context.
func ContextParts() []string {
	return []string{ContextReason, ContextEndpoint, ContextInterval, ContextProgram}
}

// ContextLabels returns a context as labels, so that a selector can choose contexts.
func ContextLabels(c profile.Context) profile.Labels {
	return profile.Labels{ContextReason: c.Reason, ContextEndpoint: c.Endpoint, ContextInterval: c.Interval, ContextProgram: c.Labels}
}
