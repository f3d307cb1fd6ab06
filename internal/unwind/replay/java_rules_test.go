package replay

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"atys.dev/atys/internal/lang/hotspot"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// A made-up JVM: one heap of code with two blobs, whose frames have 4 words: the
// one that is looked at, and a compiled function that may have called it.
const (
	heapStart    = 0x500000
	segmentMap   = 0x600000
	blobStart    = heapStart + 16
	blobCode     = blobStart + 0x100
	blobComplete = 0x10 // from there on in its code the frame is there
	blobName     = 0x601000
	callerStart  = blobStart + 0x1000
	callerCode   = callerStart + 0x100
	callerName   = 0x602000
)

// java makes an image of a thread in that code, at an offset: the frame that is
// returned to needs rbp, and has nothing but it and a return address.
func java(t *testing.T, name string, code []byte, offset int, rbp uint64, words ...uint64) *Image {
	t.Helper()
	end := ruled{outer - 1, rows.End, 0, 0}
	stack := append(make([]uint64, 8), words...)
	stack[0], stack[1] = 0, at(outer) // of the caller, at its rbp
	i := scene([]ruled{{0x1000, rows.SP, 0, 1}, {0x1100, rows.BP, 2, 2}, end}, blobCode+uint64(offset), word(8), rbp, append(stack, make([]uint64, 16)...)...)
	i.Files[0].Runs = []unwind.Language{unwind.Java}
	i.Mappings = append(i.Mappings, Mapping{Start: heapStart, End: heapStart + 0x2000})

	p := hotspot.Parameters{Header: 16, Size: 8, FrameSize: 12, Code: 16, FrameComplete: 24, CompileID: 28, OrigPC: 32, Deopt: 40, DeoptMH: 40}
	p.Heaps[0] = hotspot.Heap{Low: heapStart, High: heapStart + 0x2000, Segments: segmentMap, Shift: 12}
	var parameters bytes.Buffer
	if err := binary.Write(&parameters, binary.LittleEndian, &p); err != nil {
		t.Fatal(err)
	}
	i.Runtimes = []Runtime{{unwind.Java, parameters.Bytes()}}
	i.Memory = append(i.Memory, blob(&p, blobStart, blobName, name, code), blob(&p, callerStart, callerName, "nmethod", calls()), Piece{segmentMap, make([]byte, 8)},
		Piece{blobName, append([]byte(name), make([]byte, 32)...)}, Piece{callerName, append([]byte("nmethod"), make([]byte, 32)...)})
	return i
}

func blob(p *hotspot.Parameters, start, name uint64, kind string, code []byte) Piece {
	le, b := binary.LittleEndian, make([]byte, 0x800)
	le.PutUint64(b[p.Name:], name)
	le.PutUint32(b[p.Size:], 0x800)
	if kind == "nmethod" {
		le.PutUint32(b[p.FrameSize:], 4)
	}
	le.PutUint64(b[p.Code:], start+0x100)
	le.PutUint32(b[p.FrameComplete:], blobComplete)
	copy(b[0x100:], code)
	return Piece{start, b}
}

// Where the calls return to that the function makes.
const (
	near      = callerCode + 0x25 // of the other blob's 0x20
	far       = callerCode + 0x4d // likewise
	elsewhere = callerCode + 0x65 // of another stub, further on
	taking    = callerCode + 0x85 // likewise of 0x20, and takes two words off the stack
)

// calls is the code of a function that makes them.
func calls() []byte {
	code := make([]byte, 0x200)
	call := func(returns uint64, to int64) {
		code[returns-callerCode-5] = 0xe8
		binary.LittleEndian.PutUint32(code[returns-callerCode-4:], uint32(to-int64(returns))) //nolint:gosec // a distance
	}
	call(near, blobCode+0x20)
	call(elsewhere, blobCode+0x100)
	call(taking, blobCode+0x20)
	copy(code[taking-callerCode:], []byte{0x41, 0x58, 0x5f}) // pop r8; pop rdi
	copy(code[far-callerCode-13:], []byte{0x49, 0xba})
	binary.LittleEndian.PutUint64(code[far-callerCode-11:], blobCode+0x20)
	copy(code[far-callerCode-3:], []byte{0x41, 0xff, 0xd2})
	return code
}

// TestJavaLeaf leaves code of the JVM where its frame is not made yet, or gone.
func TestJavaLeaf(t *testing.T) {
	m := machine(t)
	ret, callers, junk := at(0x1110), word(0), uint64(0x77)
	gone, pushed, whole := []uint64{ret}, []uint64{callers, ret}, []uint64{junk, junk, callers, ret}
	entry := func(code ...byte) []byte { return append(make([]byte, 0x20), code...) }
	bang, poll := []byte{0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff}, []byte{0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8, 0x4d, 0x89, 0x97, 0x60, 4, 0, 0, 0xe9, 1, 2, 3, 4}
	for _, test := range []struct {
		name  string
		blob  string
		code  []byte
		pc    int
		rbp   uint64
		words []uint64
	}{
		{"first entry: before push", "nmethod", append(slices.Clone(bang), 0x55, 0x48, 0x83, 0xec, 0x10), 7, callers, gone},
		{"first entry: pushed", "nmethod", append(slices.Clone(bang), 0x55, 0x48, 0x83, 0xec, 0x10), 8, callers, pushed},
		{"whole", "nmethod", entry(0x90), 0x20, junk, whole},
		{"return", "nmethod", entry(0xc3), 0x20, callers, gone},
		{"second entry: is there room", "nmethod", entry(bang...), 0x20, callers, gone},
		{"second entry: before push", "nmethod", entry(append(slices.Clone(bang), 0x55)...), 0x27, callers, gone},
		{"second entry: pushed", "nmethod", entry(0x55, 0x48, 0x83, 0xec, 0x10), 0x21, callers, pushed},
		{"second entry: made", "nmethod", entry(0x55, 0x48, 0x83, 0xec, 0x10), 0x25, junk, whole},
		{"second entry without push", "nmethod", entry(0x48, 0x81, 0xec, 0x18, 0, 0, 0), 0x20, callers, gone},
		{"second entry: rbp not kept yet", "nmethod", entry(0x48, 0x89, 0x6c, 0x24, 0x10), 0x20, callers, []uint64{junk, junk, junk, ret}},
		{"rbp kept elsewhere", "nmethod", entry(0x48, 0x89, 0x6c, 0x24, 0x08), 0x20, junk, whole},
		{"room for something else", "nmethod", entry(0x48, 0x81, 0xec, 0x80, 0, 0, 0), 0x20, junk, whole},
		{"a return's poll goes on", "nmethod", entry(poll...), 0x20, callers, gone},
		{"its second instruction", "nmethod", entry(poll...), 0x2a, callers, gone},
		{"its jump", "nmethod", entry(poll...), 0x31, callers, gone},
		{"another jump", "nmethod", entry(append(make([]byte, 17), poll[17:]...)...), 0x31, junk, whole},
		{"another number", "nmethod", entry(poll[:10]...), 0x20, junk, whole},
		{"flushing code that was just made", "flush_icache_stub", entry(0x0f, 0xae, 0x3f, 0xe8, 0, 0, 0, 0), 0x20, callers, []uint64{ret, blobCode + 0x28}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := walked(t, m, java(t, test.blob, test.code, test.pc, test.rbp, test.words...))
			var got []uint64
			for _, f := range w.Frames[min(1, len(w.Frames)):] {
				got = append(got, f.Offset)
			}
			if want := []uint64{0x110f, outer - 1}; !slices.Equal(got, want) || w.End != profile.EndComplete || w.Frames[0].Language != unwind.Java {
				t.Errorf("got %#x below %v, %s; want %#x", got, w.Frames[:min(1, len(w.Frames))], w.End, want)
			}
		})
	}
}

// TestJavaStubs leaves stubs that use rbp for their own ends, and code that has
// pushed words onto its frame, to the compiled function that called them.
func TestJavaStubs(t *testing.T) {
	m := machine(t)
	junk, callers, ret := uint64(0x77), word(0), at(0x1110)
	frame := func(back uint64, room int, words ...uint64) []uint64 {
		words = append(words, slices.Repeat([]uint64{junk}, room)...)
		return append(words, back, junk, junk, callers, ret)
	}
	for _, test := range []struct {
		name  string
		blob  string
		words []uint64
	}{
		{"called near", "StubRoutines (compiler stubs)", frame(near, 80)},
		{"called far", "StubRoutines (compiler stubs)", frame(far, 20)},
		{"an older call of another on its frame", "StubRoutines (compiler stubs)", frame(near, 20, elsewhere, callerCode+0x10)},
		{"C1's, given two words", "slow_subtype_check Runtime1 stub", slices.Insert(frame(taking, 5), 6, junk, junk)},
		{"C1's, given none", "slow_subtype_check Runtime1 stub", frame(near, 5)},
		{"a function that has pushed words", "nmethod", frame(near, 3+6)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := walked(t, m, java(t, test.blob, make([]byte, 0x80), 0x40, junk, test.words...))
			var got []uint64
			for _, f := range w.Frames[min(2, len(w.Frames)):] {
				got = append(got, f.Offset)
			}
			if want := []uint64{0x110f, outer - 1}; !slices.Equal(got, want) || w.End != profile.EndComplete || w.Frames[1].Language != unwind.Java {
				t.Errorf("got %#x below %v, %s; want %#x", got, w.Frames[:min(2, len(w.Frames))], w.End, want)
			}
		})
	}
}
