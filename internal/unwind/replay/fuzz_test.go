package replay

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// A walk reads a process that may be anything: its memory may change under the
// walk, and a hostile one is made for it. The targets below walk real images
// of which some words were exchanged.
func FuzzNative(f *testing.F) { fuzz(f, 0) }
func FuzzPython(f *testing.F) { fuzz(f, unwind.Python) }
func FuzzJava(f *testing.F)   { fuzz(f, unwind.Java) }
func FuzzV8(f *testing.F)     { fuzz(f, unwind.V8) }
func FuzzRuby(f *testing.F)   { fuzz(f, unwind.Ruby) }
func FuzzPHP(f *testing.F)    { fuzz(f, unwind.PHP) }
func FuzzPerl(f *testing.F)   { fuzz(f, unwind.Perl) }

// mostReads bounds the work of a walk, in reads of memory: MAX_FRAMES words of a
// stack, each the price of the dearest step that adds one.
const mostReads = 1 << 16

// A change of an image is 12 bytes: which word of its memory, or register, what
// becomes of it, and a number for that.
const changeBytes = 12

const maxChanges = 64

type change struct {
	word  uint16
	kind  uint16
	value uint64
}

// What becomes of a word: the kinds of change.
const (
	set      = iota // it is the number
	add             // the number is added to it, which may be negative
	point           // it is the address of another word: chains get cycles
	copyWord        // it is what another word is
	flip            // one bit of it
	tear            // its piece of memory ends there
	changes
)

func changesOf(data []byte) (all []change) {
	for ; len(data) >= changeBytes && len(all) < maxChanges; data = data[changeBytes:] {
		le := binary.LittleEndian
		all = append(all, change{le.Uint16(data), le.Uint16(data[2:]), le.Uint64(data[4:])})
	}
	return all
}

func (c change) bytes() []byte {
	le := binary.LittleEndian
	return le.AppendUint64(le.AppendUint16(le.AppendUint16(nil, c.word), c.kind), c.value)
}

// changed is an image with changes made; the image itself stays.
func (i *Image) changed(all []change) *Image {
	out := *i
	out.Memory = nil
	for _, p := range i.Memory {
		out.Memory = append(out.Memory, Piece{p.Start, slices.Clone(p.Bytes)})
	}
	for _, c := range all {
		out.change(c)
	}
	return &out
}

// words counts those of the memory.
func (i *Image) words() (n int) {
	for _, p := range i.Memory {
		n += len(p.Bytes) / 8
	}
	return n
}

// word finds the nth word of the memory, over and over.
func (i *Image) word(n uint64) (piece *Piece, at int) {
	words := i.words()
	if words == 0 {
		return nil, 0
	}
	left := int(n % uint64(words))
	for k := range i.Memory {
		p := &i.Memory[k]
		if left < len(p.Bytes)/8 {
			return p, 8 * left
		}
		left -= len(p.Bytes) / 8
	}
	return nil, 0
}

func (i *Image) change(c change) {
	le := binary.LittleEndian
	if int(c.word) > math.MaxUint16-len(i.Registers) {
		i.Registers[math.MaxUint16-int(c.word)] = c.value
		return
	}
	p, at := i.word(uint64(c.word))
	if p == nil {
		return
	}
	word := p.Bytes[at : at+8]
	switch c.kind % changes {
	case set:
		le.PutUint64(word, c.value)
	case add:
		le.PutUint64(word, le.Uint64(word)+c.value)
	case point:
		if to, at := i.word(c.value); to != nil {
			le.PutUint64(word, to.Start+uint64(at)+c.value>>60)
		}
	case copyWord:
		if from, at := i.word(c.value); from != nil {
			copy(word, from.Bytes[at:at+8])
		}
	case flip:
		le.PutUint64(word, le.Uint64(word)^1<<(c.value%64))
	case tear:
		p.Bytes = p.Bytes[:at]
	}
}

// fuzz walks the images of a language, 0 those of native code alone.
func fuzz(f *testing.F, language unwind.Language) {
	var all []*Image
	for _, path := range recorded(f) {
		file, err := os.Open(path)
		if err != nil {
			f.Fatal(err)
		}
		i, err := Read(file)
		file.Close()
		if err != nil {
			f.Fatal(err)
		}
		if language == 0 && len(i.Runtimes) == 0 || len(i.Runtimes) > 0 && i.Runtimes[0].Language == language {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		f.Fatal("no image of it")
	}
	for which := range all {
		f.Add(uint8(which), []byte{})
		for kind := range uint16(changes) {
			f.Add(uint8(which), slices.Concat(change{17, kind, 40}.bytes(), change{171, kind, 4}.bytes(), change{40, kind, math.MaxUint64}.bytes()))
		}
	}
	m := machine(f)
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		i := all[int(which)%len(all)].changed(changesOf(data))
		if err := m.Load(i); err != nil {
			t.Fatal(err)
		}
		w, err := m.Walk()
		if err != nil {
			t.Fatal(err)
		}
		checkWalk(t, i, w, language)
	})
}

// TestEveryWord changes every word that a walk of languages reads, in all ways.
func TestEveryWord(t *testing.T) {
	if testing.Short() {
		t.Skip("walks 130,000 times")
	}
	m := machine(t)
	images(t, func(t *testing.T, _ string, i *Image) {
		if len(i.Runtimes) == 0 {
			return
		}
		whole := walked(t, m, i)
		walks, longer, most := 0, 0, 0
		for word := range uint16(i.words()) {
			numbers := []uint64{uint64(word) * 0x9E3779B97F4A7C15, 0, math.MaxUint64, 8} // the first as good as random
			for round := range uint16(changes * len(numbers)) {
				w := walked(t, m, i.changed([]change{{word, round % changes, numbers[round/changes]}}))
				checkWalk(t, i, w, i.Runtimes[0].Language)
				walks++
				if len(w.Frames) > len(whole.Frames) {
					longer++
				}
				most = max(most, w.Reads)
			}
		}
		t.Logf("%d walks, %d of them longer than that of the image, with at most %d reads (the image's: %d)", walks, longer, most, whole.Reads)
	})
}

// checkWalk asserts what holds for a walk of whatever memory.
func checkWalk(t *testing.T, i *Image, w Walk, language unwind.Language) {
	t.Helper()
	if w.Reads > mostReads {
		t.Errorf("%d reads", w.Reads)
	}
	if w.End == profile.EndUnknown || strings.Contains(w.End.String(), "(") {
		t.Errorf("the walk ends as %d", w.End)
	}
	if len(w.Frames) == 0 && !w.End.Truncated() {
		t.Errorf("an empty stack passes for whole: %s", w.End)
	}
	if w.End == profile.EndComplete && !i.ends(w) {
		t.Errorf("passes for whole, and ends at no known end:\n%s", i.text(w))
	}
	names := develop(w)
	for _, f := range w.Frames {
		if f.Language != 0 && f.Language != language {
			t.Errorf("a frame of language %d", f.Language)
		}
		names.name(f)
	}
}

// ends tells whether the outermost native frame of a walk is one that nothing
// called, or one that a fiber begins with. V8's own code, and what V8 makes,
// keeps frame pointers and is always called.
func (i *Image) ends(w Walk) bool {
	v8 := len(i.Runtimes) > 0 && i.Runtimes[0].Language == unwind.V8
	outermost := len(w.Frames) - 1
	for outermost >= 0 && w.Frames[outermost].Language != 0 {
		outermost--
	}
	if outermost < 0 {
		return false
	}
	f := w.Frames[outermost]
	if f.Executable == 0 { // by frame pointer
		return !v8
	}
	switch file := i.Files[f.Executable-1]; file.rule(f.Offset).Type() {
	case rows.End:
		return true
	case rows.FramePointer:
		return !v8
	case rows.Gap:
		return file.FramePointers || len(i.Runtimes) > 0
	default: // the stack of a fiber ends in a return address of zero
		return len(i.Runtimes) > 0 && i.Runtimes[0].Language == unwind.Ruby
	}
}

// rule is that of an offset in a file.
func (f *File) rule(offset uint64) rows.Rule {
	var last rows.Row
	for _, row := range f.Rows {
		if row>>32 <= offset {
			last = rows.Row(row)
		}
	}
	return last.Rule()
}
