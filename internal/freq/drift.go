package freq

// drifting finds parts of a program that does something else little by little, as it
// starts: stretches that follow each other, all short and like nothing else. The last
// changes of a drift are too small to be found, and what it ends in begins with them: it
// may go on unseen for as long as it was seen. Means are surer of such parts than they are right.
func (b *pooling) drifting(parts []span) []bool {
	drifts := make([]bool, len(b.windows))
	short := 0
	for _, of := range parts {
		const windows = 3
		short = max(short, windows*(of.to-of.from))
	}
	from, found := 0, 0 // the run of short stretches
	for _, s := range b.segments {
		if s.windows() < short && !b.known(s) {
			found++
			continue
		}
		if found > 1 && from < s.from {
			b.mark(drifts, from, min(2*s.from-from, s.to))
		}
		from, found = s.to, 0
	}
	if found > 1 {
		b.mark(drifts, from, len(b.places))
	}
	return drifts
}

// known tells whether a stretch is explained by others: as one of their phase, or as a
// change from one to the next.
func (b *pooling) known(s segment) bool {
	m, mixed := b.mixed[s.from]
	return s.windows() == 1 && mixed && m.likely || b.groups[s.group].windows > s.windows()
}

func (b *pooling) mark(drifts []bool, from, to int) {
	for _, place := range b.places[from:to] {
		drifts[place] = true
	}
}
