package profile

import (
	"fmt"
	"math"
	"time"
)

const (
	// sure is the deviate that is exceeded with a probability of 0.0005: an interval
	// of 99.9%. It is asked for each target, again and again.
	sure = 3.2905
	// tolerated is the part of the CPU time that may be missing without a word.
	tolerated = 0.02
)

// Balance is CPU time that was sampled against the exact time that the kernel
// accounted. Where Unknown is not empty there is
// no exact time to compare with, and it says why.
type Balance struct {
	Sampled, Exact   time.Duration
	Ratio, Low, High float64 // sampled / exact, with its interval of 99.9%
	Unknown          string

	told   time.Duration // by losses of the window, or of those that were added up
	detail string        // of the largest of them
	period float64       // of a sample
}

// Balance compares what all samples of a head's window sum up to, of the first value
// type, with the exact time. Of a selection of samples it means nothing.
func (h *Head) Balance(sampled Sum) Balance {
	b := Balance{Exact: h.Exact.CPU, Unknown: unknown(h, sampled)}
	largest := int64(0)
	for _, l := range h.Losses {
		if l.Reason == LossUnsampled {
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
	sampled = without(sampled, h.LossOf(LossExact).Value-h.LossOf(LossDropped).Value)
	b.Sampled = time.Duration(sampled.Value)
	b.period = float64(h.Types[0].Period)
	if sampled.N > 0 {
		b.period = float64(sampled.Value) / float64(sampled.N)
	}
	b.Ratio, b.Low, b.High = ratio(sampled, float64(b.Exact), b.period)
	if b.detail == "" && h.LossOf(LossTargets).N > 0 {
		b.detail = "more processes than the kernel's table of targets holds"
	}
	return b
}

// Balance compares a window's own rows.
func (w *Window) Balance() Balance {
	return w.Head.Balance(w.Rows.Total(0))
}

// without takes weight away, as if fewer samples of the same mean had been taken.
func without(s Sum, weight int64) Sum {
	if s.Value <= 0 || weight == 0 {
		return s
	}
	left := max(1-float64(weight)/float64(s.Value), 0)
	return Sum{N: int64(float64(s.N)*left + 0.5), Value: int64(float64(s.Value)*left + 0.5), Squares: s.Squares * left}
}

// ratio is how much of an exact total was sampled, with its interval. Period is what
// a sample weighs where there is none.
//
// The number of samples is taken for Poisson, as many as would be as sure as these.
// A task that runs for several periods at a time is sampled more evenly than that:
// there the interval is safe, and wider than need be.
func ratio(sampled Sum, exact, period float64) (r, low, high float64) {
	n, each := 0.0, period
	if sampled.N > 0 && sampled.Value > 0 {
		each = max(sampled.Squares/float64(sampled.Value), float64(sampled.Value)/float64(sampled.N))
		n = float64(sampled.Value) / each
	}
	low, high = poissonLimits(n)
	return n * each / exact, low * each / exact, high * each / exact
}

// poissonLimits are Byar's limits of the mean of which n were counted (Breslow and
// Day 1987, Statistical Methods in Cancer Research II, p. 69).
func poissonLimits(n float64) (low, high float64) {
	if n > 0 {
		low = n * math.Pow(max(1-1/(9*n)-sure/(3*math.Sqrt(n)), 0), 3)
	}
	m := n + 1
	return low, m * math.Pow(1-1/(9*m)+sure/(3*math.Sqrt(m)), 3)
}

// unknown says why there is nothing to compare with; empty: there is.
func unknown(h *Head, sampled Sum) string {
	switch {
	case len(h.Types) == 0 || h.Design == DesignCensus:
		return needsNone // nothing was left to chance
	case h.Design == DesignUnknown && h.Exact.CPU <= 0:
		return needsNone // another tool's profile, which promises nothing
	case h.Types[0].Base == BaseNone && usualBase(h.Types[0].Kind, h.Types[0].Unit) == BaseCPU:
		return "only a part of the CPU time was to be sampled"
	case h.Types[0].Base != BaseCPU:
		return "the kernel keeps no exact total of " + h.Types[0].Kind
	case h.Exact.CPU <= 0 && sampled.N > 0:
		return "this profiler keeps no exact CPU time"
	case h.Exact.CPU <= 0:
		return needsNone
	case float64(h.LossOf(LossExact).Value) > tolerated*float64(sampled.Value):
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
func (b Balance) Loss() Loss {
	missing := b.Missing() - b.told
	if missing <= 0 || b.period <= 0 {
		return Loss{}
	}
	return Loss{Reason: LossUnsampled, Detail: b.detail, N: int64(float64(missing)/b.period + 0.5), Value: int64(missing)}
}

// String says in one line what is missing, or why nobody knows; empty: nothing is.
func (b Balance) String() string {
	if missing := b.Missing(); missing > 0 {
		return fmt.Sprintf("%s of the CPU time was not sampled%s", percent(float64(missing)/float64(max(b.Exact, missing))), because(b.detail))
	}
	if b.Unknown != "" && b.Unknown != needsNone {
		return "sampled time is not checked against exact time: " + b.Unknown
	}
	return ""
}

// needsNone is where there is nothing to compare, which needs no words.
const needsNone = "there is nothing to compare"

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
