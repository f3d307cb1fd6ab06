package ruby

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"atys.dev/atys/internal/lang"
)

func photograph(class, label, name, file string, flags, singleton uint64) lang.Photograph {
	p := lang.Photograph{What: 7, Bytes: make([]byte, 2048)}
	p.Lengths = [4]uint32{uint32(len(class)), uint32(len(label)), uint32(len(name)), uint32(len(file))}
	copy(p.Bytes[:labelAt], class)
	copy(p.Bytes[labelAt:methodAt], label)
	copy(p.Bytes[methodAt:fileAt], name)
	copy(p.Bytes[fileAt:], file)
	p.Values[valueFlags], p.Values[valueSingleton], p.Values[valueStartLine] = flags, singleton, 4
	return p
}

func TestAlbum(t *testing.T) {
	for _, c := range []struct {
		photo lang.Photograph
		want  string
	}{
		{photograph("Shop::Tree", "grow", "grow", "a.rb", 0, 0), "Shop::Tree#grow"},
		{photograph("Shop::Tree", "grow", "grow", "a.rb", 0, 1), "Shop::Tree.grow"},
		{photograph("Shop::Tree", "block (2 levels) in grow", "grow", "a.rb", 0, 0), "block (2 levels) in Shop::Tree#grow"},
		{photograph("Shop::Tree", "block in <class:Tree>", "made", "a.rb", flagBlockMethod, 0), "Shop::Tree#made"},
		{photograph("Array", "", "each", "", 0x80, 0), "Array#each"},
		{photograph("", "", "lambda", "", 0x80, 0), "lambda"},
		{photograph("", "<main>", "", "a.rb", 0, 0), "<main>"},
		{photograph("Object", "other", "name", "a.rb", 0, 0), "other"},
	} {
		var a Album
		if got := a.Name(lang.Activation{What: 7}, nil); got != nil {
			t.Errorf("before the photograph: %+v", got)
		}
		a.Add(c.photo)
		got := a.Name(lang.Activation{What: 7, Where: 9}, nil)
		if len(got) != 1 || got[0].Function != c.want || got[0].Line != 9 || got[0].StartLine != 4 {
			t.Errorf("%+v, not %s", got, c.want)
		}
	}
}

func FuzzAlbum(f *testing.F) {
	f.Add([]byte("Class\x00block in x"), uint32(5), uint32(8), uint32(600), uint32(3), uint64(0x40))
	f.Fuzz(func(t *testing.T, raw []byte, class, label, name, file uint32, flags uint64) {
		var a Album
		p := lang.Photograph{Bytes: raw, Lengths: [4]uint32{class, label, name, file}}
		p.Values[valueFlags] = flags
		a.Add(p)
		got := a.Name(lang.Activation{}, nil)
		if len(got) > 1 || len(got) == 1 && (got[0].Function == "" || len(got[0].Function) > 4*len(raw)+64) {
			t.Errorf("%+v", got)
		}
	})
}

// image is the memory of a process: words from an address on.
type image struct {
	start uint64
	words []uint64
}

var errUnmapped = errors.New("nothing is mapped there")

func (m *image) ReadAt(p []byte, at int64) (int, error) {
	raw := make([]byte, 0, 8*len(m.words))
	for _, w := range m.words {
		raw = binary.LittleEndian.AppendUint64(raw, w)
	}
	from := uint64(at) - m.start
	if from > uint64(len(raw)) || uint64(len(raw))-from < uint64(len(p)) {
		return 0, errUnmapped
	}
	return copy(p, raw[from:]), nil
}

func (m *image) add(words ...uint64) (at uint64) {
	at = m.start + 8*uint64(len(m.words))
	m.words = append(m.words, words...)
	return at
}

// embed adds a short string as Ruby keeps it.
func (m *image) embed(s string) uint64 {
	var raw [24]byte
	n := copy(raw[:], s)
	return m.add(typeString|uint64(n)<<14, 0, binary.LittleEndian.Uint64(raw[:]),
		binary.LittleEndian.Uint64(raw[8:]), binary.LittleEndian.Uint64(raw[16:]))
}

// table adds a table of symbols with the names given, from number 1 on.
func (m *image) table(last uint64, names ...string) []uint64 {
	strings := make([]uint64, 2*unitNumbers)
	for i, name := range names {
		strings[2*(i+1)] = m.embed(name)
	}
	first := m.add(typeArray, 0, uint64(len(strings)), 0, m.add(strings...))
	all := m.add(typeArray, 0, last/unitNumbers+1, 0, m.add(append([]uint64{first}, make([]uint64, last/unitNumbers)...)...))
	return []uint64{last, m.add(0), all, m.add(typeHash)}
}

func TestSymbols(t *testing.T) {
	m := &image{start: 1 << 20}
	words := m.table(3000, "a", "__classpath__", "b")
	s := symbolsAt(memory{m}, 42, words)
	if s == nil {
		t.Fatal("not recognised")
	}
	var id uint64
	if err := s.ids(map[string]*uint64{"__classpath__": &id}); err != nil || id != 2<<4|1 {
		t.Errorf("id %#x, %v", id, err)
	}
	if err := s.ids(map[string]*uint64{"absent": &id}); !errors.Is(err, errStarting) {
		t.Errorf("what is not there: %v", err)
	}
	for i := range words {
		broken := append([]uint64{}, words...)
		broken[i] ^= 1<<63 | 1<<30
		if symbolsAt(memory{m}, 42, broken) != nil {
			t.Errorf("recognised with word %d broken", i)
		}
	}
}

func FuzzSymbols(f *testing.F) {
	m := &image{start: 1 << 20}
	words := m.table(600, "a", "b")
	var seed []byte
	for _, w := range append(words, m.words...) {
		seed = binary.LittleEndian.AppendUint64(seed, w)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var all []uint64
		for ; len(raw) >= 8; raw = raw[8:] {
			all = append(all, binary.LittleEndian.Uint64(raw))
		}
		if len(all) < 4 {
			return
		}
		s := symbolsAt(memory{&image{start: 1 << 20, words: all[4:]}}, 42, all[:4])
		if s == nil {
			return
		}
		var id uint64
		if err := s.ids(map[string]*uint64{"a": &id}); err == nil && id>>4 > uint64(s.last) && id>>4 >= unitNumbers {
			t.Errorf("id %#x of %d symbols", id, s.last)
		}
	})
}

// TestDataOf takes the whole words of segments, whatever a file says of them.
func TestDataOf(t *testing.T) {
	segment := func(address, size uint64, flags elf.ProgFlag) *elf.Prog {
		return &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: flags, Vaddr: address, Memsz: size}}
	}
	const data = elf.PF_R | elf.PF_W
	for name, c := range map[string]struct {
		segments []*elf.Prog
		want     []area
	}{
		"data":       {[]*elf.Prog{segment(0, 64, elf.PF_R|elf.PF_X), segment(0x1000, 64, data)}, []area{{0x1000, 8}}},
		"odd":        {[]*elf.Prog{segment(0x1003, 64, data)}, []area{{0x1008, 7}}},
		"no word":    {[]*elf.Prog{segment(0x1001, 7, data), segment(0x1001, 8, data)}, []area{{0x1008, 0}}},
		"at the end": {[]*elf.Prog{segment(1<<64-1, 16, data)}, []area{{0, 1}}},
		"large":      {[]*elf.Prog{segment(0, maxData+1, data), segment(0, 1<<63, data)}, nil},
		"many":       {slices.Repeat([]*elf.Prog{segment(8, 8, data)}, 3*maxAreas), slices.Repeat([]area{{8, 1}}, maxAreas)},
	} {
		if got := dataOf(c.segments); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
