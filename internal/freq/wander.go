package freq

import (
	"math"
	"slices"
)

// wander is how a share moves about its mean in windows that do the same: how far, as
// the D of a spread, and for how many windows it stays about where it was; 0: the next
// one tells nothing of it.
type wander struct{ d, reach float64 }

// kept is how much is left after so many windows of how far it was off.
func (w wander) kept(windows int) float64 {
	switch {
	case windows == 0:
		return 1
	case w.reach == 0:
		return 0
	}
	return math.Exp(-float64(windows) / w.reach)
}

// sight is a share that was seen: in which window, and what chance does to it, as a
// spread.
type sight struct {
	window       int
	share, noise float64
}

// level is where a share was at a sight by all that was seen: its own spread, how far its
// mean moves it (the square is a spread, and those of one mean move together), and what
// else its variance has.
type level struct{ share, spread, pull, moves float64 }

// path is where a share was if it wanders in one way.
type path struct {
	levels     []level
	likelihood float64 // logarithm of it, but for what all ways have in common
}

// bearing is how far a share is off its mean, were that none; how far it would be, had
// all sights been one, which tells how much of that the mean takes; and its spread.
type bearing struct{ off, ofOne, spread float64 }

// follow finds the path: forth and back (Kalman; Rauch, Tung and Striebel), and the mean
// by generalized least squares: windows near each other tell less of it than others.
func (w wander) follow(sights []sight, variance float64) path {
	bearings, before := make([]bearing, len(sights)), make([]bearing, len(sights))
	var one, both, squares, logs float64
	for i, s := range sights {
		b := bearing{spread: w.d}
		if i > 0 {
			kept := w.kept(s.window - sights[i-1].window)
			last := bearings[i-1]
			b = bearing{kept * last.off, kept * last.ofOne, kept*kept*last.spread + (1-kept*kept)*w.d}
		}
		before[i] = b
		off, ofOne, spread := s.share-b.off, 1-b.ofOne, b.spread+s.noise
		one += ofOne * ofOne / spread
		both += ofOne * off / spread
		squares += off * off / spread
		logs += math.Log(spread)
		gain := b.spread / spread
		bearings[i] = bearing{b.off + gain*off, b.ofOne + gain*ofOne, b.spread * (1 - gain)}
	}
	mean, p := both/one, path{levels: make([]level, len(sights))}
	if variance > 0 {
		p.likelihood = -(logs + math.Log(one) + (squares-both*both/one)/variance) / 2
	}
	for i := len(sights) - 1; i >= 0; i-- {
		b := &bearings[i]
		if i+1 < len(sights) {
			next, expected := bearings[i+1], before[i+1]
			back := w.kept(sights[i+1].window-sights[i].window) * b.spread / expected.spread
			b.off += back * (next.off - expected.off)
			b.ofOne += back * (next.ofOne - expected.ofOne)
			b.spread += back * back * (next.spread - expected.spread)
		}
		heeds := 1 - b.ofOne
		p.levels[i] = level{share: b.off + heeds*mean, spread: b.spread, pull: heeds / math.Sqrt(one)}
	}
	return p
}

// wanders are ways in which a share may wander, and how much each is believed before
// anything was seen, as a logarithm.
type wanders struct {
	ways    []wander
	beliefs []float64
}

// wandersAbout are those about a spread: some functions have many times that, or a
// fraction of it.
func wandersAbout(d, least float64) (all wanders) {
	const (
		step, times = 2, 4 // from way to way; and of the spread, as a standard deviation
		most        = 1.0 / 16
		nothing     = 1e-9 // less than that is none
		rare        = 3    // as many times as likely as each reach is that there is none
	)
	for way := max(least, nothing); way < most; way *= step {
		off := math.Log(way/d) / math.Log(times)
		for _, reach := range []float64{0, 3, 15} {
			belief := -off * off / 2
			if reach > 0 {
				belief -= math.Log(rare)
			}
			all.ways = append(all.ways, wander{way, reach})
			all.beliefs = append(all.beliefs, belief)
		}
	}
	return all
}

// follow gives levels by all ways, each as far as what was seen has it believed, and how
// far those go on average. What is left in doubt is that by ways that go far, each by its
// square, and in which neighbours tell little, so that intervals hold of programs of which
// little was seen, and of those that were cut where they had gone far.
func (w wanders) follow(sights []sight, variance float64) (levels []level, d float64) {
	paths := make([]path, len(w.ways))
	weights := slices.Clone(w.beliefs)
	for i, way := range w.ways {
		paths[i] = way.follow(sights, variance)
		weights[i] += paths[i].likelihood
	}
	const unsure = 30 // as many times as likely has it to be that neighbours tell something
	most := slices.Max(weights)
	doubts := make([]float64, len(weights))
	for i, way := range w.ways {
		weights[i] = math.Exp(weights[i] - most)
		doubts[i] = weights[i] * way.d * way.d
		if way.reach > 0 {
			doubts[i] /= unsure
		}
	}
	weights, doubts = normal(weights), normal(doubts)
	levels = make([]level, len(sights))
	for i, p := range paths {
		d += weights[i] * w.ways[i].d
		for j, l := range p.levels {
			levels[j].share += weights[i] * l.share
			levels[j].spread += doubts[i] * l.spread
			levels[j].pull += doubts[i] * l.pull * l.pull
		}
	}
	for j := range levels {
		l := &levels[j]
		l.pull = math.Sqrt(l.pull)
		for i, p := range paths {
			off := p.levels[j].share - l.share
			l.moves += weights[i] * off * off
		}
	}
	return levels, d
}
