package remote

import (
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/wire/atysv1"
)

// Coverage reads how much of a selection an answer of a server covers.
func Coverage(m *atysv1.Coverage, about *atysv1.Selection) render.Coverage {
	c := render.Coverage{Samples: m.GetN(), CPU: time.Duration(m.GetCpuNs()), Cost: Cost(m.GetCost()), Damaged: int(m.GetDamaged()), Doubtful: int(m.GetDoubtfulWindows()),
		Pushed: int(m.GetPushedInstances()), PushedMore: m.GetPushedMore(), Overlapping: m.GetOverlappingTasks(), PrunedShare: m.GetPrunedShare(), Asked: render.Span{From: moment(about.GetFromUnixNano()), To: moment(about.GetToUnixNano())}, Dropped: spansOf(m.GetDropped())}
	for _, l := range m.GetLosses() {
		c.Losses = append(c.Losses, profile.Loss{Reason: profile.LossReason(l.GetReason()), Detail: l.GetDetail(), N: l.GetN(), Value: l.GetValue()})
	}
	for _, t := range m.GetTasks() {
		c.Tasks = append(c.Tasks, render.TaskCoverage{Task: t.GetTask(), Instances: profile.Instances{Recorded: int(t.GetInstances().GetRecorded()), Eligible: int(t.GetInstances().GetEligible())}})
	}
	for _, n := range m.GetNodes() {
		c.Nodes = append(c.Nodes, render.NodeCoverage{Node: n.GetNode(), Task: n.GetTask(), First: moment(n.GetFirstUnixNano()), Last: moment(n.GetLastUnixNano()),
			Watched: time.Duration(n.GetWatchedNs()), Missing: spansOf(n.GetMissing()), Stopped: spansOf(n.GetStopped()), Silent: n.GetSilent()})
	}
	return c
}

// Cost is the CPU time that profiling took.
func Cost(c *atysv1.Cost) time.Duration {
	return time.Duration(c.GetUserNs() + c.GetBpfNs() + c.GetInterruptNs())
}

// Gaps says what is missing from an answer, beside what its window says itself.
func Gaps(m *atysv1.Coverage, about *atysv1.Selection) []string {
	c := Coverage(m, about)
	c.Losses = slices.DeleteFunc(c.Losses, func(l profile.Loss) bool { return !l.Reason.OfWindows() })
	return c.Words(time.Local).Items
}

// moment is a time in a message; 0 is none.
func moment(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

func spansOf(messages []*atysv1.Span) (spans []render.Span) {
	for _, m := range messages {
		spans = append(spans, render.Span{From: time.Unix(0, m.GetFromUnixNano()), To: time.Unix(0, m.GetToUnixNano())})
	}
	return spans
}
