package binfile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// allocated tells how many bytes a function allocates, freed ones included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// header makes an ELF header with tables of these sizes: segments behind it, sections
// behind them.
func header(segments, segmentSize, sections, sectionSize, names int) []byte {
	h := make([]byte, elfHeader)
	copy(h, elf.ELFMAG+"\x02\x01\x01")
	h[0x14] = byte(elf.EV_CURRENT)
	binary.LittleEndian.PutUint64(h[offsetPhoff:], elfHeader)
	binary.LittleEndian.PutUint64(h[offsetShoff:], uint64(elfHeader+segments*segmentSize))
	for at, n := range map[int]int{offsetPhentsize: segmentSize, offsetPhnum: segments,
		offsetShentsize: sectionSize, offsetShnum: sections, offsetShstrndx: names} {
		binary.LittleEndian.PutUint16(h[at:], uint16(n))
	}
	return h
}

// section makes a section header.
func section(name uint32, kind elf.SectionType, flags elf.SectionFlag, off, size int) []byte {
	h := make([]byte, sectionHeader)
	binary.LittleEndian.PutUint32(h, name)
	binary.LittleEndian.PutUint32(h[4:], uint32(kind))
	binary.LittleEndian.PutUint64(h[8:], uint64(flags))
	binary.LittleEndian.PutUint64(h[24:], uint64(off))
	binary.LittleEndian.PutUint64(h[32:], uint64(size))
	return h
}

// holes is a file that has zeros behind its content, as sparse files do.
type holes struct{ content []byte }

func (h holes) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(h.content)) {
		copy(p, h.content[off:])
	}
	return len(p), nil
}

// What headers say is no reason to allocate.
func TestHeadersAreBounded(t *testing.T) {
	const sparse = 8 << 30
	ends := strings.Repeat("s", 1<<20) + "\x00"
	many := append(header(0, 0, 5001, sectionHeader, 5000), bytes.Repeat(section(0, elf.SHT_PROGBITS, 0, 0, 0), 5000)...)
	many = append(many, section(0, elf.SHT_STRTAB, 0, len(many)+sectionHeader, len(ends))...)
	beyond := append(header(0, 0, 0, sectionHeader, 0), section(0, elf.SHT_NULL, 0, 0, 1<<24)...)
	hole := append(header(0, 0, 2, sectionHeader, 1), section(0, elf.SHT_NULL, 0, 0, 0)...)
	for _, tc := range []struct {
		name string
		data []byte
		want string // of the error; "" if the file is read without its sections
	}{
		{"large section headers", header(0, 0, 65_000, 65_535, 0), ""},
		{"more sections than a header counts", beyond, ""},
		{"names in a hole", slices.Concat(hole, section(0, elf.SHT_STRTAB, 0, 0, 4<<30)), ""},
		{"names that are one", append(many, ends...), ""},
		{"compressed names", slices.Concat(hole, section(0, elf.SHT_STRTAB, elf.SHF_COMPRESSED, 0, 100)), ""},
		{"large program headers", header(60_000, 65_535, 0, 0, 0), "60000 program headers of 65535 bytes"},
		{"many program headers", header(65_000, programHeader, 0, 0, 0), "65000 program headers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f *File
			var err error
			if n := allocated(func() { f, err = New(holes{tc.data}, sparse) }); n > 16<<20 {
				t.Errorf("%d bytes allocated", n)
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := len(f.ELF.Sections); n > 0 {
				t.Errorf("%d sections", n)
			}
		})
	}
}

// Tables up to the bounds are read.
func TestHeadersWithinBounds(t *testing.T) {
	const sections = 5000
	data := header(maxPrograms, programHeader, sections, sectionHeader, sections-1)
	data = append(data, make([]byte, maxPrograms*programHeader)...)
	data = append(data, bytes.Repeat(section(0, elf.SHT_NULL, 0, 0, 0), sections-1)...)
	data = append(data, section(1, elf.SHT_STRTAB, 0, len(data)+sectionHeader, 10)...)
	data = append(data, "\x00.shstrta\x00"...)
	f, err := New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.ELF.Progs) != maxPrograms || len(f.ELF.Sections) != sections || f.ELF.Sections[sections-1].Name != ".shstrta" {
		t.Errorf("%d segments, %d sections", len(f.ELF.Progs), len(f.ELF.Sections))
	}
}

// A file that is written to while it is opened has the headers that were checked.
func TestHeadersStay(t *testing.T) {
	data := append(header(0, 0, 1, sectionHeader, 0), section(0, elf.SHT_NULL, 0, 0, 0)...)
	h, err := readHeaders(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(data)
	for i := range data {
		data[i] = 0xff
	}
	after := make([]byte, len(data))
	if _, err := h.ReadAt(after, 0); err != nil || !bytes.Equal(after, before) {
		t.Errorf("%x, %v, want %x", after, err, before)
	}
	if n, err := h.ReadAt(after[:10], 30); n != 10 || err != nil || !bytes.Equal(after[:10], before[30:40]) {
		t.Errorf("%x, %v, want %x", after[:n], err, before[30:40])
	}
}

// Few notes are looked at, and few bytes of them.
func TestNotesAreBounded(t *testing.T) {
	const notes = 60_000
	data := append(header(0, 0, notes, sectionHeader, 0), bytes.Repeat(section(0, elf.SHT_NOTE, 0, 0, 1<<30), notes)...)
	f, err := New(holes{data}, 8<<30)
	if err != nil {
		t.Fatal(err)
	}
	read := &countingAt{ReaderAt: f.r}
	f.r = read
	if n := allocated(func() { f.BuildID() }); n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	if read.bytes > 2*maxNoteBytes { // two kinds of notes are looked for
		t.Errorf("%d bytes of notes were read", read.bytes)
	}
}

type countingAt struct {
	io.ReaderAt
	bytes int
}

func (c *countingAt) ReadAt(p []byte, off int64) (int, error) {
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

// withSection makes a file with one section that has a name, and is said to have a
// size, with a hole behind its content.
func withSection(t testing.TB, name string, flags elf.SectionFlag, content []byte, size int) *File {
	t.Helper()
	names := "\x00" + name + "\x00"
	data := header(0, 0, 3, sectionHeader, 1)
	at := len(data) + 3*sectionHeader
	data = slices.Concat(data, section(0, elf.SHT_NULL, 0, 0, 0), section(0, elf.SHT_STRTAB, 0, at, len(names)),
		section(1, elf.SHT_PROGBITS, flags, at+len(names), size), []byte(names), content)
	f, err := New(holes{data}, 8<<30)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
