package cfi

// rowList collects the rows of one source, function by function in the order
// of their offsets.
type rowList struct {
	rows []Row
	end  uint32 // where the newest function ends
}

// begin starts a function of the given size. Of functions that overlap, the
// later one holds.
func (l *rowList) begin(off, size uint32) {
	if len(l.rows) > 0 && l.end < off {
		l.rows = append(l.rows, row(l.end, rule(Gap, 0, 0)))
	}
	for n := len(l.rows); n > 0 && l.rows[n-1].Offset() >= off; n-- {
		l.rows = l.rows[:n-1]
	}
	l.end = off + size
}

// add says that r holds from off, which is not before the last one added.
func (l *rowList) add(off uint32, r Rule) {
	if off >= l.end {
		return
	}
	if n := len(l.rows); n > 0 {
		if l.rows[n-1].Rule() == r {
			return
		}
		if l.rows[n-1].Offset() == off {
			l.rows = l.rows[:n-1]
			l.add(off, r)
			return
		}
	}
	l.rows = append(l.rows, row(off, r))
}

// finish closes the last function.
func (l *rowList) finish() []Row {
	if len(l.rows) > 0 && l.rows[len(l.rows)-1].Rule().Type() != Gap {
		l.rows = append(l.rows, row(l.end, rule(Gap, 0, 0)))
	}
	return l.rows
}

// overlay lays top over bottom: where top has a gap, bottom holds.
func overlay(top, bottom []Row) []Row {
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
			out = append(out, row(off, r))
		}
	}
	return out
}

// find is the rule of the last row at or before off.
func find(rows []Row, off uint32) Rule {
	lo, hi := 0, len(rows)
	for lo < hi {
		if mid := (lo + hi) / 2; rows[mid].Offset() <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return rule(Gap, 0, 0)
	}
	return rows[lo-1].Rule()
}
