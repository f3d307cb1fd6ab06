// Package balance compares CPU time that was sampled with the exact time that the kernel accounted.
//
//	a window's rows and head -> Of: a Balance -> what is missing, in words
//	windows of one target, one after another -> Ledger: a loss in the window
//	   in which it has become certain that time was not sampled
package balance

import (
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

const (
	// miss is how often an interval is wrong by chance.
	miss = 0.001
	// tolerated is the part of the CPU time that may be missing without a word.
	tolerated = 0.02
)

// Balance is sampled time against exact time. Where Unknown is not empty there is
// no exact time to compare with, and it says why.
type Balance struct {
	Sampled, Exact   time.Duration
	Ratio, Low, High float64 // sampled / exact, with its interval of 99.9%
	Unknown          string

	told   time.Duration // by losses of the window, or of those that were added up
	detail string        // of the largest of them
	period float64       // of a sample
}

// Of compares a window's head with the sum of its samples, of the first value type.
func Of(h *profile.Head, sampled profile.Sum) Balance {
	b := Balance{Exact: h.Exact.CPU, Unknown: unknown(h, sampled)}
	largest := int64(0)
	for _, l := range h.Losses {
		if l.Reason == profile.LossUnsampled {
			b.told += time.Duration(l.Value)
			if l.Value > largest && l.Detail != "" {
				b.detail, largest = l.Detail, l.Value
			}
		}
	}
	if b.Unknown != "" {
		return b
	}
	// What was sampled and lost is told already; what has no exact time is beside the point.
	sums := stats.Sums{N: sampled.N, Weight: float64(sampled.Value), Squares: sampled.Squares}
	sums = without(sums, h.LossOf(profile.LossExact).Value-h.LossOf(profile.LossDropped).Value)
	b.Sampled = time.Duration(sums.Weight)
	b.period = float64(h.Types[0].Period)
	if sums.N > 0 {
		b.period = sums.Weight / float64(sums.N)
	}
	i := stats.OfExact(sums, float64(b.Exact), b.period, miss)
	b.Ratio, b.Low, b.High = i.Value, i.Low, i.High
	if b.detail == "" && h.LossOf(profile.LossTargets).N > 0 {
		b.detail = "more processes than the kernel's table of targets holds"
	}
	return b
}

// OfWindow compares a window's own rows.
func OfWindow(w *profile.Window) Balance {
	sum := profile.Sum{}
	for _, r := range w.Rows {
		sum.N += r.N
		if len(r.Values) > 0 {
			sum.Value += r.Values[0]
		}
		sum.Squares += r.Squares
	}
	return Of(&w.Head, sum)
}

// without takes weight away, as if fewer samples of the same mean had been taken.
func without(s stats.Sums, weight int64) stats.Sums {
	if s.Weight <= 0 || weight == 0 {
		return s
	}
	left := max(1-float64(weight)/s.Weight, 0)
	return stats.Sums{N: int64(float64(s.N)*left + 0.5), Weight: s.Weight * left, Squares: s.Squares * left}
}

// unknown says why there is nothing to compare with; empty: there is.
func unknown(h *profile.Head, sampled profile.Sum) string {
	switch {
	case len(h.Types) == 0 || h.Types[0].Kind != "cpu" || h.Types[0].Unit != "nanoseconds":
		if len(h.Types) == 0 {
			return "nothing was measured"
		}
		return "the kernel keeps no exact total of " + h.Types[0].Kind
	case h.PartOfCPU():
		return "only a part of the CPU time was to be sampled"
	case h.Exact.CPU <= 0 && sampled.N > 0:
		return "this profiler keeps no exact CPU time"
	case h.Exact.CPU <= 0:
		return nothingUsed
	case float64(h.LossOf(profile.LossExact).Value) > tolerated*float64(sampled.Value):
		return "processes came and went unseen"
	}
	return ""
}

// Missing is how much CPU time was certainly not sampled; 0: none to speak of. What
// windows have told is part of what is missing of their sum, never added to it.
func (b Balance) Missing() time.Duration {
	missing := b.told
	if b.Unknown == "" && b.High < 1 && b.Ratio < 1-tolerated {
		missing = max(missing, b.Exact-b.Sampled)
	}
	if float64(missing) <= tolerated*float64(b.Exact) {
		return 0
	}
	return missing
}

// Loss is what is missing and is not told yet; the zero Loss where that is nothing.
func (b Balance) Loss() profile.Loss {
	missing := b.Missing() - b.told
	if missing <= 0 || b.period <= 0 {
		return profile.Loss{}
	}
	return profile.Loss{Reason: profile.LossUnsampled, Detail: b.detail, N: int64(float64(missing)/b.period + 0.5), Value: int64(missing)}
}

// String says in one line what is missing, or why nobody knows; empty: nothing is.
func (b Balance) String() string {
	if missing := b.Missing(); missing > 0 {
		return fmt.Sprintf("%s of the CPU time was not sampled%s", percent(float64(missing)/float64(max(b.Exact, missing))), because(b.detail))
	}
	if b.Unknown != "" && b.Unknown != nothingUsed {
		return "sampled time is not checked against exact time: " + b.Unknown
	}
	return ""
}

// nothingUsed needs no words.
const nothingUsed = "no CPU time was used"

func because(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + detail
}

// percent writes a share as a person would: 12%, or 3.4%.
func percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.1f%%", 100*share)
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}
