package freq

// drifting finds parts of a program that does something else little by little, as it
// starts: stretches that follow each other, all short and like nothing else. The last
// changes of a drift are too small to be found, and what it ends in begins with them: it
// may go on unseen for as long as it was seen. Intervals of means do not know of that.
func (b *pooling) drifting(parts []span) []bool {
	drifts := make([]bool, len(b.windows))
	window := windowOf(parts)
	short := func(s segment) bool {
		const windows = 3
		length := 0.0
		for _, place := range b.places[s.from:s.to] {
			of := parts[window[place]]
			length += 1 / float64(of.to-of.from)
		}
		return length < windows-1e-9
	}
	for i := 0; i < len(b.segments); {
		next := i
		for next < len(b.segments) && short(b.segments[next]) && !b.known(b.segments[next]) {
			next++
		}
		if next-i > 1 {
			from, to := b.segments[i].from, b.segments[next-1].to
			behind := b.segments[min(next, len(b.segments)-1)]
			for _, place := range b.places[from:min(to+to-from, behind.to)] {
				drifts[place] = true
			}
		}
		i = next + 1
	}
	return drifts
}

// known tells whether a stretch is explained by others: as one of their phase, or as a
// change from one to the next.
func (b *pooling) known(s segment) bool {
	m, mixed := b.mixed[s.from]
	return s.windows() == 1 && mixed && m.likely || b.groups[s.group].windows > s.windows()
}
