package freq

import "atys.dev/atys/internal/stats"

// mixture is a window in which a change was: a part of it was as the stretch before,
// the rest as that behind.
type mixture struct {
	before, after int     // by number
	part          float64 // of the one before
	variance      float64 // of that part
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

func (b *pooling) mixAtEdge(before, after int) {
	if !b.differ(before, after, 3) {
		return
	}
	const surely = 6.63 // of chi-squared with one degree: one in a hundred
	for place, of := range map[int]int{b.segments[before].to - 1: before, b.segments[after].from: after} {
		m, left := b.mix(place, before, after)
		if b.distance(place, of).g-left.g > surely {
			b.mixed[place] = m
		}
	}
}

// phase is all that was like a stretch.
func (b *pooling) phase(number int) tally { return b.groups[b.segments[number].group] }

// distance compares a window with a phase's mean, as if that were known.
func (b *pooling) distance(place, number int) comparison {
	return b.from(place, b.phase(number), b.phase(number), 1)
}

// mix finds the part of a window that is of the first of two stretches, and how much is
// left unexplained then.
func (b *pooling) mix(place, before, after int) (mixture, comparison) {
	x, y := b.phase(before), b.phase(after)
	d, _ := b.spread.value()
	t := b.tallies[place].worth(d)
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
	m := mixture{before: before, after: after, part: (low + high) / 2}
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
	d, _ := b.spread.value()
	t := b.tallies[place].worth(d)
	mean := tally{counts: make([]float64, len(t.counts)), n: min(x.n, y.n)}
	for i := range mean.counts {
		mean.counts[i] = mean.n * (part*x.counts[i]/x.n + (1-part)*y.counts[i]/y.n)
	}
	return compare(t, mean)
}
