package rows

const (
	minShift = 4
	maxShift = 12
	// pageRows is what a lookup can search in eight steps.
	pageRows = 256
	// maxPages bounds the index: 16 MB, enough for any code with pages of 1024
	// bytes. Pages do not get smaller than that allows.
	maxPages = 1 << 22
)

// Table is how to unwind the code of one file.
type Table struct {
	// Rows are sorted by offset; each holds until the next one's.
	Rows []Row
	// Index has one entry per page of 1<<Shift bytes from First on, and one
	// more: the index of the last row at or before the page's start. A row
	// that holds in page i is one of Rows[Index[i]:Index[i+1]+1], which are at
	// most 256.
	Index []uint32
	// First is the file offset of the first page.
	First uint32
	// Shift is the binary logarithm of the page size: 4 to 12.
	Shift uint8
	// KeepsFramePointers is set where every piece of code in the file is known
	// to keep frame pointers: Go without C.
	KeepsFramePointers bool
	// Source names where the rows come from, best first: "eh_frame+plt".
	Source string
	// Unsupported counts, by reason, the rows and functions whose unwind
	// information cannot be expressed in full.
	Unsupported map[string]int
}

// SetRows takes over rows and cuts them into pages, the largest in which no
// lookup has to search more than pageRows rows.
func (t *Table) SetRows(rows []Row) {
	if len(rows) == 0 {
		return
	}
	first := rows[0].Offset() >> maxShift << maxShift
	if rows[0].Offset() != first {
		rows = append(rows, 0)
		copy(rows[1:], rows)
		rows[0] = NewRow(first, NewRule(Gap, 0, 0))
	}
	t.First = first
	span := rows[len(rows)-1].Offset() - first
	t.Shift = maxShift
	for t.Shift > minShift && span>>(t.Shift-1) < maxPages && crowded(rows, first, t.Shift) {
		t.Shift--
	}
	t.Rows = t.thin(rows)
	t.Index = make([]uint32, 0, span>>t.Shift+2)
	last := uint32(0)
	for page := uint64(0); page <= uint64(span>>t.Shift)+1; page++ {
		start := uint64(first) + page<<t.Shift
		for int(last)+1 < len(t.Rows) && uint64(t.Rows[last+1].Offset()) <= start {
			last++
		}
		t.Index = append(t.Index, last)
	}
}

// crowded reports whether some page has too many rows. The row that holds
// where the page begins counts, and so does the one at its end.
func crowded(rows []Row, first uint32, shift uint8) bool {
	page, n := uint32(0), 0
	for _, r := range rows {
		if p := (r.Offset() - first) >> shift; p != page {
			page, n = p, 0
		}
		if n++; n > pageRows-2 {
			return true
		}
	}
	return false
}

// thin replaces the rows of crowded pages, where no smaller page would do, by
// one that admits that it does not know.
func (t *Table) thin(rows []Row) []Row {
	if !crowded(rows, t.First, t.Shift) {
		return rows
	}
	out := rows[:0]
	for i := 0; i < len(rows); {
		page := (rows[i].Offset() - t.First) >> t.Shift
		j := i
		for j < len(rows) && (rows[j].Offset()-t.First)>>t.Shift == page {
			j++
		}
		if j-i <= pageRows-2 {
			out = append(out, rows[i:j]...)
		} else {
			t.Unsupported["too many rows in a page"] += j - i
			last := rows[j-1]
			out = append(out, NewRow(rows[i].Offset(), NewRule(Unsupported, 0, 0)), last)
		}
		i = j
	}
	return out
}

// Find is the rule at a file offset. ok is false where nothing is known.
func (t *Table) Find(offset uint32) (r Rule, ok bool) {
	if offset < t.First || len(t.Rows) == 0 {
		return 0, false
	}
	page := int((offset - t.First) >> t.Shift)
	if page+1 >= len(t.Index) {
		page = len(t.Index) - 2
	}
	r = Find(t.Rows[t.Index[page]:t.Index[page+1]+1], offset)
	return r, r.Type() != Gap
}
