package freq

import "slices"

// functionEstimator estimates a function's shares. Stretches end where all functions say
// so. In which of them this function had the same share, how much parts of its windows
// differ and how its windows are correlated is estimated from the function alone: for most
// functions, a compiler that is done after a minute changes nothing.
type functionEstimator struct {
	*Pooled
	own     []float64      // of each part
	wholes  []tally        // of each piece: samples in the function and in all others
	shares  []float64      // the same as shares
	slots   overdispersion // of parts of a window
	windows overdispersion // of windows of a stretch
	groups  groups
	groupOf []int     // of each segment; -1: all of it is mixed
	levels  []level   // of each piece; zero for those that are more likely mixed than not
	levelOf []int     // the piece that stands for its level: those of one window and group have one
	d       []float64 // of each group: the overdispersion of its windows
}

func newFunctionEstimator(p *Pooled, own []float64) *functionEstimator {
	f := &functionEstimator{Pooled: p, own: own, shares: make([]float64, len(p.pieces)), levels: make([]level, len(p.pieces)), levelOf: make([]int, len(p.pieces))}
	f.learn()
	f.group()
	d, _ := f.windows.value()
	models := candidatesAbout(d, f.windows.least)
	for group := range f.groups {
		f.smooth(group, models)
	}
	return f
}

// learn adds up pieces, and measures how much the function's share differs: from part
// to part of a window, and from window to window of a stretch.
func (f *functionEstimator) learn() {
	f.slots, f.windows = f.Pooled.slots.ofOne(), f.Pooled.windows.ofOne()
	f.wholes = f.measure(&f.slots, &f.windows, func(place int) tally {
		part := f.places[place]
		n, share := f.n[part], f.own[part]
		return tally{counts: []float64{n * share, n * (1 - share)}, n: n, squares: n * n}
	})
	for i, whole := range f.wholes {
		f.shares[i] = whole.counts[0] / whole.n
	}
}

// group finds stretches in which the function had the same share.
func (f *functionEstimator) group() {
	d, _ := f.windows.value()
	for segment, pieces := range f.seen {
		t, number := tally{}, -1
		for _, i := range pieces {
			t.add(f.wholes[i].worth(d))
		}
		if t.n > 0 {
			number = f.groups.join(t, f.segments[segment].windows())
		}
		f.groupOf = append(f.groupOf, number)
	}
}

// smooth estimates the function's share in the stretches of a group.
func (f *functionEstimator) smooth(group int, models candidates) {
	slots, _ := f.slots.value()
	var observed []observation
	var pieces []int
	for segment, seen := range f.seen {
		if f.groupOf[segment] != group {
			continue
		}
		for _, i := range seen {
			of := f.pieces[i]
			observed = append(observed, observation{of.at, f.shares[i], 1/of.n + slots*of.uneven})
			pieces = append(pieces, i)
		}
	}
	share := f.groups[group].counts[0] / f.groups[group].n
	levels, d := models.smooth(observed, share*(1-share))
	for j, i := range pieces {
		f.levels[i], f.levelOf[i] = levels[j], i
		if j > 0 && observed[j-1].window == observed[j].window {
			f.levelOf[i] = f.levelOf[pieces[j-1]]
		}
	}
	f.d = append(f.d, d)
}

// estimate combines a piece's own samples with its smoothed level.
func (f *functionEstimator) estimate(i int) partial {
	of := f.pieces[i]
	if m, mixed := f.mixed[of.from]; mixed {
		return f.mixedEstimate(i, m)
	}
	d, most := f.unevenness(of)
	weight, relVariance := shrinkage(of.n, d, most)
	p := partial{contributions: [2]contribution{{f.levelOf[i], weight}}}
	p.share = (1-weight)*f.shares[i] + weight*f.levels[i].share
	p.relVariance = relVariance
	return p
}

// shrinkage gives the weight of a level in the estimate of something of n samples, where
// such things have overdispersion d about the level: the weight of the prior mean in the
// conjugate normal model. The relative variance that remains is by the most d can be.
func shrinkage(n, d, most float64) (weight, relVariance float64) {
	return 1 / (1 + n*d), most / (1 + n*most)
}

// unevenness is the overdispersion of a piece about the level of its window, and what that
// can be at most.
func (f *functionEstimator) unevenness(of piece) (d, most float64) {
	d, _ = f.slots.value()
	_, most = f.slots.bounds()
	return d * of.uneven, most * of.uneven
}

// mixedEstimate is that of a part in which a change was, or may have been. It combines the
// part's own samples with the levels of the stretches before and behind it.
func (f *functionEstimator) mixedEstimate(i int, m mixture) partial {
	of := f.pieces[i]
	alone := partial{estimate: estimate{share: f.shares[i], relVariance: 1 / of.n}}
	before, after := f.last(m.before, i), f.first(m.after, i)
	if before < 0 || after < 0 {
		return alone
	}
	d, most := f.unevenness(of)
	further := max(f.windowsOf(before), f.windowsOf(after))
	weight, relVariance := shrinkage(of.n, d+further, most+further)
	x, y := f.levels[before].share, f.levels[after].share
	p := partial{contributions: [2]contribution{{f.levelOf[before], weight * m.part}, {f.levelOf[after], weight * (1 - m.part)}}}
	p.share = (1-weight)*f.shares[i] + weight*(m.part*x+(1-m.part)*y)
	p.relVariance = relVariance
	p.extra = weight * weight * m.variance * (x - y) * (x - y)
	if whole := f.variance(p); p.extra > 0 && whole > p.share*(1-p.share)/of.n {
		return alone
	}
	return p
}

// windowsOf is the overdispersion of windows of a piece's group.
func (f *functionEstimator) windowsOf(i int) float64 { return f.d[f.groupOf[f.pieces[i].segment]] }

// last is the last piece of a stretch that has a level, but for one; -1: none has.
func (f *functionEstimator) last(segment, but int) int {
	for _, i := range slices.Backward(f.seen[segment]) {
		if i != but {
			return i
		}
	}
	return -1
}

// first is the first one.
func (f *functionEstimator) first(segment, but int) int {
	for _, i := range f.seen[segment] {
		if i != but {
			return i
		}
	}
	return -1
}

// variance is that of a part by itself, with the levels that contribute to it.
func (f *functionEstimator) variance(p partial) float64 {
	f.addLevels(&p.estimate, p.contributions[:])
	return p.estimate.variance()
}

// addLevels adds to an estimate the variance of the levels that contribute to it, and of
// the means of their groups.
func (f *functionEstimator) addLevels(e *estimate, levels []contribution) {
	var means []contribution
	for _, c := range levels {
		if c.weight == 0 {
			continue
		}
		l := f.levels[c.index]
		e.relVariance += c.weight * c.weight * l.relVariance
		e.extra += c.weight * c.weight * l.extra
		means = addContribution(means, f.groupOf[f.pieces[c.index].segment], c.weight*l.meanError)
	}
	for _, c := range means {
		e.relVariance += c.weight * c.weight
	}
}
