package gopclntab

import (
	"debug/elf"
	"encoding/binary"
	"io"

	"atys.dev/atys/internal/binfile"
)

// Fields of runtime.moduledata; the same from Go 1.16 to 1.26 up to text.
const (
	moduleNames  = 8 // first word of funcnametab
	moduleMinPC  = 160
	moduleText   = 176
	moduleInline = 304 // gofunc: since Go 1.18
	moduleCover  = 16  // further down since Go 1.20 put covctrs before it
	moduleBytes  = moduleInline + moduleCover + ptrSize
)

const scanBytes = 1 << 16

// find finds the table by its section, else by looking for its header.
func find(f *binfile.File) (*Table, error) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.Section(name); s != nil && s.Flags&elf.SHF_COMPRESSED == 0 {
			if t := tableAt(f, int64(s.Offset), int64(s.FileSize), s.Addr); t != nil {
				return t, nil
			}
		}
	}
	if !f.IsGo() {
		return nil, ErrNoTable
	}
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_LOAD || p.Off >= uint64(f.Size()) {
			continue
		}
		size := int64(min(p.Filesz, uint64(f.Size())-p.Off))
		var t *Table
		scanWords(io.NewSectionReader(f, int64(p.Off), size), func(at int64, word uint64) bool {
			if _, ok := magics[uint32(word)]; !ok || word>>32&0xffff != 0 {
				return true
			}
			t = tableAt(f, int64(p.Off)+at, size-at, p.Vaddr+uint64(at))
			return t == nil
		})
		if t != nil {
			return t, nil
		}
	}
	return nil, ErrNoTable
}

func tableAt(f *binfile.File, off, size int64, address uint64) *Table {
	if off < 0 || off > f.Size() {
		return nil
	}
	size = min(size, f.Size()-off)
	t := &Table{r: binfile.NewCache(io.NewSectionReader(f, off, size)), size: size, file: f, address: address}
	if !t.parseHeader() {
		return nil
	}
	return t
}

// scanWords calls back with each aligned 8-byte word until told to stop.
func scanWords(r io.ReaderAt, each func(at int64, word uint64) bool) {
	buf := make([]byte, scanBytes)
	for off := int64(0); ; off += scanBytes {
		n, err := r.ReadAt(buf, off)
		for i := 0; i+8 <= n; i += 8 {
			if !each(off+int64(i), binary.LittleEndian.Uint64(buf[i:])) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// findModule finds runtime.firstmoduledata and takes from it what the table
// itself does not hold.
func (t *Table) findModule() {
	if t.version < go118 {
		return // entries are absolute, inline trees found through pointers
	}
	symbols := t.file.LookupSymbols("runtime.firstmoduledata", "runtime.text", "go:func.*", "go.func.*")
	if t.text == 0 {
		t.text = symbols["runtime.text"]
	}
	if t.inline = symbols["go:func.*"]; t.inline == 0 {
		t.inline = symbols["go.func.*"]
	}
	if t.text != 0 && t.inline != 0 {
		return
	}
	words := t.relocated()
	for _, at := range t.moduleCandidates(symbols["runtime.firstmoduledata"], words) {
		if t.wordAt(words, at) != t.address || t.wordAt(words, at+moduleNames) != t.address+uint64(t.names) {
			continue
		}
		text, minPC := t.wordAt(words, at+moduleText), t.wordAt(words, at+moduleMinPC)
		if _, ok := t.file.Offset(text); !ok || minPC < text {
			continue
		}
		t.text = text
		inline := uint64(moduleInline)
		if t.version >= go120 {
			inline += moduleCover
		}
		t.inline = t.wordAt(words, at+inline)
		return
	}
}

// relocated maps words that the loader fills in to what it puts there, for
// position-independent files only: in others the file holds them.
func (t *Table) relocated() map[uint64]uint64 {
	words := map[uint64]uint64{}
	if t.file.ELF.Type != elf.ET_DYN {
		return words
	}
	// Only what may be part of moduledata is kept: what follows a word that
	// points to the table.
	var starts []uint64
	t.file.Relative(func(at, target uint64) {
		if target == t.address {
			starts = append(starts, at)
		}
	})
	if len(starts) > 64 {
		starts = starts[:64]
	}
	t.file.Relative(func(at, target uint64) {
		for _, start := range starts {
			if at >= start && at-start < moduleBytes {
				words[at] = target
			}
		}
	})
	return words
}

// moduleCandidates lists where moduledata may be: where words point to the table.
func (t *Table) moduleCandidates(symbol uint64, words map[uint64]uint64) (candidates []uint64) {
	if symbol != 0 {
		candidates = append(candidates, symbol)
	}
	for at, target := range words {
		if target == t.address {
			candidates = append(candidates, at)
		}
	}
	for _, p := range t.file.ELF.Progs {
		if len(candidates) > 0 {
			break
		}
		if p.Type != elf.PT_LOAD || p.Off >= uint64(t.file.Size()) || p.Flags&elf.PF_W == 0 {
			continue
		}
		size := int64(min(p.Filesz, uint64(t.file.Size())-p.Off))
		scanWords(io.NewSectionReader(t.file, int64(p.Off), size), func(at int64, word uint64) bool {
			if word == t.address {
				candidates = append(candidates, p.Vaddr+uint64(at))
			}
			return len(candidates) < 64
		})
	}
	return candidates
}

func (t *Table) wordAt(words map[uint64]uint64, address uint64) uint64 {
	if target, ok := words[address]; ok {
		return target
	}
	var b [8]byte
	if n, _ := t.file.ReadAddress(b[:], address); n < len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}
