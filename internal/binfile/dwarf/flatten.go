package dwarf

import (
	"cmp"
	"slices"
)

// Code is what one unit says of its code.
type Code struct {
	Calls []Call
	Spans []CallSpan // sorted, not overlapping
	Lines []Line     // sorted
	Files []string
}

// Call is a function, or a call that was inlined into another one.
type Call struct {
	Name, Linkage      string // Linkage is empty where the compiler gives none
	Parent             int    // of Calls: what it was inlined into; -1 for a function
	CallFile, CallLine int    // where it was called, if inlined; CallFile -1 if unknown
	DeclLine           int    // where the function starts
	DeclFile           int    // of Files, -1 if unknown
}

// CallSpan says which is the innermost call of a stretch of addresses.
type CallSpan struct {
	Start, End uint64
	Call       int
}

const (
	maxCalls   = 1 << 20 // of one unit
	maxNames   = 1 << 26 // bytes of names that one unit looks up; calls of a function share its
	maxDepth   = 1 << 10 // of entries in each other
	maxOrigins = 16      // steps from an entry to the one that has its name
)

// pending is a call whose name is not looked up yet.
type pending struct {
	name, linkage, origin value
	declFile, declLine    uint64
	callFile, callLine    uint64
	parent, depth         int
	spans                 []span
}

func newPending(e entry, spans []span) pending {
	return pending{name: e.name, linkage: e.linkage, origin: e.origin, declFile: e.declFile, declLine: e.declLine,
		callFile: e.callFile, callLine: e.callLine, parent: -1, spans: spans}
}

// origin is what a call takes from the entry it is an instance of.
type origin struct {
	name, linkage string
	declFile      uint64
	declLine      uint64
	sameFiles     bool // declFile counts in the files of the unit asked
}

// Flatten reads the unit at an offset that Units gave. Of a damaged unit it gives
// what stands before the damage.
func (d *Data) Flatten(off uint32) *Code {
	u := d.unitAt(uint64(off))
	if u == nil || u.off != uint64(off) || !u.load() {
		return &Code{}
	}
	code := &Code{}
	compDir, name := u.string(u.root.compDir), u.string(u.root.name)
	if u.root.stmtListFound {
		if p := readProgram(u, u.root.stmtList.n, compDir, name); p != nil {
			code.Lines = flattenLines(p.run())
			code.Files = p.files
		}
	}
	entries := u
	if split, closer := u.openSplit(compDir); split != nil {
		defer closer.Close()
		entries = split
	}
	calls := entries.calls()
	entries.fill(code, calls)
	code.Spans = flattenSpans(calls)
	return code
}

// calls walks the entries of a loaded unit and collects those that have code.
func (u *unit) calls() (calls []pending) {
	// Later steps may load other units, and drop this one: keep what it is.
	c := cursor{data: u.buf, at: min(u.start, len(u.buf))}
	table := u.table
	var enclosing []int // per level: the innermost call around it, -1 for none
	current := -1
	left := maxUnitSpans
	for c.at < len(c.data) && len(calls) < maxCalls && left > 0 {
		code := c.uleb()
		if code == 0 {
			if len(enclosing) == 0 {
				return calls // padding behind the root
			}
			current = enclosing[len(enclosing)-1]
			enclosing = enclosing[:len(enclosing)-1]
			if len(enclosing) == 0 {
				return calls
			}
			continue
		}
		ab, found := table.get(code)
		if !found {
			return calls
		}
		here := current
		switch ab.tag {
		case tagSubprogram, tagInlined:
			e, ok := c.entry(ab, u)
			if !ok {
				return calls
			}
			spans, read := u.ranges(e, min(left, maxCallSpans))
			left -= read
			if len(spans) > 0 {
				p := newPending(e, spans)
				if ab.tag == tagInlined && current >= 0 {
					p.parent, p.depth = current, calls[current].depth+1
				}
				here = len(calls)
				calls = append(calls, p)
			}
		case tagArray, tagEnum, tagSubroutine, tagCallSite, tagGNUCall:
			e, ok := c.entry(ab, u)
			if !ok {
				return calls
			}
			if ab.children && e.sibling > u.off+uint64(c.at) && e.sibling <= u.end {
				c.at = int(e.sibling - u.off)
				continue
			}
		default:
			if !c.skipFields(ab, u) {
				return calls
			}
		}
		if ab.children {
			if len(enclosing) >= maxDepth {
				return calls
			}
			enclosing = append(enclosing, current)
			current = here
		}
	}
	return calls
}

func (c *cursor) skipFields(ab abbrev, u *unit) bool {
	if ab.fixed >= 0 {
		c.skip(uint64(ab.fixed))
		return !c.bad
	}
	for _, f := range ab.fields {
		if n := fixedSize(f.form, u); n >= 0 {
			c.skip(uint64(n))
		} else {
			c.value(f, u)
		}
	}
	return !c.bad
}

// fill looks up the names of calls.
func (u *unit) fill(code *Code, calls []pending) {
	known := map[value]origin{}
	file := func(n uint64) int {
		// Before DWARF 5, 0 was no file.
		if n < uint64(len(code.Files)) && (n > 0 || u.version >= 5) {
			return int(n)
		}
		return -1
	}
	code.Calls = make([]Call, len(calls))
	for i, p := range calls { // what has no name keeps its place
		code.Calls[i] = Call{Parent: p.parent, CallFile: -1, DeclFile: -1}
	}
	left := maxNames
	for i, p := range calls {
		// Loading another unit may have dropped this one.
		if !u.load() {
			return
		}
		o := origin{declFile: p.declFile, declLine: p.declLine, sameFiles: true}
		if left > 0 {
			o.name, o.linkage = u.string(p.name), u.string(p.linkage)
			left -= len(o.name) + len(o.linkage)
		}
		if p.origin.class != classNone {
			from, ok := known[p.origin]
			if !ok && left > 0 {
				from = u.resolve(p.origin)
				known[p.origin] = from
				left -= len(from.name) + len(from.linkage)
			}
			o = o.or(from)
		}
		call := Call{Name: o.name, Linkage: o.linkage, Parent: p.parent, CallFile: file(p.callFile),
			CallLine: int(min(p.callLine, 1<<31)), DeclLine: int(min(o.declLine, 1<<31)), DeclFile: -1}
		if o.sameFiles {
			call.DeclFile = file(o.declFile)
		}
		code.Calls[i] = call
	}
}

// or takes what is missing from another.
func (o origin) or(p origin) origin {
	if o.declLine == 0 {
		o.declLine, o.declFile, o.sameFiles = p.declLine, p.declFile, p.sameFiles
	}
	return origin{cmp.Or(o.name, p.name), cmp.Or(o.linkage, p.linkage), o.declFile, o.declLine, o.sameFiles}
}

// resolve follows references until name and linker name are known.
func (u *unit) resolve(ref value) (o origin) {
	d, same := u.data, true
	for range maxOrigins {
		if ref.class == classRefAlt {
			if d.alt == nil {
				return o
			}
			d = d.alt
		} else if ref.class != classRef {
			return o
		}
		e, in, ok := d.entryAt(ref.n)
		if !ok {
			return o
		}
		same = same && d == u.data && in.off == u.off
		o = o.or(origin{in.string(e.name), in.string(e.linkage), e.declFile, e.declLine, same})
		if e.origin.class == classNone || o.linkage != "" {
			return o
		}
		ref = e.origin
	}
	return o
}

// flattenSpans cuts the spans of calls so that each address belongs to the
// innermost call alone.
func flattenSpans(calls []pending) []CallSpan {
	type nested struct {
		CallSpan
		depth int
	}
	n := 0
	for _, p := range calls {
		n += len(p.spans)
	}
	all := make([]nested, 0, n)
	for i, p := range calls {
		for _, s := range p.spans {
			all = append(all, nested{CallSpan{s.start, s.end, i}, p.depth})
		}
	}
	slices.SortFunc(all, func(a, b nested) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.depth, b.depth),
			cmp.Compare(b.End, a.End), cmp.Compare(a.Call, b.Call))
	})
	var out []CallSpan
	var stack []nested // open, the innermost last
	at := uint64(0)
	advance := func(to uint64) {
		for len(stack) > 0 && at < to {
			top := stack[len(stack)-1]
			if end := min(top.End, to); at < end {
				if n := len(out); n > 0 && out[n-1].End == at && out[n-1].Call == top.Call {
					out[n-1].End = end
				} else {
					out = append(out, CallSpan{at, end, top.Call})
				}
				at = end
			}
			if top.End > to {
				break
			}
			stack = stack[:len(stack)-1]
		}
		at = to
	}
	for _, s := range all {
		advance(s.Start)
		// Of what encloses it, only what reaches further can go on behind it.
		for len(stack) > 0 && stack[len(stack)-1].End < s.End && stack[len(stack)-1].depth >= s.depth {
			stack = stack[:len(stack)-1]
		}
		stack = append(stack, s)
	}
	advance(^uint64(0))
	return out
}
