package hotspot

import (
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// recordedTables reads testdata.
func recordedTables(t testing.TB, version string) tables {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", version+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	all := tables{map[string]field{}, map[string]uint64{}, map[string]int64{}}
	for line := range strings.Lines(string(data)) {
		var what, name string
		var value uint64
		if _, err := fmt.Sscan(line, &what, &name, &value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch what {
		case "field":
			words := strings.SplitN(strings.TrimSpace(line), " ", 4)
			all.fields[name] = field{at: value, kind: words[3]}
		case "size":
			all.sizes[name] = value
		case "constant":
			all.ints[name] = int64(value)
		}
	}
	return all
}

func recordedLayout(t testing.TB, version string) layout {
	t.Helper()
	l, err := newLayout(recordedTables(t, version))
	if err != nil {
		t.Fatalf("%s: %v", version, err)
	}
	return l
}

// TestLayout compares with docs of the layouts that were measured on each.
func TestLayout(t *testing.T) {
	type want struct {
		header, frameSize, compileID, deopt uint16
		relative, short                     uint8
		biased, apart                       bool
		constMethod, pool, nameIndex        uint64
		codeSize, flags, lead               offset
	}
	for version, w := range map[string]want{
		"8":       {16, 44, headBytes + 56, headBytes, 1, 0, false, false, 48, 80, 34, 32, 28, 0},
		"11.0.13": {16, 28, headBytes + 4, 128, 0, 0, false, false, 56, 64, 42, 40, 36, 0},
		"17.0.15": {16, 28, headBytes + 4, 128, 0, 0, false, false, 48, 72, 34, 32, 28, 4},
		"21.0.8":  {16, 88, headBytes + 4, 128, 0, 0, true, false, 56, 72, 36, 34, 28, 4},
		"25.0.2":  {8, 44, headBytes + 36, headBytes, 1, 1, true, true, 56, 72, 36, 34, 28, 4},
		"25.0.3":  {8, 44, headBytes + 36, headBytes, 1, 1, true, true, 56, 72, 36, 34, 28, 4},
	} {
		l := recordedLayout(t, version)
		got := want{l.Header, l.FrameSize, l.CompileID, l.Deopt, l.CodeRelative, l.CompleteShort, l.biased, l.immutable.known(),
			l.constMethodBytes, l.poolBytes, uint64(l.ConstantName), l.codeSize, l.constFlags, l.symbolLength}
		if got != w {
			t.Errorf("%s:\n got %+v\nwant %+v", version, got, w)
		}
	}
}

func TestLayoutLacksField(t *testing.T) {
	for _, name := range []string{"CodeBlob._frame_size", "nmethod._compile_id", "Method._constMethod", "Symbol._length", "PcDesc._pc_offset"} {
		all := recordedTables(t, "17.0.15")
		delete(all.fields, name)
		if _, err := newLayout(all); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	// The encodings of src/hotspot/share/code/compressedStream.cpp (11), 64 high
	// codes and 192 low ones, and utilities/unsigned5.hpp (21): 64, 191, and none
	// of zero. The last two are of a StackChunk's fields in 25.0.2.
	for _, c := range []struct {
		raw    []byte
		biased bool
		want   uint32
	}{
		{[]byte{0}, false, 0}, {[]byte{191}, false, 191}, {[]byte{192, 0}, false, 192}, {[]byte{193, 1}, false, 193 + 64},
		{[]byte{1}, true, 0}, {[]byte{191}, true, 190}, {[]byte{192, 1}, true, 191}, {[]byte{193, 1}, true, 192}, {[]byte{255, 191}, false, 255 + 191*64},
		{[]byte{0xc0, 0x0c}, true, 191 + 11*64}, {[]byte{0xe9, 0x05}, true, 232 + 4*64},
		{[]byte{255, 255, 255, 255, 255}, false, 51130559},
	} {
		n := numbers{raw: c.raw, biased: c.biased}
		if got := n.next(); got != c.want || n.short || len(n.raw) != 0 {
			t.Errorf("% x biased %v: %d, want %d; %d bytes left", c.raw, c.biased, got, c.want, len(n.raw))
		}
	}
	for _, raw := range [][]byte{{}, {192}, {255, 255}} {
		n := numbers{raw: raw}
		if n.next(); !n.short {
			t.Errorf("% x is not taken as short", raw)
		}
	}
	if n := (numbers{raw: []byte{3, 4}}); n.signed() != -2 || n.signed() != 2 {
		t.Error("signs are wrong")
	}
}

func TestLines(t *testing.T) {
	// bytecode 0 line 10; 5 -> 12; 70 -> 9 (escaped: 65 on is 130, 3 back is 5)
	l := lines{raw: []byte{255, 0, 20, 5<<3 | 2, 255, 130, 5}}
	for bytecode, want := range map[int]int{0: 10, 4: 10, 5: 12, 69: 12, 70: 9, 1000: 9} {
		if got := l.at(bytecode); got != want {
			t.Errorf("bytecode %d: line %d, want %d", bytecode, got, want)
		}
	}
	if l.first() != 9 {
		t.Errorf("lowest line %d, want 9", l.first())
	}
	if got := tableEnd(append(l.raw, 0, 77), false); got != len(l.raw) {
		t.Errorf("the table ends at %d, want %d", got, len(l.raw))
	}
	if got := tableEnd(l.raw, false); got != -1 {
		t.Errorf("a table without an end ends at %d", got)
	}
}

func TestShownClass(t *testing.T) {
	for name, want := range map[string]string{
		"java/util/HashMap":                                    "java/util/HashMap",
		"shop/Cart$$Lambda$14+0x0000000800c03000":              "shop/Cart$$Lambda",
		"shop/Cart$$Lambda+0x00007f1c4c000a00":                 "shop/Cart$$Lambda",
		"shop/Cart$$Lambda$14/0x0000000800c03000":              "shop/Cart$$Lambda",
		"shop/Cart$$Lambda$14":                                 "shop/Cart$$Lambda",
		"java/lang/invoke/LambdaForm$MH+0x0000000800c01400":    "java/lang/invoke/LambdaForm$MH",
		"java/lang/invoke/LambdaForm$DMH$3+0x0000000800c01400": "java/lang/invoke/LambdaForm$DMH",
		"shop/Cart$1": "shop/Cart$1",
		"shop/x0x12":  "shop/x0x12",
	} {
		if got := shownClass(name); got != want {
			t.Errorf("%s is shown as %s, want %s", name, got, want)
		}
	}
}

func TestDecodeName(t *testing.T) {
	for raw, want := range map[string]string{"main": "main", "größe": "größe", "\xed\xa0\xbd\xed\xb8\x80x": "😀x"} {
		if got, ok := decodeName([]byte(raw)); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", raw, got, ok, want)
		}
	}
	for _, raw := range []string{"a\x00b", "\xff\xfe", "a\nb", "\xed\xa0"} {
		if got, ok := decodeName([]byte(raw)); ok {
			t.Errorf("%q is taken as %q", raw, got)
		}
	}
}

// image is a process's memory from base on.
type image struct {
	base uint64
	data []byte
}

func (i *image) ReadAt(p []byte, address int64) (int, error) {
	at := uint64(address) - i.base
	if at >= uint64(len(i.data)) {
		return 0, io.EOF
	}
	n := copy(p, i.data[at:])
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func (i *image) put64(address, value uint64) { le.PutUint64(i.data[address-i.base:], value) }
func (i *image) put32(address uint64, value uint32) {
	le.PutUint32(i.data[address-i.base:], value)
}
func (i *image) put16(address uint64, value uint16) {
	le.PutUint16(i.data[address-i.base:], value)
}

// putSymbol writes a symbol: its length, its hash, which is random, and its text.
// The count of references is what the mask hides of the first 8 bytes.
func (i *image) putSymbol(l layout, address uint64, text string, hash uint16) {
	i.put64(address, 0)
	i.put16(address+uint64(l.symbolLength), uint16(len(text)))
	i.put16(address+hashAt(l), hash)
	copy(i.data[address+uint64(l.symbolBody)-i.base:], text)
}

// hashAt is where a symbol's hash is: behind its count of references, until 11
// with the length before that.
func hashAt(l layout) uint64 { return countAt(l) + 2 }

func countAt(l layout) uint64 { return uint64(bits.TrailingZeros64(^l.SymbolMask)) / 8 }

const (
	atMethod   = 0x10000
	atConstant = 0x10100
	atPool     = 0x10200
	atKlass    = 0x10300
	atNames    = 0x10500
	atNmethod  = 0x11000
)

// newImage makes a JVM with one class, shop/Cart, in Cart.java, that has
// a method add of 100 bytecodes, and its nmethod with the number 7.
func newImage(l layout) *image {
	i := &image{0x10000, make([]byte, 0x1700)}
	i.put64(atMethod+uint64(l.MethodConstant), atConstant)
	i.put64(atConstant+uint64(l.ConstantPool), atPool)
	i.put16(atConstant+uint64(l.ConstantName), 1)
	i.put16(atConstant+uint64(l.codeSize), 100)
	i.put16(atConstant+uint64(l.constFlags), uint16(l.hasLines))
	copy(i.data[atConstant+l.constMethodBytes+100-i.base:], []byte{255, 0, 80, 10 << 3, 255, 20, 2, 0})
	i.put64(atPool+uint64(l.PoolHolder), atKlass)
	i.put32(atPool+uint64(l.poolLength), 3)
	if l.PoolSource != 0 {
		i.put16(atPool+uint64(l.PoolSource), 2)
	} else {
		i.put16(atKlass+uint64(l.KlassSource), 2)
	}
	i.put64(atPool+uint64(l.PoolSlots)+8, atNames)
	i.put64(atPool+uint64(l.PoolSlots)+16, atNames+0x80)
	i.put64(atKlass+uint64(l.KlassName), atNames+0x40)
	i.putSymbol(l, atNames, "add", 0x1234)
	i.putSymbol(l, atNames+0x40, "shop/Cart", 0x2345)
	i.putSymbol(l, atNames+0x80, "Cart.java", 0x3456)

	block := uint64(atNmethod) - uint64(l.Header)
	i.data[block+uint64(l.used)-i.base] = 1
	i.put32(atNmethod+uint64(l.compileID), 7)
	i.put64(atNmethod+uint64(l.method), atMethod)
	i.put32(atNmethod+uint64(l.metadata), 0x400)
	i.put64(atNmethod+0x400, atMethod)
	if l.scopesBegin.known() {
		i.put64(atNmethod+uint64(l.scopesBegin), atNmethod+0x500)
	} else {
		i.put32(atNmethod+uint64(l.scopesData), 0x500)
	}
	i.put32(atNmethod+uint64(l.scopesPCs), 0x600)
	i.put32(atNmethod+uint64(l.dependencies), 0x600+3*16)
	// scopes: at 1 the outer one at bytecode 5, at 4 an inner one at 20
	copy(i.data[atNmethod+0x501-i.base:], []byte{0, 1, 6, 1, 1, 21})
	for n, record := range [][2]uint32{{0xffffffff, 0}, {0x40, 4}, {0x80, 1}} {
		i.put32(atNmethod+0x600+uint64(n)*16, record[0])
		i.put32(atNmethod+0x604+uint64(n)*16, record[1])
	}
	return i
}

func TestNames(t *testing.T) {
	for _, version := range []string{"8", "17.0.15"} {
		t.Run(version, func(t *testing.T) {
			l := recordedLayout(t, version)
			t.Run("compiled", func(t *testing.T) { testCompiled(t, l) })
			t.Run("interpreted", func(t *testing.T) { testInterpreted(t, l) })
			t.Run("declared", func(t *testing.T) { testDeclared(t, l) })
		})
	}
}

var cartAdd = profile.Frame{Function: "shop.Cart.add", File: "shop/Cart.java", StartLine: 40, Kind: profile.KindJavaCompiled}

func testCompiled(t *testing.T, l layout) {
	i := newImage(l)
	p := newProcess(memory{i}, l)
	var n Namer
	compiled := func(id, pc uint32) []profile.Frame {
		return n.Name(lang.Activation{PID: 1, What: atNmethod, Where: uint64(id)<<32 | uint64(pc)}, p)
	}
	outer, inner := cartAdd, cartAdd
	outer.Line, inner.Line, inner.Inlined = 40, 41, true
	if got := compiled(7, 0x40); !reflect.DeepEqual(got, []profile.Frame{inner, outer}) {
		t.Errorf("at an inlined call: %+v", got)
	}
	if got := compiled(7, 0x41); !reflect.DeepEqual(got, []profile.Frame{outer}) {
		t.Errorf("after it: %+v", got)
	}
	if got := compiled(8, 0x40); got != nil {
		t.Errorf("another nmethod at its address is named %+v", got)
	}
	// Once named, it keeps its name when its memory is another's.
	i.put32(atNmethod+uint64(l.compileID), 9)
	if got := compiled(7, 0x40); len(got) != 2 {
		t.Errorf("a compiled function that is gone is %+v", got)
	}
	if got := compiled(7, 0x60); got != nil {
		t.Errorf("a place never seen, of a function that is gone, is named %+v", got)
	}
	// Once met, all its places do.
	met := newProcess(memory{newImage(l)}, l)
	n.Look(lang.Photograph{PID: 2, What: atNmethod, Values: [8]uint64{7 << 32}}, met)
	met.m = memory{&image{0x10000, nil}}
	for _, pc := range []uint64{0x40, 0x60} {
		if got := n.Name(lang.Activation{PID: 2, What: atNmethod, Where: 7<<32 | pc}, met); len(got) == 0 {
			t.Errorf("a place at %#x of a function that was met has no name", pc)
		}
	}
}

// interpreter gives names of what is interpreted at a place of the one Method.
func interpreter(t *testing.T, i *image, l layout) (p *Process, identity uint64, name func(identity, at uint64) []profile.Frame) {
	t.Helper()
	p = newProcess(memory{i}, l)
	identity, ok := p.identityAt(atMethod)
	if !ok {
		t.Fatal("no identity")
	}
	var n Namer
	return p, identity, func(identity, at uint64) []profile.Frame {
		where := short(identity)<<placeBits | l.constMethodBytes + at
		return n.Name(lang.Activation{PID: 1, What: kindInterpreted<<kindShift | atMethod, Where: where}, p)
	}
}

func testInterpreted(t *testing.T, l layout) {
	i := newImage(l)
	p, identity, interpreted := interpreter(t, i, l)
	want := cartAdd
	want.Kind, want.Line = profile.KindJavaInterpreted, 41
	if got := interpreted(identity, 30); !reflect.DeepEqual(got, []profile.Frame{want}) {
		t.Errorf("interpreted: %+v", got)
	}
	if got := interpreted(identity+1<<32, 30); got != nil {
		t.Errorf("a method with another identity is named %+v", got)
	}
	i.putSymbol(l, atNames+0x40, "shop/Desk", 0x5678) // another class where it was
	if now, _ := p.identityAt(atMethod); now == identity {
		t.Error("another class has the same identity")
	}
	i.put16(atNames+countAt(l), 99) // a reference count is no part of it
	before, _ := p.identityAt(atMethod)
	i.put16(atNames+countAt(l), 100)
	if after, _ := p.identityAt(atMethod); after != before {
		t.Error("the identity changes with the count of references")
	}
	i.putSymbol(l, atNames+0x80, "Desk.java", 0x6789)
	if now, _ := p.identityAt(atMethod); now == before {
		t.Error("a class of another file has the same identity")
	}
	if got := new(Namer).Name(lang.Activation{PID: 1, What: kindCut << kindShift}, p); len(got) != 1 {
		t.Errorf("a cut is %+v", got)
	}

	// Another Method came to lie there whose identity is as short.
	identity, _ = p.identityAt(atMethod)
	if got := interpreted(identity, 30); len(got) != 1 {
		t.Errorf("the class that came later: %+v", got)
	}
	p.methods[atMethod][0].identity ^= 1
	if got := interpreted(identity, 30); got != nil {
		t.Errorf("nobody can tell which of two was sampled, and it is named %+v", got)
	}
	if got := interpreted(identity, 30); len(got) != 1 {
		t.Errorf("from then on: %+v", got)
	}
}

// testDeclared has the class declare a Method, and be another's by then.
func testDeclared(t *testing.T, l layout) {
	i := newImage(l)
	p, identity, interpreted := interpreter(t, i, l)
	const atList = 0x10800
	p.l.klassMethods = 0x1c0
	i.put64(atKlass+uint64(p.l.klassMethods), atList)
	i.put32(atList, 2)
	i.put64(atList+8, 1)
	i.put64(atList+16, atMethod)
	clear(p.methods)
	if got := interpreted(identity, 30); len(got) != 1 {
		t.Errorf("what its class declares: %+v", got)
	}
	i.put64(atList+16, atMethod+8)
	clear(p.methods)
	if got := interpreted(identity, 30); got != nil {
		t.Errorf("what no class declares is named %+v", got)
	}
}

// TestNamesByRecords has an nmethod tell no places, or what does not fit.
func TestNamesByRecords(t *testing.T) {
	for _, version := range []string{"8", "17.0.15"} {
		t.Run(version, func(t *testing.T) { testNamesByRecords(t, recordedLayout(t, version)) })
	}
}

func testNamesByRecords(t *testing.T, l layout) {
	var n Namer
	lone := profile.Frame{Function: "shop.Cart.add", File: "shop/Cart.java", StartLine: 40, Kind: profile.KindJavaCompiled}
	// The wrapper of a native method tells no places, nor does code that calls nothing.
	for what, change := range map[string]func(*image){
		"the wrapper of a native method": func(i *image) {
			i.put64(atNmethod+uint64(l.blobName), atNames+0xc0)
			copy(i.data[atNames+0xc0-i.base:], "native nmethod\x00")
			i.put32(atNmethod+uint64(l.dependencies), 0x600)
		},
		"code that calls nothing": func(i *image) {
			i.put32(atNmethod+uint64(l.dependencies), 0x600+2*16)
			i.put32(atNmethod+0x614, 0)
		},
	} {
		changed := newImage(l)
		change(changed)
		if got := n.Name(lang.Activation{PID: 2, What: atNmethod, Where: 7<<32 | 0x40}, newProcess(memory{changed}, l)); !reflect.DeepEqual(got, []profile.Frame{lone}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	// Of what is being thrown away nothing is told but by records that fit.
	for what, spoil := range map[string]func(*image){
		"no scopes":                  func(i *image) { i.put32(atNmethod+0x614, 0); i.put32(atNmethod+0x624, 0) },
		"records out of order":       func(i *image) { i.put32(atNmethod+0x620, 0x30) },
		"another outermost function": func(i *image) { i.put64(atNmethod+uint64(l.method), atMethod+64) },
		"a place behind the end":     func(i *image) { i.put16(atConstant+uint64(l.codeSize), 3) },
	} {
		spoilt := newImage(l)
		spoil(spoilt)
		if got := n.Name(lang.Activation{PID: 3, What: atNmethod, Where: 7<<32 | 0x40}, newProcess(memory{spoilt}, l)); got != nil {
			t.Errorf("%s: named %+v", what, got)
		}
	}
}

// TestNamesOfExited names what was named before, after the process is gone.
func TestNamesOfExited(t *testing.T) {
	l := recordedLayout(t, "17.0.15")
	var n Namer
	a := lang.Activation{PID: 1, What: atNmethod, Where: 7<<32 | 0x40}
	if got := n.Name(a, newProcess(memory{newImage(l)}, l)); len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if got := n.Name(a, nil); len(got) != 2 {
		t.Errorf("after its exit: %+v", got)
	}
	if got := n.Name(lang.Activation{PID: 2, What: atNmethod, Where: 7<<32 | 0x40}, nil); got != nil {
		t.Errorf("of another process: %+v", got)
	}
}

// checkNames names all that is at the places of newImage: it must end, and hold
// printable text.
func checkNames(t testing.TB, p *Process, pc uint32) {
	t.Helper()
	var n Namer
	n.Look(lang.Photograph{PID: 1, What: atNmethod, Values: [8]uint64{7 << 32}}, p)
	n.Look(lang.Photograph{PID: 1, What: kindInterpreted<<kindShift | atMethod}, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	var frames []profile.Frame
	frames = append(frames, p.compiledFrames(compilation{atNmethod, 7}, pc)...)
	if m, ok := p.readMethod(atMethod); ok {
		frames = append(frames, p.interpretedFrame(identified{atMethod, short(m.identity)}, uint64(pc))...)
	}
	frames = append(frames, p.stub(atNmethod)...)
	if len(frames) > maxInlined+2 {
		t.Errorf("%d frames", len(frames))
	}
	for _, fr := range frames {
		if fr.Function == "" || strings.ContainsAny(fr.Function+fr.File, "\x00\n") || fr.Line < 0 {
			t.Errorf("%+v", fr)
		}
	}
}

// FuzzNames has every byte of a JVM's structures be anything.
func FuzzNames(f *testing.F) {
	var layouts []layout
	for i, version := range []string{"11.0.13", "17.0.15", "21.0.8", "25.0.2", "8"} {
		layouts = append(layouts, recordedLayout(f, version))
		f.Add(newImage(recordedLayout(f, "17.0.15")).data, uint8(i), uint32(0x40))
	}
	f.Fuzz(func(t *testing.T, data []byte, version uint8, pc uint32) {
		l := layouts[int(version)%len(layouts)]
		checkNames(t, newProcess(memory{&image{0x10000, data}}, l), pc)
	})
}
