package freq

import (
	"math"
	"slices"

	"atys.dev/atys/internal/stats"
)

// pooling is the work on it.
type pooling struct {
	options  Options
	windows  []Window
	places   []int   // of those with samples, in windows
	tallies  []tally // of these
	spread   overdispersion
	segments []segment
	groups   groups
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
	b.spread = unknown
	const enough = 8
	if len(found) >= enough { // most neighbours are of one stretch
		b.spread = priorOf(max(stats.Median(found), b.least()), 1)
	}
	b.spread = b.spread.atLeast(b.least())
}

// least is by how much windows differ at least, for all that is known: by far less
// than anybody wants to know.
func (b *pooling) least() float64 {
	const fraction = 20
	return leastSpread(b.options) / fraction
}

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
		segments = append(segments, segment{from: from[to], to: to})
	}
	slices.Reverse(segments)
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
	learned := unknown.atLeast(b.least())
	for _, s := range b.segments {
		before := tally{}
		for _, t := range b.tallies[s.from:s.to] {
			if before.n > 0 {
				learned.learnFrom(t, before)
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
		t := tally{}
		for _, w := range b.tallies[s.from:s.to] {
			t.add(w.worth(d))
		}
		s.group = b.groups.join(t, s.windows())
	}
}
