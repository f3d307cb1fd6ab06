package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// Lacks words what is missing from a profile or an answer, the same on the
// command line, on pages and in files.
type Lacks struct {
	Line  string   // all of it in one line; "" if nothing is missing
	Items []string // each by itself, the largest first
	Loud  bool     // more than a hundredth of what was measured is missing, or nobody knows how much
}

// lossBase is what a loss is a part of.
type lossBase uint8

const (
	ofSamples lossBase = iota // a share of the samples, with those that were lost
	ofCPU                     // a share of the exact CPU time
	ofNothing                 // it is counted: nobody knows of how many
)

// lossWords is how a reason is worded.
type lossWords struct {
	base  lossBase
	short string // in the line, after a share or a count; reasons that share it are summed
	long  string // by itself
}

// wordsOf is the one table of how reasons are worded. A reason that is not in it
// comes from a later version: what it counts is not known.
var wordsOf = map[profile.LossReason]lossWords{
	profile.LossTruncated:    {ofSamples, "truncated", "truncated"},
	profile.LossStarting:     {ofSamples, "truncated", "truncated within 50 ms of exec or dlopen"},
	profile.LossUnsymbolized: {ofSamples, "unsymbolized", "unsymbolized"},
	profile.LossDropped:      {ofSamples, "lost", "lost: the sampler had no room for them"},
	profile.LossPruned:       {ofSamples, "pruned", "pruned"},
	profile.LossThreshold:    {ofSamples, "below the threshold", "below the sampler's threshold"},
	profile.LossOther:        {ofSamples, "other", "other reasons"},
	profile.LossContexts:     {ofSamples, "without context", "counted under no context: too many to tell apart"},
	profile.LossUnsampled:    {ofCPU, "of the CPU time was not sampled", "of the CPU time was not sampled"},
	profile.LossExact:        {ofNothing, "without exact CPU time", "exited with no room for exact CPU times"},
	profile.LossTargets:      {ofNothing, "not sampled", "not sampled: no room among the targets"},
	profile.LossSpoolLimit:   {ofNothing, "never arrived", "dropped by the spool's limit"},
	profile.LossSpoolDamage:  {ofNothing, "never arrived", "damaged in the spool"},
	profile.LossRefused:      {ofNothing, "never arrived", "refused by the server"},
	profile.LossUnkept:       {ofNothing, "never arrived", "kept nowhere: the disk was full and the server away, or the agent was killed"},
	profile.LossStoreDamage:  {ofNothing, "damaged", "damaged in the store"},
}

func lossWordsOf(r profile.LossReason) lossWords {
	if w, ok := wordsOf[r]; ok {
		return w
	}
	return lossWords{ofNothing, "of other reasons", "of another reason: " + string(r)}
}

// Losses words the losses of a profile that has so many samples and used so much
// CPU time by the kernel's account; 0 is not known.
func Losses(losses []profile.Loss, samples int64, exact time.Duration) Lacks {
	return wordingOf(losses, samples, exact).words(losses)
}

func wordingOf(losses []profile.Loss, samples int64, exact time.Duration) wording {
	return wording{samples + missing(losses), exact}
}

// missing counts the samples that are not among those kept.
func missing(losses []profile.Loss) (n int64) {
	for _, l := range losses {
		if l.Reason == profile.LossDropped || l.Reason == profile.LossThreshold {
			n += l.N
		}
	}
	return n
}

// wording knows what shares are of.
type wording struct {
	samples int64 // those that were lost too
	exact   time.Duration
}

// share is a loss's share of what it is a part of; 0: not known.
func (w wording) share(l profile.Loss) float64 {
	part, whole := float64(l.N), 0.0
	switch lossWordsOf(l.Reason).base {
	case ofSamples:
		whole = float64(w.samples)
	case ofCPU:
		part, whole = float64(cmp.Or(l.Value, l.N)), float64(w.exact)
	}
	if whole <= 0 {
		return 0
	}
	return min(part/whole, 1)
}

// sumOfLoss is what the line says of the reasons that are worded alike.
type sumOfLoss struct {
	lossWords
	unit  string // of what is counted
	n     int64
	share float64

	detail string // of the largest
}

func (w wording) words(losses []profile.Loss) (out Lacks) {
	var sums []sumOfLoss
	sorted := slices.DeleteFunc(slices.Clone(losses), func(l profile.Loss) bool { return l.N == 0 && l.Value == 0 })
	slices.SortStableFunc(sorted, func(a, b profile.Loss) int {
		return cmp.Or(cmp.Compare(w.share(b), w.share(a)), cmp.Compare(b.N, a.N))
	})
	for _, l := range sorted {
		out.Items = append(out.Items, w.item(l))
		words := lossWordsOf(l.Reason)
		at := slices.IndexFunc(sums, func(s sumOfLoss) bool { return s.short == words.short && s.base == words.base })
		if at < 0 {
			at = len(sums)
			sums = append(sums, sumOfLoss{lossWords: words, unit: l.Reason.Unit(), detail: l.Detail})
		}
		sums[at].n += l.N
		sums[at].share += w.share(l)
	}
	slices.SortStableFunc(sums, func(a, b sumOfLoss) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(b.share, a.share))
	})
	out.Line, out.Loud = w.line(sums)
	return out
}

const (
	visibleLoss = 0.001 // the share from which on a loss has words of its own in the line
	visibleTime = 0.02  // the same of the CPU time
	loudLoss    = 0.01  // the share from which on it is more than a note
)

// line says all in one line: "19% truncated, 12% unsymbolized (of 3,412 samples)".
func (w wording) line(sums []sumOfLoss) (line string, loud bool) {
	var shares, others []string
	small := false
	for _, s := range sums {
		switch {
		case s.base == ofNothing:
			others = append(others, counted(s.n, s.unit)+" "+s.short)
			loud = true
		case s.share < visibleLoss && s.base == ofSamples && w.samples == 0:
			others = append(others, counted(s.n, s.unit)+" "+s.short)
		case s.share < visibleLoss:
			small = true
		case s.base == ofCPU && s.share < visibleTime: // an item says it
		case s.base == ofCPU:
			others = append(others, brief(s.share)+" "+s.short+because(s.detail))
		default:
			shares = append(shares, brief(s.share)+" "+s.short)
		}
		loud = loud || s.share >= loudLoss && (s.base != ofCPU || s.share >= visibleTime)
	}
	of := " (of " + counted(w.samples, "samples") + ")"
	var parts []string
	switch {
	case len(shares) > 0:
		parts = append(parts, strings.Join(shares, ", ")+of)
	case small:
		parts = append(parts, "less than "+Share(visibleLoss)+" incomplete"+of)
	}
	return strings.Join(append(parts, others...), "; "), loud
}

// because says why, where it is known.
func because(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + Printable(detail) // it may name a file of the target's
}

// item words one loss by itself.
func (w wording) item(l profile.Loss) string {
	words, share := lossWordsOf(l.Reason), w.share(l)
	count := ""
	switch words.base {
	case ofCPU:
		count = Value(float64(cmp.Or(l.Value, l.N)), "nanoseconds")
	default:
		count = counted(l.N, l.Reason.Unit())
	}
	text := Printable(words.long) + because(l.Detail)
	if share == 0 {
		return count + " " + text
	}
	return brief(share) + " " + text + " (" + count + ")"
}

// brief writes a share with two digits: 19%, 3.4%, 0.21%.
func brief(f float64) string {
	switch p := f * 100; {
	case p >= 9.95:
		return strconv.FormatFloat(p, 'f', 0, 64) + "%"
	case p >= 0.995:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
	return Share(f)
}

// counted writes how many there are of what has a plural in -s or -es.
func counted(n int64, units string) string {
	if units == "others" { // of a reason that only a later version knows
		return Count(n)
	}
	if n == 1 {
		one := strings.TrimSuffix(units, "s")
		if units == "processes" {
			one = "process"
		}
		return "1 " + one
	}
	return fmt.Sprintf("%s %s", Count(n), units)
}
