package dwarf

// abbrevs is one table of .debug_abbrev: how entries with a code are laid out.
type abbrevs struct {
	dense  []abbrev          // code i is at i-1: how all compilers number
	sparse map[uint64]abbrev // of tables numbered otherwise
}

// abbrev is one layout.
type abbrev struct {
	tag      uint32
	children bool
	fields   []field
	fixed    int // bytes of all fields if that never varies, else -1
}

// field is an attribute and how its value is encoded.
type field struct {
	attr, form uint16
	implicit   int64
}

const (
	maxFields      = 1 << 10
	abbrevChunk    = 1 << 12
	maxAbbrevBytes = 1 << 24
)

func (a *abbrevs) get(code uint64) (abbrev, bool) {
	if code-1 < uint64(len(a.dense)) {
		return a.dense[code-1], true
	}
	ab, ok := a.sparse[code]
	return ab, ok
}

// abbrevTable reads a whole table. A damaged one is read up to the damage.
func (d *Data) abbrevTable(u *unit) *abbrevs {
	if t, ok := d.abbrevs[u.abbrevOff]; ok {
		return t
	}
	t := &abbrevs{}
	for size := abbrevChunk; ; size *= 4 {
		data := d.bytes("abbrev", u.abbrevOff, size)
		c := cursor{data: data}
		*t = abbrevs{}
		for {
			code, ab, more := c.abbrev(u)
			if !more {
				break
			}
			if code == uint64(len(t.dense))+1 {
				t.dense = append(t.dense, ab)
			} else {
				if t.sparse == nil {
					t.sparse = map[uint64]abbrev{}
				}
				t.sparse[code] = ab
			}
		}
		if !c.bad || len(data) < size || size >= maxAbbrevBytes {
			break
		}
	}
	if len(d.abbrevs) >= maxAbbrevs {
		clear(d.abbrevs)
	}
	d.abbrevs[u.abbrevOff] = t
	return t
}

// abbrevOf reads one layout without keeping the table it is in: the root's is
// nearly always the first, and reading every table whole would be most of the
// work of listing units.
func (d *Data) abbrevOf(u *unit, code uint64) (abbrev, bool) {
	const enough = 256
	c := cursor{data: d.bytes("abbrev", u.abbrevOff, enough)}
	if got, ab, more := c.abbrev(u); more && got == code {
		return ab, true
	}
	return d.abbrevTable(u).get(code)
}

// abbrev reads one layout; more is false at the end of the table or of the data.
func (c *cursor) abbrev(u *unit) (code uint64, ab abbrev, more bool) {
	code = c.uleb()
	if code == 0 || c.bad {
		return 0, ab, false
	}
	ab.tag = uint32(min(c.uleb(), 1<<32-1))
	ab.children = c.u8() != 0
	for len(ab.fields) < maxFields {
		attr, form := c.uleb(), c.uleb()
		var implicit int64
		if form == formImplicitConst {
			implicit = c.sleb()
		}
		if c.bad {
			return 0, ab, false
		}
		if attr == 0 && form == 0 {
			break
		}
		ab.fields = append(ab.fields, field{uint16(min(attr, 0xffff)), uint16(min(form, 0xffff)), implicit})
	}
	for _, f := range ab.fields {
		n := fixedSize(f.form, u)
		if n < 0 {
			ab.fixed = -1
			break
		}
		ab.fixed += n
	}
	return code, ab, true
}
