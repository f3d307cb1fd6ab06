package dwarf

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
)

// allocated tells how many bytes a function allocates, freed ones included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// dataOf makes debug information of sections.
func dataOf(sections map[string][]byte) *Data {
	d := &Data{sections: map[string]*binfile.SectionReader{}, abbrevs: map[uint64]*abbrevs{}}
	for name, data := range sections {
		d.sections[name] = &binfile.SectionReader{ReaderAt: bytes.NewReader(data), Size: int64(len(data))}
	}
	d.readHeaders()
	return d
}

// unitOf makes a unit of a version, with the first layout for its root.
func unitOf(version byte, entries ...byte) []byte {
	head := []byte{version, 0, 0, 0, 0, 0, 8}
	if version >= 5 {
		head = []byte{version, 0, 1, 8, 0, 0, 0, 0}
	}
	unit := binary.LittleEndian.AppendUint32(nil, uint32(len(head)+len(entries)))
	return slices.Concat(unit, head, entries)
}

const (
	tagUnit = 0x11
	noMore  = 0
)

// layout makes an entry of .debug_abbrev.
func layout(code, tag, children byte, fields ...byte) []byte {
	return slices.Concat([]byte{code, tag, children}, fields, []byte{0, 0})
}

func list5(n int, entry ...byte) []byte { return append(bytes.Repeat(entry, n), rleEnd) }

// Entries that share one list of ranges do not multiply it, whether it covers
// anything or not.
func TestSharedRangesAreBounded(t *testing.T) {
	pair := binary.LittleEndian.AppendUint64(nil, 0x1000)
	pair = binary.LittleEndian.AppendUint64(pair, 0x2000)
	for _, tc := range []struct {
		name    string
		version byte
		section string
		list    []byte
	}{
		{"version 4", 4, "ranges", bytes.Repeat(pair, 1<<20)},
		{"version 5", 5, "rnglists", list5(1<<20, rleStartLength, 0, 1, 0, 0, 0, 0, 0, 0, 9)},
		{"nothing", 5, "rnglists", list5(1<<20, rleOffsetPair, 0, 0)},
		{"bases before 5", 4, "ranges", bytes.Repeat([]byte{255}, 64<<20)},
		{"padding", 5, "rnglists", append([]byte{rleOffsetPair}, bytes.Repeat([]byte{0x80}, 64<<20)...)},
		{"bases", 5, "rnglists", list5(1<<20, rleBaseAddress, 0, 1, 0, 0, 0, 0, 0, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			entry := []byte{2, 0, 0, 0, 0}
			sections := map[string][]byte{
				"abbrev": slices.Concat(layout(1, tagUnit, 1), layout(2, tagSubprogram, 0, attrRanges, formSecOffset), []byte{noMore}),
				"info":   unitOf(tc.version, append([]byte{1}, bytes.Repeat(entry, 2000)...)...), tc.section: tc.list}
			var code *Code
			if n := allocated(func() { code = dataOf(sections).Flatten(0) }); n > 512<<20 {
				t.Errorf("%d bytes allocated", n)
			}
			if len(code.Calls) > maxUnitSpans/maxCallSpans {
				t.Errorf("%d calls with all ranges of a unit", len(code.Calls))
			}
			checkCode(t, code)
		})
	}
	t.Run("units", func(t *testing.T) {
		list := list5(1<<20, rleStartLength, 0, 1, 0, 0, 0, 0, 0, 0, 9)
		d := dataOf(map[string][]byte{"rnglists": list,
			"abbrev": slices.Concat(layout(1, tagUnit, 0, attrRanges, formSecOffset), []byte{noMore}),
			"info":   bytes.Repeat(unitOf(5, 1, 0, 0, 0, 0), 1000)})
		var units []Unit
		if n := allocated(func() { units = d.Units() }); n > 640<<20 {
			t.Errorf("%d bytes allocated", n)
		}
		if len(units) != maxFileSpans {
			t.Errorf("%d ranges of units, want the first %d", len(units), maxFileSpans)
		}
	})
}

// Names that are ends of one long string are looked up to a bound; calls keep
// their place behind it.
func TestNamesOfUnitAreBounded(t *testing.T) {
	const calls = 10_000
	entries := []byte{1}
	for i := range calls {
		entries = append(entries, 2)
		entries = binary.LittleEndian.AppendUint32(entries, uint32(i))
		entries = binary.LittleEndian.AppendUint64(entries, uint64(0x1000+i))
	}
	d := dataOf(map[string][]byte{"info": unitOf(5, entries...), "str": []byte(strings.Repeat("n", 60_000) + "\x00"),
		"abbrev": slices.Concat(layout(1, tagUnit, 1), layout(2, tagSubprogram, 0,
			attrName, formStrp, attrLowPC, formAddr, attrHighPC, formImplicitConst, 1), []byte{noMore})})
	var code *Code
	if n := allocated(func() { code = d.Flatten(0) }); n > 256<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	if len(code.Calls) != calls || len(code.Spans) != calls {
		t.Fatalf("%d calls, %d spans", len(code.Calls), len(code.Spans))
	}
	if code.Calls[0].Name == "" || code.Calls[calls-1].Name != "" {
		t.Errorf("names of %d and %d bytes", len(code.Calls[0].Name), len(code.Calls[calls-1].Name))
	}
}

// Tables of files are no larger than files have reason to be.
func TestFilesAreBounded(t *testing.T) {
	long := "/" + strings.Repeat("d", 60_000) + "\x00"
	columns := func(n int) []byte {
		return append([]byte{byte(n)}, bytes.Repeat([]byte{lnctPath, formString}, n)...)
	}
	million := []byte{0x80, 0x80, 0x40}
	for _, tc := range []struct {
		name    string
		version byte
		tables  []byte
		most    int // files
	}{
		{"from nothing", 5, slices.Concat([]byte{1, lnctPath, formFlagPresent}, million, []byte{1, lnctPath, formFlagPresent}, million), 0},
		{"too many", 5, slices.Concat(columns(0), []byte{0}, columns(1), million, make([]byte, 1<<20)), maxFiles},
		{"of a long folder", 5, slices.Concat(columns(1), []byte{1}, []byte(long),
			[]byte{2, lnctPath, formString, lnctDirectory, formData1}, million, bytes.Repeat([]byte("f\x00\x00"), 1<<18)), maxFileBytes / 60_000},
		{"of a long folder before 5", 4, slices.Concat([]byte(long), []byte{0}, bytes.Repeat([]byte("f\x00\x01\x00\x00"), 1<<18), []byte{0}), maxFileBytes/60_000 + 1},
		{"many columns", 5, slices.Concat(columns(0), []byte{0}, columns(200), []byte{1}, make([]byte, 200)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := []byte{1, 1, 0xfb, 14, 1} // instructions of 1 byte to opcodes, of which none has operands
			if tc.version >= 4 {
				body = []byte{1, 1, 1, 0xfb, 14, 1}
			}
			body = append(body, tc.tables...)
			program := []byte{tc.version, 0}
			if tc.version >= 5 {
				program = append(program, 8, 0)
			}
			program = append(binary.LittleEndian.AppendUint32(program, uint32(len(body))), body...)
			d := dataOf(map[string][]byte{"info": unitOf(5, 1, 0, 0, 0, 0),
				"abbrev": slices.Concat(layout(1, tagUnit, 0, attrStmtList, formSecOffset), []byte{noMore}),
				"line":   append(binary.LittleEndian.AppendUint32(nil, uint32(len(program))), program...)})
			var code *Code
			if n := allocated(func() { code = d.Flatten(0) }); n > 64<<20 {
				t.Errorf("%d bytes allocated", n)
			}
			if len(code.Files) > tc.most || tc.most > 0 && len(code.Files) < tc.most/2 {
				t.Errorf("%d files, want up to %d", len(code.Files), tc.most)
			}
		})
	}
}
