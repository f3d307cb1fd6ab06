package dwarf

// Tags, attributes and unit types that are looked at (DW_TAG_*, DW_AT_*, DW_UT_*).
const (
	tagInlined    = 0x1d
	tagSubprogram = 0x2e
	tagArray      = 0x01
	tagEnum       = 0x04
	tagSubroutine = 0x15
	tagCallSite   = 0x48
	tagGNUCall    = 0x4109

	attrSibling       = 0x01
	attrName          = 0x03
	attrStmtList      = 0x10
	attrLowPC         = 0x11
	attrHighPC        = 0x12
	attrCompDir       = 0x1b
	attrAbstract      = 0x31
	attrDeclFile      = 0x3a
	attrDeclLine      = 0x3b
	attrSpecification = 0x47
	attrRanges        = 0x55
	attrCallFile      = 0x58
	attrCallLine      = 0x59
	attrLinkage       = 0x6e
	attrStrBase       = 0x72
	attrAddrBase      = 0x73
	attrRnglistsBase  = 0x74
	attrDwoName       = 0x76
	attrMIPSLinkage   = 0x2007
	attrGNUDwoName    = 0x2130
	attrGNURangesBase = 0x2132
	attrGNUAddrBase   = 0x2133

	unitType     = 2
	unitPartial  = 3
	unitSkeleton = 4
	unitSplit    = 5
	unitSplitTyp = 6
)

// unit is a unit of .debug_info: its header, and more once it is loaded.
type unit struct {
	data      *Data
	off, end  uint64 // in .debug_info
	start     int    // of the first entry, from off
	version   uint16
	kind      uint8
	addrSize  uint8
	wide      bool // 64-bit format
	abbrevOff uint64

	buf      []byte // the unit from off; only its beginning until load
	whole    bool
	table    *abbrevs
	rootRead bool
	root     entry
	skeleton *unit // what it was split off from, nil if it was not

	lowPC                                 uint64
	strBase, addrBase, rngBase, rangeBase uint64
}

// entry is what is wanted of one entry of debug information.
type entry struct {
	tag                          uint32
	children                     bool
	name, linkage                value
	lowPC, highPC, rangeList     value
	origin                       value // abstract origin or specification
	declFile, declLine           uint64
	callFile, callLine           uint64
	stmtList, compDir, dwoName   value
	sibling                      uint64
	strBase, addrBase, rngBase   value
	gnuRangesBase, stmtListFound bool
}

const rootBytes = 512 // read of a unit to see its root; most need some 50

func (u *unit) wordSize() int {
	if u.wide {
		return 8
	}
	return 4
}

// parseHeader reads the header of the unit at an offset; nil if there is none.
func parseHeader(d *Data, off uint64) *unit {
	const longest = 40
	c := cursor{data: d.bytes("info", off, longest)}
	u := &unit{data: d, off: off}
	length, wide := c.length()
	u.wide = wide
	if c.bad || length == 0 || length > uint64(d.sections["info"].Size) {
		return nil
	}
	u.end = min(off+uint64(c.at)+length, uint64(d.sections["info"].Size))
	u.version = c.u16()
	switch {
	case u.version >= 2 && u.version <= 4:
		u.abbrevOff = c.word(wide)
		u.addrSize = c.u8()
	case u.version == 5:
		u.kind = c.u8()
		u.addrSize = c.u8()
		u.abbrevOff = c.word(wide)
		switch u.kind {
		case unitSkeleton, unitSplit:
			c.skip(8)
		case unitType, unitSplitTyp:
			c.skip(8 + uint64(u.wordSize()))
		}
	default:
		u.kind = unitType // of a version to come: skipped
		return u
	}
	if c.bad || u.addrSize != 4 && u.addrSize != 8 || u.end <= u.off {
		return nil
	}
	u.start = c.at
	return u
}

// hasCode tells whether the unit may have code of its own.
func (u *unit) hasCode() bool {
	return u.kind != unitType && u.kind != unitSplitTyp && u.kind != unitPartial
}

// readRoot reads the unit's first entry, and the bases its values hang on.
func (u *unit) readRoot() bool {
	if u.rootRead {
		return u.root.tag != 0
	}
	u.rootRead = true
	for size := rootBytes; ; size *= 16 {
		if !u.whole {
			u.buf = u.data.bytes("info", u.off, int(min(uint64(size), u.end-u.off)))
		}
		c := cursor{data: u.buf, at: min(u.start, len(u.buf))}
		code := c.uleb()
		ab, ok := u.data.abbrevOf(u, code)
		if !ok {
			return false
		}
		e, ok := c.entry(ab, u)
		if ok {
			u.root = e
			break
		}
		if u.whole || uint64(len(u.buf)) >= u.end-u.off {
			return false
		}
	}
	u.setBases()
	return true
}

func (u *unit) setBases() {
	e := u.root
	if s := u.skeleton; s != nil {
		u.addrBase, u.lowPC = s.addrBase, s.lowPC
		if u.version >= 5 {
			// The first table's, behind its header.
			u.strBase, u.rngBase = uint64(u.wordSize()*2), uint64(u.wordSize()*2+4)
		} else {
			u.rangeBase = s.rangeBase
		}
	}
	if e.strBase.class != classNone {
		u.strBase = e.strBase.n
	}
	if e.addrBase.class != classNone {
		u.addrBase = e.addrBase.n
	}
	if e.rngBase.class != classNone {
		if e.gnuRangesBase {
			u.rangeBase = e.rngBase.n
		} else {
			u.rngBase = e.rngBase.n
		}
	}
	if low, ok := u.address(e.lowPC); ok {
		u.lowPC = low
	}
}

// addrs is the file that has the unit's .debug_addr.
func (u *unit) addrs() *Data {
	if u.skeleton != nil {
		return u.skeleton.data
	}
	return u.data
}

// load reads the whole unit.
func (u *unit) load() bool {
	if u.end-u.off > maxUnitBytes {
		return false
	}
	if !u.whole {
		d := u.data
		if size := int(u.end - u.off); d.loaded+size > maxLoadedBytes {
			d.unloadAll()
		}
		u.buf = d.bytes("info", u.off, int(u.end-u.off))
		u.whole = true
		d.loaded += len(u.buf)
	}
	if u.table == nil {
		u.table = u.data.abbrevTable(u)
	}
	return u.readRoot()
}

// unloadAll drops what was loaded; units still worked on keep their own.
func (d *Data) unloadAll() {
	for _, u := range d.headers {
		if u.whole {
			u.buf, u.table, u.whole = nil, nil, false
			// Inline strings of the root point into the buffer.
			u.rootRead = false
		}
	}
	d.loaded = 0
}

// entry reads one entry behind its code.
func (c *cursor) entry(ab abbrev, u *unit) (e entry, ok bool) {
	e.tag, e.children = ab.tag, ab.children
	for _, f := range ab.fields {
		v := c.value(f, u)
		switch f.attr {
		case attrName:
			e.name = v
		case attrLinkage, attrMIPSLinkage:
			e.linkage = v
		case attrLowPC:
			e.lowPC = v
		case attrHighPC:
			e.highPC = v
		case attrRanges:
			e.rangeList = v
		case attrAbstract, attrSpecification:
			e.origin = v
		case attrDeclFile:
			e.declFile = v.n
		case attrDeclLine:
			e.declLine = v.n
		case attrCallFile:
			e.callFile = v.n
		case attrCallLine:
			e.callLine = v.n
		case attrSibling:
			if v.class == classRef {
				e.sibling = v.n
			}
		case attrStmtList:
			e.stmtList, e.stmtListFound = v, v.class != classNone
		case attrCompDir:
			e.compDir = v
		case attrDwoName, attrGNUDwoName:
			e.dwoName = v
		case attrStrBase:
			e.strBase = v
		case attrAddrBase, attrGNUAddrBase:
			e.addrBase = v
		case attrRnglistsBase:
			e.rngBase = v
		case attrGNURangesBase:
			e.rngBase, e.gnuRangesBase = v, true
		}
	}
	return e, !c.bad
}

// entryAt reads the entry at an offset of .debug_info, and gives the unit it is in.
func (d *Data) entryAt(off uint64) (entry, *unit, bool) {
	u := d.unitAt(off)
	if u == nil || !u.load() || off < u.off+uint64(u.start) {
		return entry{}, nil, false
	}
	return u.entryAt(off)
}

func (u *unit) entryAt(off uint64) (entry, *unit, bool) {
	c := cursor{data: u.buf, at: int(min(off-u.off, uint64(len(u.buf))))}
	ab, ok := u.table.get(c.uleb())
	if !ok {
		return entry{}, nil, false
	}
	e, ok := c.entry(ab, u)
	return e, u, ok
}
