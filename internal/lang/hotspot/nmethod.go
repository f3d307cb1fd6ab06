package hotspot

import (
	"slices"
	"sort"

	"atys.dev/atys/internal/profile"
)

// compilation is a compiled function. Its number is used once in the life of a
// JVM, its address again and again.
type compilation struct {
	address uint64
	id      uint32
}

// nmethod is what is known of a compiled function.
type nmethod struct {
	own    uint64 // its Method
	frames map[uint32][]profile.Frame

	whole       bool               // so are all Methods that its places tell: it can be gone
	loaded      bool               // all below is there
	pcs, scopes []byte             // PcDesc records; what was inlined where
	metadata    []byte             // addresses of Methods and classes
	methods     map[uint64]*method // by address; nil: it cannot be read
	native      bool               // it wraps a native method, and may have no records
}

const (
	maxScopes  = 1 << 20 // bytes of one part of an nmethod; 41,168 in a method of 2,200 calls
	maxInlined = 64      // calls in each other; the compilers stop at 15 or so
	maxWork    = 1 << 29 // of one nmethod, as meter counts; there 116,004,306
	scopeCost  = 128     // of decoding one, likewise
	keepFrames = 1 << 18
	// keepCompiled is more than are alive at once in all but the largest JVMs.
	keepCompiled = 1 << 15
	keepBytes    = 8 << 20
)

// compiledFrames gives the frames at a pc of a compiled function, innermost
// first.
func (p *Process) compiledFrames(of compilation, pc uint32) []profile.Frame {
	n := p.compiled[of]
	if n != nil {
		if frames, ok := n.frames[pc]; ok {
			return frames
		}
	}
	var frames []profile.Frame
	if n != nil && n.whole {
		frames = p.inlined(n, pc)
	} else {
		n = p.reading(of, func(n *nmethod) { frames = p.inlined(n, pc) })
	}
	if n == nil {
		return nil
	}
	p.keep(of, n)
	if len(frames) > 0 {
		p.frames += len(frames)
		n.frames[pc] = frames
	}
	return frames
}

// meet reads all that a compiled function's places tell, before it is gone.
func (p *Process) meet(of compilation) {
	if n := p.compiled[of]; n != nil && n.whole {
		return
	}
	n := p.reading(of, func(n *nmethod) {
		p.methodAt(n, n.own)
		p.meetScopes(n)
	})
	if n != nil {
		n.whole = true
		p.keep(of, n)
	}
}

// meetScopes reads the Methods of all scopes. Places share their callers' scopes:
// each is looked at once, so that the work is no more than there are bytes.
func (p *Process) meetScopes(n *nmethod) {
	seen := make([]bool, len(n.scopes))
	for pcs := n.pcs; uint64(len(pcs)) >= p.l.pcDescBytes; pcs = pcs[p.l.pcDescBytes:] {
		at := int64(int32(le.Uint32(pcs[p.l.pcDecode:])))
		for at > 0 && at < int64(len(seen)) && !seen[at] && p.m.spend(scopeCost) {
			seen[at] = true
			s, caller, ok := p.l.scopeAt(n.scopes, at)
			if !ok {
				break
			}
			p.methodAt(n, n.address(s.method))
			at = caller
		}
	}
}

// reading has a compiled function loaded while it is read; nil: it is not there,
// or was not throughout.
func (p *Process) reading(of compilation, read func(*nmethod)) *nmethod {
	before, ok := p.header(of)
	if !ok {
		return nil
	}
	n := p.compiled[of]
	if n == nil {
		n = &nmethod{frames: map[uint32][]profile.Frame{}}
	}
	p.within(maxWork, func() {
		if ok = n.loaded || p.load(n, before); ok {
			read(n)
		}
	})
	if !ok {
		return nil
	}
	if after, ok := p.header(of); !ok || after != before {
		n.unload() // what was read since may be another's
		return nil
	}
	return n
}

// within has what is read cost no more than a budget, and tells what is left.
func (p *Process) within(budget int, read func()) (left int) {
	m := p.m
	by := &meter{m.r, budget}
	p.m = memory{by}
	defer func() { p.m = m }()
	read()
	return by.left
}

// keep remembers a compiled function, within bounds.
func (p *Process) keep(of compilation, n *nmethod) {
	if p.frames > keepFrames || len(p.compiled) > keepCompiled {
		p.forget()
	}
	if p.bytes > keepBytes {
		p.unload()
	}
	p.compiled[of] = n
}

// forget drops all that is known of compiled functions.
func (p *Process) forget() {
	p.compiled, p.frames, p.bytes = map[compilation]*nmethod{}, 0, 0
}

// unload drops what can be read again.
func (p *Process) unload() {
	p.bytes = 0
	for _, n := range p.compiled {
		n.unload()
	}
}

func (n *nmethod) unload() {
	n.whole, n.loaded, n.pcs, n.scopes, n.metadata, n.methods = false, false, nil, nil, nil, nil
}

// header is what an nmethod says of itself.
type header struct {
	method                uint64
	native                bool
	pcs, scopes, metadata span
}

// header reads it, if the function is still there.
func (r *reader) header(of compilation) (h header, ok bool) {
	block := uint64(r.l.Header)
	raw, ok := r.m.bytes(of.address-block, block+r.l.nmethodBytes, 1<<13)
	if !ok || raw[r.l.used] == 0 {
		return h, false
	}
	f := blobBytes(raw[block:])
	if f.u32(r.l.compileID) != uint64(of.id) {
		return h, false
	}
	h.method = f.u64(r.l.method)
	h.pcs, h.scopes, h.metadata = r.l.spans(of.address, f)
	name, ok := r.m.text(f.u64(r.l.blobName), maxName)
	h.native = ok && name == "native nmethod"
	return h, h.method != 0
}

// blobBytes are those of an nmethod; 0 is where it has none.
type blobBytes []byte

func (f blobBytes) u64(at offset) uint64 {
	if at > 1<<12 || at+8 > offset(len(f)) {
		return 0
	}
	return le.Uint64(f[at:])
}

func (f blobBytes) u32(at offset) uint64 {
	if at > 1<<12 || at+4 > offset(len(f)) {
		return 0
	}
	return uint64(le.Uint32(f[at:]))
}

// span is a stretch of memory.
type span struct{ begin, end uint64 }

func (r *reader) readSpan(s span) ([]byte, bool) {
	if s.end < s.begin {
		return nil, false
	}
	return r.m.bytes(s.begin, s.end-s.begin, maxScopes)
}

// load reads where an nmethod's code comes from.
func (p *Process) load(n *nmethod, h header) bool {
	ok := true
	for _, part := range []struct {
		to   *[]byte
		from span
	}{{&n.pcs, h.pcs}, {&n.scopes, h.scopes}, {&n.metadata, h.metadata}} {
		var read bool
		*part.to, read = p.readSpan(part.from)
		ok = ok && read
	}
	if !ok || !p.l.ordered(n.pcs) {
		return false
	}
	n.own, n.native, n.methods, n.loaded = h.method, h.native, map[uint64]*method{}, true
	p.bytes += len(n.pcs) + len(n.scopes) + len(n.metadata)
	return true
}

// spans finds the three parts: in the blob itself, or apart from it.
func (l *layout) spans(blob uint64, h blobBytes) (pcs, scopes, metadata span) {
	if l.immutable.known() {
		base := h.u64(l.immutable)
		middle := base + h.u32(l.scopesData)
		pcs = span{base + h.u32(l.scopesPCs), middle}
		scopes = span{middle, base + h.u32(l.immutableSize)}
	} else {
		begin := blob + h.u32(l.scopesPCs)
		pcs = span{begin, blob + h.u32(l.dependencies)}
		if l.scopesBegin.known() {
			scopes = span{h.u64(l.scopesBegin), begin}
		} else {
			scopes = span{blob + h.u32(l.scopesData), begin}
		}
	}
	if l.mutable.known() {
		base := h.u64(l.mutable)
		metadata = span{base + h.u32(l.relocationSize), base + h.u32(l.mutableSize)}
	} else {
		metadata = span{blob + h.u32(l.metadata), scopes.begin}
		if l.immutable.known() { // until 24 they were the last in the blob
			metadata.end = blob + h.u32(l.blobSize)
		}
	}
	return pcs, scopes, metadata
}

// ordered tells whether these are PcDesc records: the first is of no place, the
// others follow in order. What is kept apart from an nmethod is freed before
// the nmethod says so, and is another's then.
func (l *layout) ordered(pcs []byte) bool {
	last := int32(-1)
	for at := 0; at+int(l.pcDescBytes) <= len(pcs); at += int(l.pcDescBytes) {
		pc := int32(le.Uint32(pcs[offset(at)+l.pcOffset:]))
		if at == 0 && pc != last || at > 0 && pc <= last {
			return false
		}
		last = pc
	}
	return true
}

// sentinels are the records of code that calls nothing and never stops: the
// first and the last, of no place.
const sentinels = 2

// inlined gives the frames at a pc. What the records say must fit: the outermost
// function is the nmethod's own, and no place is behind its function's end.
func (p *Process) inlined(n *nmethod, pc uint32) (frames []profile.Frame) {
	if n.native || len(n.pcs) == sentinels*int(p.l.pcDescBytes) {
		m := p.methodAt(n, n.own)
		if m == nil {
			return nil
		}
		return []profile.Frame{m.frame(profile.KindJavaCompiled, -1)}
	}
	scopes := p.l.scopesAt(n.pcs, n.scopes, pc)
	if len(scopes) == 0 || n.address(scopes[len(scopes)-1].method) != n.own {
		return nil
	}
	for _, s := range scopes {
		m := p.methodAt(n, n.address(s.method))
		if m == nil || s.bytecode > 0 && s.bytecode >= m.size {
			return nil
		}
		f := m.frame(profile.KindJavaCompiled, s.bytecode)
		f.Inlined = true
		frames = append(frames, f)
	}
	frames[len(frames)-1].Inlined = false
	return slices.Clip(frames)
}

// methodAt reads a Method that an nmethod's metadata has the address of; nil:
// there is none, which is not tried again. Of one that may be gone, it was read
// before.
func (p *Process) methodAt(n *nmethod, address uint64) *method {
	if m, ok := n.methods[address]; ok || n.whole {
		return m
	}
	m := p.known(address)
	n.methods[address] = m
	return m
}

// address is what lies at an index of an nmethod's metadata, from 1; 0: nothing.
func (n *nmethod) address(index uint64) uint64 {
	at := (index - 1) * 8
	if index == 0 || index > uint64(len(n.metadata))/8 {
		return 0
	}
	return le.Uint64(n.metadata[at:])
}

// scope is a call that is inlined, or the outermost function.
type scope struct {
	method   uint64 // index
	bytecode int
}

// scopesAt decodes what was inlined at a pc, innermost first:
//
//	PcDesc: pc, place of a scope -> scope: place of its caller's, method, bytecode + 1, ...
//
// A return address has a record of its own; other instructions share the next
// that tells a scope, those after all of them the last.
func (l *layout) scopesAt(pcs, scopes []byte, pc uint32) (found []scope) {
	count := len(pcs) / int(l.pcDescBytes)
	field := func(i int, at offset) int32 {
		return int32(le.Uint32(pcs[uint64(i)*l.pcDescBytes+uint64(at):]))
	}
	first := sort.Search(count, func(i int) bool { return int64(field(i, l.pcOffset)) >= int64(pc) })
	i := first
	for i < count && field(i, l.pcDecode) <= 0 {
		i++
	}
	if i == count {
		i = first - 1
	}
	for i > 0 && field(i, l.pcDecode) <= 0 {
		i--
	}
	if i < 0 {
		return nil
	}
	for at := int64(field(i, l.pcDecode)); at > 0 && at < int64(len(scopes)) && len(found) < maxInlined; {
		s, caller, ok := l.scopeAt(scopes, at)
		if !ok {
			return nil
		}
		found = append(found, s)
		at = caller
	}
	return found
}

// scopeAt decodes one scope, and tells the place of its caller's; 0: it has none.
func (l *layout) scopeAt(scopes []byte, at int64) (s scope, caller int64, ok bool) {
	n := numbers{raw: scopes[at:], biased: l.biased}
	caller = int64(n.next())
	s = scope{method: uint64(n.next()), bytecode: max(int(int32(n.next()))-1, 0)} // -1 is the entry
	if caller >= at {
		caller = 0 // callers are written first
	}
	return s, caller, !n.short && s.method != 0
}
