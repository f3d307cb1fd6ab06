// Package dwarf reads from debug information what a profiler asks of it: which
// function, which inlined calls, which line an address belongs to.
//
// The flow:
//
//  1. Units lists which compilation unit covers which addresses. It reads the
//     root entry of each unit and nothing else. (.debug_aranges would say the
//     same, but clang and rustc leave it out, and partial ones exist.)
//  2. Flatten reads one unit, all of it, into sorted tables: its functions and
//     inlined calls (flatten.go), its lines (line.go). A unit is the largest
//     thing held in memory, so that debug files of many hundred MB cost little.
//
// DWARF 2 to 5 are read, with ranges in all their forms (ranges.go), units split
// off into .dwo files (split.go), and names that dwz moved to a shared file.
// debug/dwarf of the standard library wants all sections in memory, and is some
// ten times slower, because it makes an object of every entry.
//
// All input is foreign: numbers are checked where they are used, recursion and
// memory are bounded.
package dwarf

import (
	"errors"
	"fmt"
	"sort"

	"atys.dev/atys/internal/binfile"
)

// ErrNoDebugInfo is what New wraps where there is no debug information.
var ErrNoDebugInfo = errors.New("no debug information")

const (
	maxUnits       = 1 << 20
	maxUnitBytes   = 256 << 20 // of one unit; LTO's largest have some 100 MB
	maxLoadedBytes = 32 << 20  // of other units kept, since names refer to them
	maxAbbrevs     = 256       // tables kept
)

// Data is the debug information of one file. It is not safe for concurrent use.
type Data struct {
	// OpenSplit opens the file that a unit was split off into; nil if there
	// is no looking for such files.
	OpenSplit func(compDir, name string) (*binfile.File, error)

	sections map[string]*binfile.SectionReader
	split    bool  // these are the sections of a .dwo file
	alt      *Data // what dwz moved elsewhere, nil if nothing
	headers  []*unit
	loaded   int // bytes of units in memory
	abbrevs  map[uint64]*abbrevs
}

// Unit is a stretch of code that one compilation unit covers.
type Unit struct {
	Start, End uint64
	Unit       uint32 // the unit's offset, for Flatten
}

var sectionNames = []string{"info", "abbrev", "line", "str", "line_str", "str_offsets", "addr", "ranges", "rnglists"}

// New reads the unit headers of a file. The shared file may be nil. Both must
// stay open as long as the data is used.
func New(f, shared *binfile.File) (*Data, error) {
	d, err := open(f, "")
	if err != nil {
		return nil, err
	}
	if shared != nil {
		if alt, err := open(shared, ""); err == nil {
			d.alt = alt
		}
	}
	return d, nil
}

func open(f *binfile.File, suffix string) (*Data, error) {
	d := &Data{sections: map[string]*binfile.SectionReader{}, abbrevs: map[uint64]*abbrevs{}, split: suffix != ""}
	for _, name := range sectionNames {
		s, err := f.OpenSection(".debug_" + name + suffix)
		if errors.Is(err, binfile.ErrNoSection) {
			continue
		}
		if err != nil {
			d.Close()
			return nil, err
		}
		d.sections[name] = s
	}
	if d.sections["info"] == nil || d.sections["abbrev"] == nil {
		d.Close()
		return nil, fmt.Errorf("%w", ErrNoDebugInfo)
	}
	d.readHeaders()
	return d, nil
}

// Close gives back what the sections took. Files stay open.
func (d *Data) Close() error {
	for _, s := range d.sections {
		s.Close()
	}
	if d.alt != nil {
		d.alt.Close()
	}
	return nil
}

// bytes reads n bytes of a section, fewer where it ends.
func (d *Data) bytes(section string, off uint64, n int) []byte {
	s := d.sections[section]
	if s == nil || off >= uint64(s.Size) || n <= 0 {
		return nil
	}
	buf := make([]byte, min(int64(n), s.Size-int64(off)))
	got, _ := s.ReadAt(buf, int64(off))
	return buf[:got]
}

// readHeaders reads all unit headers; a damaged one ends the list.
func (d *Data) readHeaders() {
	off := uint64(0)
	for len(d.headers) < maxUnits {
		u := parseHeader(d, off)
		if u == nil {
			return
		}
		d.headers = append(d.headers, u)
		off = u.end
	}
}

// unitAt finds the unit that holds an offset of .debug_info.
func (d *Data) unitAt(off uint64) *unit {
	i := sort.Search(len(d.headers), func(i int) bool { return d.headers[i].off > off }) - 1
	if i < 0 || off >= d.headers[i].end {
		return nil
	}
	return d.headers[i]
}

// Units lists which unit covers which addresses, in no order.
func (d *Data) Units() (units []Unit) {
	left := maxFileSpans
	for _, u := range d.headers {
		if left <= 0 {
			return units
		}
		if u.off > 1<<32-1 || !u.hasCode() || !u.readRoot() {
			continue
		}
		ranges, read := u.ranges(u.root, min(left, maxUnitSpans))
		left -= read
		for _, r := range ranges {
			units = append(units, Unit{Start: r.start, End: r.end, Unit: uint32(u.off)})
		}
		if !u.whole {
			u.buf, u.rootRead = nil, false // 10,000 beginnings add up
		}
	}
	return units
}
