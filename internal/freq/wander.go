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

// level is where a share was at a sight by all that was seen: how far it goes by the
// mean, its own spread beside that of the mean, and what else its variance has.
type level struct{ share, heeds, spread, moves float64 }

// path is where a share was if it wanders in one way.
type path struct {
	levels     []level
	mean       float64
	spread     float64 // of the mean
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
	p := path{levels: make([]level, len(sights)), mean: both / one, spread: 1 / one}
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
		p.levels[i] = level{share: b.off + heeds*p.mean, heeds: heeds, spread: b.spread}
	}
	return p
}

// wanders are ways in which a share may wander, and how much each is believed before
// anything was seen, as a logarithm.
type wanders struct {
	ways    []wander
	beliefs []float64
}

// wandersAbout are those about a spread: some functions have many times that, or few of
// it.
func wandersAbout(d, least float64) (all wanders) {
	const (
		step, times = 2, 4 // from way to way; and of the spread, as a standard deviation
		most        = 1.0 / 16
		rare        = 3 // as many times as likely is that windows tell nothing of each other
	)
	for way := least; way < most; way *= step {
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

// follow is the path by all ways, each as far as what was seen has it believed, and how
// far those go on average. What is left in doubt is that by ways that go far: each counts
// by its square there, so that intervals hold of programs of which little was seen.
func (w wanders) follow(sights []sight, variance float64) (all path, d float64) {
	paths := make([]path, len(w.ways))
	weights := slices.Clone(w.beliefs)
	for i, way := range w.ways {
		paths[i] = way.follow(sights, variance)
		weights[i] += paths[i].likelihood
	}
	most := slices.Max(weights)
	doubts := make([]float64, len(weights))
	for i, way := range w.ways {
		weights[i] = math.Exp(weights[i] - most)
		doubts[i] = weights[i] * way.d * way.d
	}
	weights, doubts = normal(weights), normal(doubts)
	all.levels = make([]level, len(sights))
	for i, p := range paths {
		d += weights[i] * w.ways[i].d
		all.mean += weights[i] * p.mean
		all.spread += doubts[i] * p.spread
		for j, l := range p.levels {
			all.levels[j].add(l, weights[i], doubts[i])
		}
	}
	for j := range all.levels {
		l := &all.levels[j]
		l.moves = max(l.moves-l.share*l.share, 0)
	}
	return all, d
}

// add takes in a way's: moves are squares, until all have been.
func (l *level) add(way level, weight, doubt float64) {
	l.share += weight * way.share
	l.moves += weight * way.share * way.share
	l.heeds += doubt * way.heeds
	l.spread += doubt * way.spread
}
