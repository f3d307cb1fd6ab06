package freq

import "atys.dev/atys/internal/stats"

// mixture is a window in which a change was: a part of it was as the group before,
// the rest as that behind.
type mixture struct {
	before, after int
	part          float64 // of the one before
	variance      float64 // of that part
}

// findMixed finds them: a window between two stretches that is one by itself, and
// the last of a stretch and the first of the next, if that explains them better.
func (b *pooling) findMixed() {
	b.mixed = map[int]mixture{}
	for i := range b.segments {
		if i+1 < len(b.segments) {
			b.mixAtEdge(b.segments[i], b.segments[i+1])
		}
		if i > 0 && i+1 < len(b.segments) && b.segments[i].windows() == 1 {
			b.mixBetween(b.segments[i-1], b.segments[i], b.segments[i+1])
		}
	}
}

func (b *pooling) mixBetween(before, s, after segment) {
	if before.group == after.group || before.windows() < 2 || after.windows() < 2 {
		return
	}
	m, left := b.mix(s.from, before.group, after.group)
	const enough = 0.001
	if stats.ChiSquaredAbove(left.g, max(left.freedom-1, 1)) > enough {
		b.mixed[s.from] = m
	}
}

func (b *pooling) mixAtEdge(before, after segment) {
	if before.group == after.group || before.windows() < 3 || after.windows() < 3 {
		return
	}
	const surely = 6.63 // of chi-squared with one degree: one in a hundred
	for place, whole := range map[int]int{before.to - 1: before.group, after.from: after.group} {
		m, left := b.mix(place, before.group, after.group)
		if b.distance(place, whole).g-left.g > surely {
			b.mixed[place] = m
		}
	}
}

// distance compares a window with a group's mean, as if that were known.
func (b *pooling) distance(place, group int) comparison {
	return b.from(place, b.groups[group].tally, b.groups[group].tally, 1)
}

// mix finds the part of a window that is of the first of two groups, and how much is
// left unexplained then.
func (b *pooling) mix(place, before, after int) (mixture, comparison) {
	x, y := b.groups[before].tally, b.groups[after].tally
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

// leaveMixedOut has groups not count windows in which a change was.
func (b *pooling) leaveMixedOut() {
	mixed := map[int]bool{}
	for place := range b.mixed {
		mixed[b.places[place]] = true
	}
	for i := range b.groups {
		g := &b.groups[i]
		if len(g.windows) == 1 { // what is by itself, is named by itself alone
			continue
		}
		kept := group{tally: g.tally}
		for j, w := range g.windows {
			if !mixed[w] {
				kept.windows, kept.worth, kept.n = append(kept.windows, w), append(kept.worth, g.worth[j]), kept.n+g.worth[j]
			}
		}
		*g = kept
	}
}
