package freq

import (
	"math"

	"atys.dev/atys/internal/stats"
)

// mixture is a window in which a change was: a part of it was as the stretch before,
// the rest as that behind.
type mixture struct {
	before, after int     // by number
	part          float64 // of the one before
	variance      float64 // of that part
	likely        bool    // more likely so than not: means are of the others
}

// findMixed finds them: a window between two stretches that is one by itself, and
// the last of a stretch and the first of the next, if that explains them better.
func (b *pooling) findMixed() {
	b.mixed = map[int]mixture{}
	for i := range b.segments {
		if i > 0 {
			b.mixAtEdge(i-1, i)
		}
		if i > 0 && i+1 < len(b.segments) && b.segments[i].windows() == 1 {
			b.mixBetween(i-1, i, i+1)
		}
	}
}

// differ tells whether two stretches are of different phases, and of so many windows
// that it is known what was done in them.
func (b *pooling) differ(before, after, windows int) bool {
	x, y := b.segments[before], b.segments[after]
	return x.group != y.group && x.windows() >= windows && y.windows() >= windows
}

func (b *pooling) mixBetween(before, i, after int) {
	if !b.differ(before, after, 2) {
		return
	}
	place := b.segments[i].from
	m, left := b.mix(place, before, after)
	const enough = 0.001
	if stats.ChiSquaredAbove(left.g, max(left.freedom-1, 1)) > enough {
		b.mixed[place] = m
	}
}

// mixAtEdge shares a change between the last window of a stretch and the first of the
// next: it was within one of them, anywhere.
func (b *pooling) mixAtEdge(before, after int) {
	if !b.differ(before, after, 2) {
		return
	}
	last, first := b.segments[before].to-1, b.segments[after].from
	x, y := b.within(last, before, after, 1), b.within(first, before, after, 0)
	if x.evidence+y.evidence == 0 { // so many samples tell that the change was at the edge
		return
	}
	inLast := x.evidence / (x.evidence + y.evidence)
	b.note(last, before, after, 1, inLast, x)
	b.note(first, before, after, 0, 1-inLast, y)
}

// within is what a window says of a change that was in it: how much better than none it
// explains the window, and which part was before it.
type within struct{ evidence, part, variance float64 }

// within weighs all parts that there could be of the stretch before; whole is that
// without a change.
func (b *pooling) within(place, before, after int, whole float64) (w within) {
	const steps = 128
	none := b.likelihood(place, before, after, whole)
	var part, squares float64
	for i := range steps {
		at := (float64(i) + 0.5) / steps
		weight := math.Exp(min(b.likelihood(place, before, after, at)-none, 600)) / steps
		w.evidence += weight
		part += weight * at
		squares += weight * at * at
	}
	if w.evidence > 0 {
		w.part = part / w.evidence
		w.variance = max(squares/w.evidence-w.part*w.part, 0)
	}
	return w
}

// note keeps what a window is, if a change was within it with some probability: else
// all of it was as the whole.
func (b *pooling) note(place, before, after int, whole, probability float64, w within) {
	part := probability*w.part + (1-probability)*whole
	variance := probability*(w.variance+(w.part-part)*(w.part-part)) + (1-probability)*(whole-part)*(whole-part)
	b.mixed[place] = mixture{before: before, after: after, part: part, variance: variance, likely: probability > 0.5}
}

// likelihood is the logarithm of how likely a window's samples are, if so much of it was
// as the stretch before.
func (b *pooling) likelihood(place, before, after int, part float64) (log float64) {
	x, y := b.phase(before), b.phase(after)
	for i, k := range b.scaled(place).counts {
		p := part*x.counts[i]/x.n + (1-part)*y.counts[i]/y.n
		if k > 0 {
			log += k * math.Log(max(p, 1e-9))
		}
	}
	return log
}

// scaled is a window in samples' worth.
func (b *pooling) scaled(place int) tally {
	d, _ := b.spread.value()
	return b.tallies[place].worth(d)
}

// phase is all that was like a stretch.
func (b *pooling) phase(number int) tally { return b.groups[b.segments[number].group].tally }

// mix finds the part of a window that is of the first of two stretches, and how much is
// left unexplained then.
func (b *pooling) mix(place, before, after int) (mixture, comparison) {
	x, y := b.phase(before), b.phase(after)
	t := b.scaled(place)
	low, high := 0.0, 1.0
	const halvings = 30
	for range halvings { // the likelihood has one top: its slope falls
		part, slope := (low+high)/2, 0.0
		for i, k := range t.counts {
			p, q := x.counts[i]/x.n, y.counts[i]/y.n
			if mean := part*p + (1-part)*q; mean > 0 {
				slope += k * (p - q) / mean
			}
		}
		if slope > 0 {
			low = part
		} else {
			high = part
		}
	}
	m := mixture{before: before, after: after, part: (low + high) / 2, likely: true}
	information := 0.0
	for i := range t.counts {
		p, q := x.counts[i]/x.n, y.counts[i]/y.n
		if mean := m.part*p + (1-m.part)*q; mean > 0 {
			information += t.n * (p - q) * (p - q) / mean
		}
	}
	m.variance = min(1/max(information, 1e-9), 1.0/12)
	return m, b.from(place, x, y, m.part)
}

// from compares a window with a mixture of two means that are taken as known.
func (b *pooling) from(place int, x, y tally, part float64) comparison {
	t := b.scaled(place)
	mean := tally{counts: make([]float64, len(t.counts)), n: min(x.n, y.n)}
	for i := range mean.counts {
		mean.counts[i] = mean.n * (part*x.counts[i]/x.n + (1-part)*y.counts[i]/y.n)
	}
	return compare(t, mean)
}
