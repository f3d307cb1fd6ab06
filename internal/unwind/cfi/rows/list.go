package rows

// List collects the rows of one source, function by function in the order
// of their offsets.
type List struct {
	Rows []Row
	End  uint32 // where the newest function ends
}

// Begin starts a function of the given size. Of functions that overlap, the
// later one holds.
func (l *List) Begin(off, size uint32) {
	if len(l.Rows) > 0 && l.End < off {
		l.Rows = append(l.Rows, NewRow(l.End, NewRule(Gap, 0, 0)))
	}
	for n := len(l.Rows); n > 0 && l.Rows[n-1].Offset() >= off; n-- {
		l.Rows = l.Rows[:n-1]
	}
	l.End = off + size
}

// Add says that r holds from off, which is not before the last one added.
func (l *List) Add(off uint32, r Rule) {
	if off >= l.End {
		return
	}
	if n := len(l.Rows); n > 0 {
		if l.Rows[n-1].Rule() == r {
			return
		}
		if l.Rows[n-1].Offset() == off {
			l.Rows = l.Rows[:n-1]
			l.Add(off, r)
			return
		}
	}
	l.Rows = append(l.Rows, NewRow(off, r))
}

// Finish closes the last function.
func (l *List) Finish() []Row {
	if len(l.Rows) > 0 && l.Rows[len(l.Rows)-1].Rule().Type() != Gap {
		l.Rows = append(l.Rows, NewRow(l.End, NewRule(Gap, 0, 0)))
	}
	return l.Rows
}

// Overlay lays top over bottom: where top has a gap, bottom holds.
func Overlay(top, bottom []Row) []Row {
	if len(top) == 0 {
		return bottom
	}
	if len(bottom) == 0 {
		return top
	}
	out := make([]Row, 0, len(top)+len(bottom))
	var t, b Rule
	for i, j := 0, 0; i < len(top) || j < len(bottom); {
		var off uint32
		if j == len(bottom) || i < len(top) && top[i].Offset() <= bottom[j].Offset() {
			off = top[i].Offset()
		} else {
			off = bottom[j].Offset()
		}
		for ; i < len(top) && top[i].Offset() == off; i++ {
			t = top[i].Rule()
		}
		for ; j < len(bottom) && bottom[j].Offset() == off; j++ {
			b = bottom[j].Rule()
		}
		r := t
		if t.Type() == Gap {
			r = b
		}
		if n := len(out); n == 0 || out[n-1].Rule() != r {
			out = append(out, NewRow(off, r))
		}
	}
	return out
}

// Find is the rule of the last row at or before off.
func Find(rows []Row, off uint32) Rule {
	lo, hi := 0, len(rows)
	for lo < hi {
		if mid := (lo + hi) / 2; rows[mid].Offset() <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return NewRule(Gap, 0, 0)
	}
	return rows[lo-1].Rule()
}
