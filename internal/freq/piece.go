package freq

// piece is what one window has of a stretch: parts in a row, as one. A part in which a
// change may have been is one by itself.
type piece struct {
	span            // of places
	window, segment int
	at              int // when its window was, in windows' lengths
	n               float64
	uneven          float64 // times the spread of parts: what it differs by beyond a whole window, in which they even out
	half            bool    // of its window at least
}

// pieces cuts stretches at the edges of windows.
func (b *pooling) pieces(parts []span, at []int) (all []piece) {
	window := windowOf(parts)
	windows := make([]tally, len(parts))
	for place, t := range b.tallies {
		windows[window[b.places[place]]].add(t)
	}
	for number, s := range b.segments {
		for from := s.from; from < s.to; {
			of := piece{span: span{from, from + 1}, window: window[b.places[from]], segment: number}
			of.at = at[of.window]
			_, mixed := b.mixed[from]
			for !mixed && of.to < s.to && window[b.places[of.to]] == of.window {
				if _, mixed = b.mixed[of.to]; !mixed {
					of.to++
				}
			}
			t := b.sum(of)
			of.n = t.n
			whole := windows[of.window].unevenness()
			of.uneven = max(t.unevenness()-whole, 0)
			of.half = of.uneven <= whole
			all = append(all, of)
			from = of.to
		}
	}
	return all
}

// windowOf is the window of each part.
func windowOf(parts []span) (windows []int) {
	for i, of := range parts {
		for range of.to - of.from {
			windows = append(windows, i)
		}
	}
	return windows
}

// times are when windows were, in lengths of theirs: between those that are here others
// may be missing.
func times(windows []Window) []int {
	at := make([]int, len(windows))
	for i := range windows {
		if w := &windows[i]; w.Length > 0 {
			at[i] = int(w.Start.Sub(windows[0].Start) / w.Length)
		}
		if i > 0 {
			at[i] = max(at[i], at[i-1]+1)
		}
	}
	return at
}

// sum adds up a piece.
func (b *pooling) sum(of piece) (t tally) {
	for _, part := range b.tallies[of.from:of.to] {
		t.add(part)
	}
	return t
}

// unevenness is one over how many windows of one size a tally is worth.
func (t tally) unevenness() float64 { return t.squares / (t.n * t.n) }

// learn cuts stretches into pieces, and measures how much parts of a window differ, and
// windows of a stretch.
func (p *Pooled) learn(b *pooling, at []int) {
	p.pieces, p.seen = b.pieces(p.parts, at), make([][]int, len(b.segments))
	for i, of := range p.pieces {
		if !b.mixed[of.from].likely {
			p.seen[of.segment] = append(p.seen[of.segment], i)
		}
	}
	p.slots, p.windows = unknown.atLeast(b.least()), unknown.atLeast(b.least())
	p.measure(&p.slots, &p.windows, func(place int) tally { return b.tallies[place] })
}

// measure learns by how much parts of a window differ from those before them, and windows
// of a stretch. It gives pieces, each as one window.
func (p *Pooled) measure(slots, windows *overdispersion, part func(place int) tally) []tally {
	wholes := make([]tally, len(p.pieces))
	for i, of := range p.pieces {
		whole := &wholes[i]
		for place := of.from; place < of.to; place++ {
			t := part(place)
			if whole.n > 0 {
				slots.learnFrom(t, *whole)
			}
			whole.add(t)
		}
		whole.squares = whole.n * whole.n
	}
	for _, seen := range p.seen {
		before := tally{}
		for _, i := range seen {
			if !p.pieces[i].half {
				continue
			}
			if before.n > 0 {
				windows.learnFrom(wholes[i], before)
			}
			before.add(wholes[i])
		}
	}
	return wholes
}
