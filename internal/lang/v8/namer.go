package v8

import (
	"weak"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// What runs, in the upper bits of where an activation is: see v8.h.
const (
	kindInterpreted = 1 + iota
	kindCompiled
	kindBuiltin
	kindWasm
	kindCalling
	kindShift = 60
)

const (
	anonymous = "(anonymous)"
	wasm      = "[wasm function]"
)

// inlinedUnread stands for a call that may be inlined, or is, and cannot be
// named; activations without a name are shown so too.
var inlinedUnread = profile.Frame{Kind: profile.KindV8, Function: "[javascript function]", Inlined: true}

// Namer names functions of all processes. The zero value is ready.
type Namer struct {
	functions lang.Album[uint64, kept]
	codes     lang.Album[place, weak.Pointer[code]]
	shelf     shelf // keeps what both refer to
}

// Look keeps a photograph that a walk took just now, and reads what belongs to
// it from the process, where its runtime is known already: functions move and
// code is dropped when garbage is collected.
func (n *Namer) Look(p lang.Photograph, of lang.Walked) {
	r, _ := of.(*Runtime)
	if p.Values[valuePC] != 0 {
		if r != nil {
			n.lookAtCode(r, p.Values[valueWhat], p.Values[valuePC])
			n.lookAgain(r, p.Values[valueWhat])
		}
		return
	}
	f := develop(p)
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.look(&f)
	}
	n.keep(p.What, f)
}

// lookAgain finds a function and looks, where the runtime is known, whether it
// is still the one that was photographed: walks do not photograph one again that
// came to lie in its place. The caller has a copy of its own: what the album
// holds is replaced, under the runtime's lock, while others look and name.
func (n *Namer) lookAgain(r *Runtime, what uint64) (f photographed, ok bool) {
	if r == nil {
		return n.find(what)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, ok = n.find(what); !ok {
		return f, false
	}
	before := f
	if r.look(&f); f != before {
		n.keep(what, f)
	}
	return f, true
}

func (n *Namer) lookAtCode(r *Runtime, what, pc uint64) *code {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.codeAt(pc)
	if c != nil {
		n.keepCode(what, pc, c)
	}
	return c
}

// Name gives the frames of an activation: the calls inlined there innermost
// first, then the function that holds them; none where it does not know.
func (n *Namer) Name(a lang.Activation, of lang.Walked) []profile.Frame {
	kind, rest := a.Where>>kindShift, a.Where&(1<<kindShift-1)
	if kind == kindWasm {
		return []profile.Frame{{Kind: profile.KindV8, Function: wasm}}
	}
	r, _ := of.(*Runtime)
	f, ok := n.lookAgain(r, a.What)
	if !ok || f.reused || !f.known {
		return nil
	}
	frame := profile.Frame{Kind: profile.KindV8, Function: shown(f.name), File: f.file, StartLine: f.lines.line(f.start)}
	if frame.File == "" && f.lines != nil {
		frame.File = f.lines.file
	}
	switch kind {
	case kindInterpreted:
		if p, ok := f.unoptimised.find(int(uint32(rest))); ok {
			frame.Line = f.lines.line(p.offset())
		}
	case kindCompiled, kindCalling:
		return n.compiled(&f, a.What, spot{pc: rest, called: kind == kindCalling}, r, frame)
	}
	return []profile.Frame{frame}
}

// spot is where a thread is in compiled code: its pc, or one within the call it has made.
type spot struct {
	pc     uint64
	called bool
	body   uint64 // where a call that the code does not list goes on in its body; 0: not known
}

// compiled gives what runs at a place in a function's code.
func (n *Namer) compiled(f *photographed, what uint64, at spot, r *Runtime, frame profile.Frame) []profile.Frame {
	c, known := n.codeOf(f, what, at.pc, r)
	if c != nil && !c.baseline && c.function.place() == f.place() && f.contradicts(&c.function.function) {
		return nil // the code is of one that came later
	}
	switch {
	case !known:
		return []profile.Frame{inlinedUnread, frame}
	case c == nil:
	case !c.baseline:
		if at.called && r != nil {
			at.body = r.body(c, at.pc+1)
		}
		return c.frames(f, at, frame)
	case f.unoptimised != nil && c.bytecode == f.unoptimised.bytecode:
		if offset, ok := f.unoptimised.sizes.offset(f.unoptimised.code, c.positions.table, int(at.pc-c.begin)); ok {
			if p, ok := f.unoptimised.positions.find(offset); ok {
				frame.Line = f.lines.line(p.offset())
			}
		}
	}
	return []profile.Frame{frame}
}

// codeOf is the code of a function that a sample saw at a pc, nil where there
// is none any more. It is not known where other code of the same function has
// come to lie there since it was looked at: samples may be of either.
func (n *Namer) codeOf(f *photographed, what, pc uint64, r *Runtime) (c *code, known bool) {
	seen := n.findCode(what, pc)
	if seen == nil {
		if r == nil {
			return nil, true
		}
		return n.lookAtCode(r, what, pc), true
	}
	if r == nil {
		return seen, true
	}
	r.mu.Lock()
	now := r.codeAt(pc)
	r.mu.Unlock()
	if now == nil || !now.of(f) || now.sameAs(seen) {
		return seen, true
	}
	n.keepCode(what, pc, now)
	return nil, false
}

// of tells whether code may be of a function.
func (c *code) of(f *photographed) bool {
	if c.baseline {
		return f.unoptimised == nil || f.unoptimised.bytecode == c.bytecode
	}
	return c.function.is(f)
}

// frames gives what runs at a place in optimised code, which must be of the function.
func (c *code) frames(f *photographed, at spot, frame profile.Frame) []profile.Frame {
	alone := []profile.Frame{frame}
	if !c.function.is(f) {
		return alone
	}
	all, ok := c.runsAt(at)
	if !ok && len(c.calls) > 0 {
		return []profile.Frame{inlinedUnread, frame}
	}
	if !ok {
		return alone
	}
	frames := make([]profile.Frame, 0, len(all))
	for _, run := range all {
		if run.literal >= 0 {
			if inlined := &c.inlined[run.literal]; inlined.known {
				frames = append(frames, inlined.frame(run.position))
			} else {
				frames = append(frames, inlinedUnread)
			}
			continue
		}
		if !run.position.external() {
			frame.Line = c.function.lines.line(run.position.offset())
		}
		return append(frames, frame)
	}
	return alone
}

// is tells whether a function is the one photographed, which may have moved since.
func (l *located) is(f *photographed) bool {
	if l.place() == f.place() {
		return !f.contradicts(&l.function)
	}
	return l.name == f.name && l.start == f.start && (l.lines == nil || f.file == "" || l.lines.file == f.file)
}

// frame is a call of the function that was inlined.
func (l *located) frame(p sourcePosition) profile.Frame {
	frame := profile.Frame{Kind: profile.KindV8, Function: shown(l.name), Inlined: true}
	if l.lines != nil {
		frame.File, frame.StartLine = l.lines.file, l.lines.line(l.start)
		if !p.external() {
			frame.Line = l.lines.line(p.offset())
		}
	}
	return frame
}

func shown(name string) string {
	if name == "" {
		return anonymous
	}
	return name
}
