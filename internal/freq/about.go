package freq

import "slices"

// about estimates a function's shares. What all functions did tells where stretches
// end; in which of them this one did the same, how much parts of its windows differ and
// how its windows wander, it tells itself: a compiler that is done after a minute
// changes nothing for it.
type about struct {
	*Pooled
	own     []float64 // of each part
	wholes  []tally   // of each piece: samples in the function and in all others
	shares  []float64 // the same as shares
	slots   spread    // how much parts of a window differ by themselves
	windows spread    // how much windows of a stretch do
	groups  groups
	groupOf []int     // of each segment; -1: all of it is mixed
	levels  []level   // of each piece; of those that are mixed more likely than not none
	levelOf []int     // the piece that stands for its level: those of one window and group have one
	d       []float64 // of each group: how far its windows go
}

func newAbout(p *Pooled, own []float64) *about {
	a := &about{Pooled: p, own: own, shares: make([]float64, len(p.pieces)), levels: make([]level, len(p.pieces)), levelOf: make([]int, len(p.pieces))}
	a.learn()
	a.group()
	d, _ := a.windows.value()
	ways := wandersAbout(d, a.windows.least)
	for group := range a.groups {
		a.follow(group, ways)
	}
	return a
}

// learn adds up pieces, and measures how much the function's share differs: from part
// to part of a window, and from window to window of a stretch.
func (a *about) learn() {
	a.slots, a.windows = a.Pooled.slots.again(), a.Pooled.windows.again()
	a.wholes = a.measure(&a.slots, &a.windows, func(place int) tally {
		part := a.places[place]
		n, share := a.n[part], a.own[part]
		return tally{counts: []float64{n * share, n * (1 - share)}, n: n, squares: n * n}
	})
	for i, whole := range a.wholes {
		a.shares[i] = whole.counts[0] / whole.n
	}
}

// group finds stretches in which the function had the same share.
func (a *about) group() {
	d, _ := a.windows.value()
	for segment, pieces := range a.seen {
		t, number := tally{}, -1
		for _, i := range pieces {
			t.add(a.wholes[i].worth(d))
		}
		if t.n > 0 {
			number = a.groups.join(t, a.segments[segment].windows())
		}
		a.groupOf = append(a.groupOf, number)
	}
}

// follow finds where the function's share was in the stretches of a group.
func (a *about) follow(group int, ways wanders) {
	slots, _ := a.slots.value()
	var sights []sight
	var pieces []int
	for segment, seen := range a.seen {
		if a.groupOf[segment] != group {
			continue
		}
		for _, i := range seen {
			of := a.pieces[i]
			sights = append(sights, sight{of.at, a.shares[i], 1/of.n + slots*of.uneven})
			pieces = append(pieces, i)
		}
	}
	share := a.groups[group].counts[0] / a.groups[group].n
	levels, d := ways.follow(sights, share*(1-share))
	for j, i := range pieces {
		a.levels[i], a.levelOf[i] = levels[j], i
		if j > 0 && sights[j-1].window == sights[j].window {
			a.levelOf[i] = a.levelOf[pieces[j-1]]
		}
	}
	a.d = append(a.d, d)
}

// estimate is a piece's: what it says itself, and what its level is by all others.
func (a *about) estimate(i int) partial {
	of := a.pieces[i]
	if m, mixed := a.mixed[of.from]; mixed {
		return a.mixedPart(i, m)
	}
	d, most := a.unevenness(of)
	part, spread := shrunk(of.n, d, most)
	p := partial{heeds: [2]heed{{a.levelOf[i], part}}}
	p.share = (1-part)*a.shares[i] + part*a.levels[i].share
	p.spread = spread
	return p
}

// shrunk is how far something of n samples goes by a level from which such things differ
// by a spread, and what spread is left by what that is at most.
func shrunk(n, d, most float64) (part, spread float64) { return 1 / (1 + n*d), most / (1 + n*most) }

// unevenness is the spread of a piece about the level of its window, and what that can be
// at most.
func (a *about) unevenness(of piece) (d, most float64) {
	d, _ = a.slots.value()
	_, most = a.slots.bounds()
	return d * of.uneven, most * of.uneven
}

// mixedPart is that of a part in which a change was, or may have been: what it says
// itself, and where the stretches before and behind it were.
func (a *about) mixedPart(i int, m mixture) partial {
	of := a.pieces[i]
	alone := partial{estimate: estimate{share: a.shares[i], spread: 1 / of.n}}
	before, after := a.last(m.before, i), a.first(m.after, i)
	if before < 0 || after < 0 {
		return alone
	}
	d, most := a.unevenness(of)
	further := max(a.windowsOf(before), a.windowsOf(after))
	part, spread := shrunk(of.n, d+further, most+further)
	x, y := a.levels[before].share, a.levels[after].share
	p := partial{heeds: [2]heed{{a.levelOf[before], part * m.part}, {a.levelOf[after], part * (1 - m.part)}}}
	p.share = (1-part)*a.shares[i] + part*(m.part*x+(1-m.part)*y)
	p.spread = spread
	p.moves = part * part * m.variance * (x - y) * (x - y)
	if whole := a.variance(p); p.moves > 0 && whole > p.share*(1-p.share)/of.n {
		return alone
	}
	return p
}

// windowsOf is how far windows go that do what a piece does.
func (a *about) windowsOf(i int) float64 { return a.d[a.groupOf[a.pieces[i].segment]] }

// last is the last piece of a stretch that has a level, but for one; -1: none has.
func (a *about) last(segment, but int) int {
	for _, i := range slices.Backward(a.seen[segment]) {
		if i != but {
			return i
		}
	}
	return -1
}

// first is the first one.
func (a *about) first(segment, but int) int {
	for _, i := range a.seen[segment] {
		if i != but {
			return i
		}
	}
	return -1
}

// variance is that of a part by itself.
func (a *about) variance(p partial) float64 {
	a.addLevels(&p.estimate, p.heeds[:])
	return p.estimate.variance()
}

// addLevels adds to an estimate the variance of the levels that it goes by, and of the
// means that those go by.
func (a *about) addLevels(e *estimate, heeds []heed) {
	var means []heed
	for _, h := range heeds {
		if h.part == 0 {
			continue
		}
		l := a.levels[h.of]
		e.spread += h.part * h.part * l.spread
		e.moves += h.part * h.part * l.moves
		means = heeded(means, a.groupOf[a.pieces[h.of].segment], h.part*l.pull)
	}
	for _, h := range means {
		e.spread += h.part * h.part
	}
}
