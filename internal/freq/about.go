package freq

// about estimates a function's shares. What all functions did tells where stretches
// end; in which of them this one did the same, and how much its windows differ, it
// tells itself: a compiler that is done after a minute changes nothing for it.
type about struct {
	*Pooled
	own     []float64 // of each part
	d, most float64   // its spread, and what that can be at most
	groups  groups
	groupOf []int // of each segment; -1: all of it is mixed
}

func newAbout(p *Pooled, own []float64) *about {
	a := &about{Pooled: p, own: own}
	a.learn()
	a.group()
	return a
}

// partials estimates all parts.
func (a *about) partials() []partial {
	all := make([]partial, len(a.n))
	for number, s := range a.segments {
		for place := s.from; place < s.to; place++ {
			all[a.places[place]] = a.estimate(number, place)
		}
	}
	return all
}

// tally has a part's samples in the function and in all others.
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

// estimate is a part's: what its group says and what itself says, each by its worth.
func (a *about) estimate(number, place int) partial {
	w := a.places[place]
	n, own := a.n[w], a.own[w]
	alone := partial{estimate: estimate{share: own, spread: 1 / n}}
	m, mixed := a.mixed[place]
	if !mixed {
		m = mixture{before: number, after: number, part: 1}
	}
	before, after := a.groupOf[m.before], a.groupOf[m.after]
	if before < 0 || after < 0 {
		return alone
	}
	of := 1 / (1 + n*a.d)
	p := partial{means: [2]heed{{before, of * m.part}, {after, of * (1 - m.part)}}}
	x, y := a.mean(before), a.mean(after)
	p.share = (1-of)*own + of*(m.part*x+(1-m.part)*y)
	p.spread = a.most / (1 + n*a.most)
	p.moves = of * of * m.variance * (x - y) * (x - y)
	if p.moves > 0 && a.variance(p) > alone.variance() {
		return alone
	}
	return p
}

// variance is that of a part by itself.
func (a *about) variance(p partial) float64 {
	for _, h := range p.means {
		p.spread += h.part * h.part / a.groups[h.group].n
	}
	return p.estimate.variance()
}

// mean is the function's share in a group.
func (a *about) mean(group int) float64 { return a.groups[group].counts[0] / a.groups[group].n }
