package hotspot

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/lang"
)

// counted counts what is read.
type counted struct {
	*image
	reads, bytes int
}

func (c *counted) ReadAt(p []byte, address int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.image.ReadAt(p, address)
}

const (
	atHostile = 0x12000 // Methods, that are all add of shop/Cart, each of 16 bytes
	atList    = 0x200000
	atParts   = 0x300000
)

// newHostile is a JVM whose nmethod has a number of Methods inlined, each in a scope
// of its own, and a place in each or else in those that are given.
func newHostile(l layout, methods int, places []uint32) *counted {
	i := newImage(l)
	i.data = append(i.data, make([]byte, 0x800000)...)
	metadata, scopes, everywhere := uint64(atParts), []byte{0}, places == nil
	i.put64(metadata, atMethod)
	for n := range methods {
		at := uint64(atHostile + 16*n)
		i.put64(at+uint64(l.MethodConstant), atConstant)
		i.put64(metadata+8*uint64(n+1), at)
		if everywhere {
			places = append(places, uint32(len(scopes)))
		}
		scopes = append(append(append(scopes, 0), compressed(uint32(n+2))...), 1)
	}
	begin := metadata + 8*uint64(methods+1)
	copy(i.data[begin-i.base:], scopes)
	pcs := begin + uint64(len(scopes)+7)&^7
	i.put32(pcs, 0xffffffff)
	for n, place := range places {
		i.put32(pcs+uint64(n+1)*l.pcDescBytes, uint32(n))
		i.put32(pcs+uint64(n+1)*l.pcDescBytes+uint64(l.pcDecode), place)
	}
	i.put32(atNmethod+uint64(l.metadata), uint32(metadata-atNmethod))
	i.put64(atNmethod+uint64(l.scopesBegin), begin)
	i.put32(atNmethod+uint64(l.scopesPCs), uint32(pcs-atNmethod))
	i.put32(atNmethod+uint64(l.dependencies), uint32(pcs-atNmethod+uint64(len(places)+1)*l.pcDescBytes))
	return &counted{image: i}
}

// undeclared has the class of all Methods have a long list that none is in.
func (c *counted) undeclared(l *layout) {
	l.klassMethods = 0x1c0
	c.put64(atKlass+uint64(l.klassMethods), atList)
	c.put32(atList, maxMethods)
}

// compressed is UNSIGNED5 as until 20.
func compressed(x uint32) (raw []byte) {
	for ; x >= lowCodes && len(raw) < 4; x >>= 6 {
		x -= lowCodes
		raw = append(raw, byte(lowCodes+x&63))
	}
	return append(raw, byte(x))
}

// threadTime is the CPU time of the thread that asks.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// TestMeetIsBounded has one nmethod make work: far more than any that was seen,
// whose places are 2,600 and whose Methods 741, of a class with 4,400.
func TestMeetIsBounded(t *testing.T) {
	l := recordedLayout(t, "17.0.15")
	for name, c := range map[string]struct {
		methods    int
		places     []uint32
		undeclared bool
		same       bool // it is one Method everywhere
		reads      int  // at most
		bytes      int
		time       time.Duration // CPU time, likewise, where it is not all reads
	}{
		"Methods of a large class": {methods: 3000, undeclared: true, reads: 1 << 16, bytes: maxWork},
		"Methods without end":      {methods: 60_000, reads: maxWork / readCost, bytes: maxWork},
		"one that is not declared": {methods: 20_000, undeclared: true, same: true, reads: 100, bytes: 2 << 20},
		"places without scopes":    {methods: 1, places: make([]uint32, 65_000), reads: 100, bytes: 2 << 20, time: time.Second},
		"too many places":          {methods: 1, places: make([]uint32, 70_000), reads: 100, bytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			i, l := newHostile(l, c.methods, c.places), l
			if c.undeclared {
				i.undeclared(&l)
			}
			for n := range c.methods {
				if c.same {
					i.put64(atParts+8*uint64(n+1), atHostile)
				}
			}
			p := newProcess(memory{i}, l)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start := threadTime(t)
			new(Namer).Look(lang.Photograph{PID: 1, What: atNmethod, Values: [8]uint64{7 << 32}}, p)
			if took := threadTime(t) - start; c.time > 0 && took > c.time {
				t.Errorf("took %v", took)
			}
			if i.reads > c.reads || i.bytes > c.bytes {
				t.Errorf("%d reads of %d bytes, at most %d of %d are due", i.reads, i.bytes, c.reads, c.bytes)
			}
		})
	}
}

// TestLookIsBounded has many nmethods make work, each within its own bounds.
func TestLookIsBounded(t *testing.T) {
	const methods = 3000
	l := recordedLayout(t, "17.0.15")
	i := newHostile(l, methods, nil)
	i.undeclared(&l)
	p := newProcess(memory{i}, l)
	now := time.Unix(1000, 0)
	n := Namer{now: func() time.Time { return now }}
	look := func(ids ...uint32) {
		for _, id := range ids {
			i.put32(atNmethod+uint64(l.compileID), id)
			n.Look(lang.Photograph{PID: 1, What: atNmethod, Values: [8]uint64{uint64(id) << 32}}, p)
		}
	}
	look(1, 2, 3, 4, 5, 6)
	if i.bytes > maxLooking {
		t.Errorf("%d bytes were read in a second", i.bytes)
	}
	if p.compiled[compilation{atNmethod, 6}] != nil {
		t.Error("what was not all looked at is taken as met")
	}
	// What fell short in the middle is no failure: the next second makes up for it.
	i.put32(atList, methods)
	for n := range uint64(methods) {
		i.put64(atList+8+8*n, atHostile+16*n)
	}
	p.compiledFrames(compilation{atNmethod, 6}, 5)
	p.looking.left = maxLooking / 100
	look(6)
	now = now.Add(time.Second)
	look(6)
	met := p.compiled[compilation{atNmethod, 6}]
	if met == nil || !met.whole || len(met.methods) < methods {
		t.Fatalf("in the next second: %+v", met)
	}
	for address, m := range met.methods {
		if m == nil && address != atMethod {
			t.Errorf("no name for %#x", address)
		}
	}
}

// TestMethodWithin reads a Method with every budget: all of it, or nothing.
func TestMethodWithin(t *testing.T) {
	l := recordedLayout(t, "17.0.15")
	found := false
	for budget := 0; budget < 40*readCost; budget += readCost / 4 {
		p := newProcess(memory{newImage(l)}, l)
		p.within(budget, func() { p.known(atMethod) })
		for _, m := range p.methods[atMethod] {
			if found = true; m.file == "" || m.start == 0 {
				t.Errorf("with a budget of %d: %+v", budget, m)
			}
		}
	}
	if !found {
		t.Error("no budget is enough")
	}
}

// TestMethodsAreBounded has Methods be large, each with the longest table of lines.
func TestMethodsAreBounded(t *testing.T) {
	const methods, atLarge = 2000, 0x2a0000
	l := recordedLayout(t, "17.0.15")
	i := newHostile(l, methods, nil)
	head := i.data[atConstant-i.base:][:l.constMethodBytes]
	copy(i.data[atLarge-i.base:], head)
	table := i.data[atLarge+l.constMethodBytes+100-i.base:]
	for n := range 0xf000 {
		table[n] = 8 // the next bytecode, the same line
	}
	p := newProcess(memory{i}, l)
	now := time.Unix(1000, 0)
	n := Namer{now: func() time.Time { now = now.Add(time.Second); return now }}
	for id := range uint64(6) {
		for n := range uint64(methods) {
			at := atHostile + 16*(id*methods+n)
			i.put64(at+uint64(l.MethodConstant), atLarge)
			i.put64(atParts+8*(n+1), at)
		}
		i.put32(atNmethod+uint64(l.compileID), uint32(id))
		n.Look(lang.Photograph{PID: 1, What: atNmethod, Values: [8]uint64{id << 32}}, p)
	}
	if kept := bytesOfMethods(p); kept == 0 || kept > 2*keepMethodBytes {
		t.Errorf("%d bytes of methods are kept", kept)
	}
}

// bytesOfMethods counts what is kept of Methods, wherever that is.
func bytesOfMethods(p *Process) (sum int) {
	kept := map[*method]bool{nil: true}
	count := func(m *method) {
		if !kept[m] {
			kept[m] = true
			sum += m.bytes()
		}
	}
	for _, all := range p.methods {
		for _, m := range all {
			count(m)
		}
	}
	for _, n := range p.compiled {
		for _, m := range n.methods {
			count(m)
		}
	}
	return sum
}

// TestPagesAreBounded reads texts that are far from each other.
func TestPagesAreBounded(t *testing.T) {
	p := paged{pages: map[uint64][]byte{}}
	for n := range uint64(3 * keepPages) {
		p.m = memory{&image{n * pageBytes, make([]byte, pageBytes)}}
		if _, ok := (memory{p}).u64(n * pageBytes); !ok {
			t.Fatal("not read")
		}
	}
	if len(p.pages) > keepPages {
		t.Errorf("%d pages are kept", len(p.pages))
	}
}
