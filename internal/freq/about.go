package freq

// about estimates a function's shares. What all functions did tells where stretches
// end; in which of them this one did the same, and how much its windows differ, it
// tells itself: a compiler that is done after a minute changes nothing for it.
func (p *Pooled) about(own []float64) []estimate {
	if p.references != nil {
		return p.substituted(own)
	}
	a := &about{Pooled: p, own: own}
	a.learn()
	a.group()
	estimates := make([]estimate, len(own))
	for number, s := range p.segments {
		for place := s.from; place < s.to; place++ {
			estimates[p.places[place]] = a.estimate(number, place)
		}
	}
	return estimates
}

// about is one function's samples.
type about struct {
	*Pooled
	own     []float64
	d, most float64 // its spread, and what that can be at most
	groups  groups
	groupOf []int // of each segment; -1: all of it is mixed
}

// tally has a window's samples in the function and in all others.
func (a *about) tally(place int) tally {
	w := a.places[place]
	n, share := a.n[w], a.own[w]
	return tally{counts: []float64{n * share, n * (1 - share)}, n: n, squares: n * n}
}

// learn measures how much the function's share differs within stretches.
func (a *about) learn() {
	d, _ := a.spread.value()
	spread := believed(d, 1).atLeast(a.spread.least)
	for _, s := range a.segments {
		before := tally{}
		for place := s.from; place < s.to; place++ {
			if a.mixed[place].likely {
				continue
			}
			t := a.tally(place)
			if before.n > 0 {
				spread.learnFrom(t, before)
			}
			before.add(t)
		}
	}
	a.d, _ = spread.value()
	_, a.most = spread.bounds()
}

// group finds stretches in which the function had the same share.
func (a *about) group() {
	for _, s := range a.segments {
		t := tally{}
		for place := s.from; place < s.to; place++ {
			if !a.mixed[place].likely {
				t.add(a.tally(place).worth(a.d))
			}
		}
		number := -1
		if t.n > 0 {
			number = a.groups.join(t, s.windows())
		}
		a.groupOf = append(a.groupOf, number)
	}
}

// estimate is a window's: what its group says and what itself says, each by its worth.
func (a *about) estimate(number, place int) estimate {
	w := a.places[place]
	n, own := a.n[w], a.own[w]
	m, mixed := a.mixed[place]
	if !mixed {
		m = mixture{before: number, after: number, part: 1}
	}
	before, knowBefore := a.mean(m.before)
	after, knowAfter := a.mean(m.after)
	if !knowBefore || !knowAfter {
		return estimate{share: own, spread: 1 / n}
	}
	of := 1 / (1 + n*a.d)
	e := estimate{share: (1-of)*own + of*(m.part*before+(1-m.part)*after)}
	e.moves = of * of * m.variance * (before - after) * (before - after)
	e.spread = min(1/n, a.most/(1+n*a.most)+of*of*a.doubt(m))
	if alone := (estimate{share: own, spread: 1 / n}); e.moves > 0 && e.variance() > alone.variance() {
		return alone
	}
	return e
}

// mean is the function's share in all that was like a stretch.
func (a *about) mean(segment int) (share float64, known bool) {
	group := a.groupOf[segment]
	if group < 0 {
		return 0, false
	}
	g := a.groups[group]
	return g.counts[0] / g.n, true
}

// doubt is the variance of what groups say, in p(1-p).
func (a *about) doubt(m mixture) float64 {
	of := func(segment int) float64 { return 1 / a.groups[a.groupOf[segment]].n }
	if m.before == m.after {
		return of(m.before)
	}
	return m.part*m.part*of(m.before) + (1-m.part)*(1-m.part)*of(m.after)
}
