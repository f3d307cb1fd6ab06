package freq

import (
	"math"

	"atys.dev/atys/internal/stats"
)

// Pooled is what windows say of each other: those of one stretch, and of stretches in
// which the program did the same, are estimates of one mean, from which each differs
// as little as is known of them all.
type Pooled struct {
	Estimates []Estimate // of each window
	groups    []group
}

// Estimate is how a window's shares are had: from its own, and from groups' means.
type Estimate struct {
	Own     float64 // weight of its own share; those of Of are the rest
	Of      []Part
	Spread  float64 // of a share p the variance is p(1-p) times this,
	Moves   float64 // and, where a change was within the window, the squared difference of its two means times this
	Final   bool    // what comes later changes it little
	Stretch int     // its number; windows in which a change was have one of their own
}

// Part is a group's weight in an estimate.
type Part struct {
	Group  int
	Weight float64
}

// group is windows of one phase.
type group struct {
	windows []int
	worth   []float64 // of each, in samples
	n       float64   // the sum
	tally   tally     // the same by cell
}

func (g *group) mean(shares []float64) (mean float64) {
	for i, w := range g.windows {
		mean += shares[w] * g.worth[i] / g.n
	}
	return mean
}

// Shares are the best estimates of a function's share of each window, and their
// standard deviations, by what it was in each window's own samples. It may be any
// function, and its time with or without what it calls.
func (p *Pooled) Shares(own []float64) (shares, deviations []float64) {
	means := make([]float64, len(p.groups))
	for i := range p.groups {
		means[i] = p.groups[i].mean(own)
	}
	shares, deviations = make([]float64, len(own)), make([]float64, len(own))
	for i, e := range p.Estimates {
		share := e.Own * own[i]
		for _, part := range e.Of {
			share += part.Weight * means[part.Group]
		}
		variance := share * (1 - share) * e.Spread
		if e.Moves > 0 {
			apart := means[e.Of[0].Group] - means[e.Of[1].Group]
			variance += apart * apart * e.Moves
		}
		shares[i], deviations[i] = share, math.Sqrt(max(variance, 0))
	}
	return shares, deviations
}

// Pool pools windows, one after the other, of one service. Those without samples
// have an estimate of nothing.
func Pool(windows []Window, o Options) *Pooled {
	if o.Fill(); o.Width == 0 { // of a policy that has none
		o.Width = DefaultWidth
	}
	b := pooling{options: o, windows: windows}
	b.read()
	for range 2 { // how much windows differ is known once it is known which are of one stretch
		b.segments = b.cut()
		b.learn()
	}
	b.segments = b.cut()
	b.group()
	b.findMixed()
	return b.estimate()
}

// pooling is the work on it.
type pooling struct {
	options  Options
	windows  []Window
	places   []int   // of those with samples, in windows
	tallies  []tally // of these
	spread   spread
	segments []segment
	groups   []group
	mixed    map[int]mixture // by place in tallies
}

// segment is consecutive windows [from, to) in tallies that are alike.
type segment struct{ from, to, group int }

func (s segment) windows() int { return s.to - s.from }

// read counts windows by the largest functions of all of them.
func (b *pooling) read() {
	all := make([]*Window, len(b.windows))
	for i := range b.windows {
		all[i] = &b.windows[i]
	}
	const more = 2 // a function may be large in some of the phases only
	c := newCells(largest(more*b.options.Top, all...))
	for i := range b.windows {
		if t := tallyOf(c.counts(&b.windows[i])); t.n > 0 {
			b.places, b.tallies = append(b.places, i), append(b.tallies, t)
		}
	}
	var found []float64
	for i := 1; i < len(b.tallies); i++ {
		x, y := b.tallies[i-1], b.tallies[i]
		if c := compare(x, y); c.freedom > 0 {
			found = append(found, (c.g/c.freedom-1)*(1/x.n+1/y.n)/2)
		}
	}
	b.spread = unknownSpread
	const enough = 8
	if len(found) >= enough { // most neighbours are of one stretch
		b.spread = believed(max(stats.Median(found), b.least()), 1)
	}
	b.spread = b.spread.atLeast(b.least())
}

func (b *pooling) least() float64 { return leastSpread(b.options) }

// cut finds the stretches that explain all windows best, if each has to be worth a
// change: by dynamic programming, leaving out beginnings that cannot be best any more
// (Killick, Fearnhead and Eckley).
func (b *pooling) cut() []segment {
	d, _ := b.spread.value()
	sums := []tally{{counts: make([]float64, b.cells())}}
	for _, t := range b.tallies {
		sum := tally{}
		sum.add(sums[len(sums)-1])
		sum.add(t.worth(d))
		sums = append(sums, sum)
	}
	price := changeLimit(float64(b.cells() - 1))
	best := make([]float64, len(sums))
	from := make([]int, len(sums))
	best[0] = -price
	open := []int{0}
	costs := make([]float64, len(sums))
	for to := 1; to < len(sums); to++ {
		best[to] = math.Inf(1)
		for _, f := range open {
			costs[f] = best[f] + deviance(&sums[f], &sums[to])
			if whole := costs[f] + price; whole < best[to] {
				best[to], from[to] = whole, f
			}
		}
		kept := open[:0]
		for _, f := range open {
			if costs[f] <= best[to] {
				kept = append(kept, f)
			}
		}
		open = append(kept, to)
	}
	var segments []segment
	for to := len(sums) - 1; to > 0; to = from[to] {
		segments = append([]segment{{from: from[to], to: to}}, segments...)
	}
	return segments
}

func (b *pooling) cells() int {
	if len(b.tallies) == 0 {
		return 1
	}
	return len(b.tallies[0].counts)
}

// deviance is twice the negative logarithm of how likely the windows between two sums
// are, if they are of one mean.
func deviance(before, after *tally) (d float64) {
	n := after.n - before.n
	for i, x := range after.counts {
		if x -= before.counts[i]; x > 0 {
			d -= 2 * x * math.Log(x/n)
		}
	}
	return d
}

// learn measures how much windows of one stretch differ.
func (b *pooling) learn() {
	learned := unknownSpread.atLeast(b.least())
	for _, s := range b.segments {
		before := tally{}
		for _, t := range b.tallies[s.from:s.to] {
			if before.n > 0 {
				learned.add(compare(t, before), t, before)
			}
			before.add(t)
		}
	}
	b.spread = learned
}

// group finds stretches in which the program did the same.
func (b *pooling) group() {
	d, _ := b.spread.value()
	for i := range b.segments {
		s := &b.segments[i]
		g := group{}
		for j := s.from; j < s.to; j++ {
			w := b.tallies[j].worth(d)
			g.windows, g.worth = append(g.windows, b.places[j]), append(g.worth, w.n)
			g.n += w.n
			g.tally.add(w)
		}
		s.group = b.alike(s, &g)
		if s.group < len(b.groups) {
			old := &b.groups[s.group]
			old.windows, old.worth, old.n = append(old.windows, g.windows...), append(old.worth, g.worth...), old.n+g.n
			old.tally.add(g.tally)
			continue
		}
		b.groups = append(b.groups, g)
	}
}

// alike is the group that a stretch is of, or the number of a new one.
func (b *pooling) alike(s *segment, g *group) int {
	found, best := len(b.groups), alike
	for i, old := range b.groups {
		if s.windows() < 2 || len(old.windows) < 2 || g.n < leastSeen || old.n < leastSeen {
			continue
		}
		c := compare(g.tally, old.tally)
		if p := stats.ChiSquaredAbove(c.g, c.freedom); p >= best {
			found, best = i, p
		}
	}
	return found
}

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

// estimate says how each window's shares are had.
func (b *pooling) estimate() *Pooled {
	b.leaveMixedOut()
	p := &Pooled{Estimates: make([]Estimate, len(b.windows)), groups: b.groups}
	d, _ := b.spread.value()
	_, most := b.spread.bounds()
	for number, s := range b.segments {
		for j := s.from; j < s.to; j++ {
			e := &p.Estimates[b.places[j]]
			n := b.tallies[j].n
			e.Stretch = number
			e.Own = n * d / (1 + n*d)
			of := 1 - e.Own
			e.Final = number+1 < len(b.segments) || b.settled(s)
			if m, ok := b.mixed[j]; ok {
				e.Of = []Part{{m.before, of * m.part}, {m.after, of * (1 - m.part)}}
				e.Moves = of * of * m.variance
			} else {
				e.Of = []Part{{s.group, of}}
			}
			e.Spread = b.variance(n, most, e.Of)
		}
	}
	return p
}

// variance is that of a window's estimate, in p(1-p), if windows differ by as much as
// cannot be excluded: drift that nobody would have found is within it.
func (b *pooling) variance(n, d float64, of []Part) float64 {
	if len(of) == 1 && len(b.groups[of[0].Group].windows) == 1 {
		return 1 / n
	}
	own := d / (1 + n*d)
	for _, part := range of {
		own += part.Weight * part.Weight / max(b.groups[part.Group].n, 1)
	}
	return min(own, 1/n)
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

// settled tells whether enough is known of the last stretch.
func (b *pooling) settled(s segment) bool {
	g := &b.groups[s.group]
	_, most := b.spread.bounds()
	need := neededFor(g.tally, b.options.Width)
	return g.n >= need && 1/most >= need
}
