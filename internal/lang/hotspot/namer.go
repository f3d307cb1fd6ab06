package hotspot

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// What a frame's what says, beside an address; enum hotspot_kind.
const (
	kindShift = 48

	kindCompiled = iota - 1
	kindInterpreted
	kindStub
	kindCut
)

// placeBits are those of an interpreted function's where that tell its bytecode;
// the others are of its identity. HOTSPOT_PLACE_BITS.
const placeBits = 20

// Namer names the functions of JVMs. It keeps what it learned of one as long
// as it is asked about it. The zero value is ready.
type Namer struct {
	mu   sync.Mutex       // guards last
	last map[int]*Process // of a process that has exited since
	now  func() time.Time // nil: time.Now
}

// keepLast is how many processes are remembered by the namer itself.
const keepLast = 64

// Name gives the frames of an activation.
func (n *Namer) Name(a lang.Activation, of lang.Walked) []profile.Frame {
	p := n.process(a.PID, of)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim()
	address := a.What & (1<<kindShift - 1)
	switch a.What >> kindShift {
	case kindCompiled:
		return p.compiledFrames(compilation{address, uint32(a.Where >> 32)}, uint32(a.Where))
	case kindInterpreted:
		return p.interpretedFrame(identified{address, a.Where >> placeBits}, a.Where&(1<<placeBits-1))
	case kindStub:
		return p.stub(address)
	case kindCut:
		return []profile.Frame{{Function: "[older frames of a parked virtual thread]", Kind: profile.KindJavaCompiled}}
	}
	return nil
}

// Look reads the names of a function that a walk saw just now: when the window
// is cut, it may be gone.
func (n *Namer) Look(p lang.Photograph, of lang.Walked) {
	process := n.process(p.PID, of)
	if process == nil {
		return
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	process.trim()
	process.looking.left = process.within(process.looking.rest(n.clock()), func() { process.look(p) })
}

func (p *Process) look(at lang.Photograph) {
	address, where := at.What&(1<<kindShift-1), at.Values[0]
	switch at.What >> kindShift {
	case kindCompiled:
		p.meet(compilation{address, uint32(where >> 32)})
	case kindInterpreted:
		p.interpretedFrame(identified{address, where >> placeBits}, where&(1<<placeBits-1))
	}
}

func (n *Namer) clock() time.Time {
	if n.now == nil {
		return time.Now()
	}
	return n.now()
}

// allowance bounds what all photographs of one JVM may cost in a second: those
// of all processes are looked at in turn, and a window's end waits for them.
type allowance struct {
	since time.Time
	left  int
}

// maxLooking is what may be looked at in a second, as meter counts: it takes some
// 0.2 of that. All that a javac compiles while it starts is 450 MB. What is not
// looked at is named at the window's end, if it is still there.
const maxLooking = 1 << 30

func (a *allowance) rest(now time.Time) int {
	if now.Sub(a.since) >= time.Second {
		*a = allowance{now, maxLooking}
	}
	return a.left
}

// process finds the JVM that was walked. One that exited before its last window
// was cut is remembered: what was named of it before has the same name still.
func (n *Namer) process(pid int, of lang.Walked) *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := of.(*Process)
	if !ok {
		return n.last[pid]
	}
	if n.last[pid] != p {
		if n.last == nil || len(n.last) >= keepLast {
			n.last = map[int]*Process{}
		}
		n.last[pid] = p
	}
	return p
}

// interpretedFrame names an interpreted function, if it is still the one that
// was sampled, or was when it was read. Where classes come and go, a Method may
// come to lie where another was whose identity is as short: which of them a
// sample saw nobody can tell then.
func (p *Process) interpretedFrame(of identified, place uint64) []profile.Frame {
	m := p.met(of)
	now, there := p.identityAt(of.address)
	switch {
	case there && short(now) == of.identity && (m == nil || m.identity != now):
		read := p.read(of.address, now)
		if m != nil || read == nil {
			return nil
		}
		m = read
	case m == nil:
		return nil
	}
	at := -1
	if place += m.constant; place >= m.bytecode {
		at = int(place - m.bytecode)
	}
	return []profile.Frame{m.frame(profile.KindJavaInterpreted, at)}
}

const (
	keepMethods     = 1 << 15 // of one JVM: some 200 bytes each
	keepMethodBytes = 1 << 24 // read since all were dropped
	keepAtOnce      = 4       // of one address
)

// met finds a Method that was sampled among those that were read.
func (p *Process) met(of identified) *method {
	for _, m := range p.methods[of.address] {
		if short(m.identity) == of.identity {
			return m
		}
	}
	return nil
}

// read reads a Method that has an identity, and keeps it.
func (p *Process) read(address, identity uint64) *method {
	m, ok := p.readMethod(address)
	if !ok || m.identity != identity || !p.m.spend(0) {
		return nil
	}
	p.methodBytes += m.bytes()
	others := slices.DeleteFunc(p.methods[address], func(o *method) bool { return short(o.identity) == short(identity) })
	p.methods[address] = append([]*method{m}, others[:min(len(others), keepAtOnce-1)]...)
	return m
}

// trim drops Methods when they are too many, or too large with all that has their
// texts. Nothing of that may be in use.
func (p *Process) trim() {
	if p.methodBytes > keepMethodBytes {
		p.forget()
		p.methodBytes = 0
		clear(p.methods)
	}
	if len(p.methods) > keepMethods {
		clear(p.methods)
	}
}

// known reads a Method that compiled code refers to. The text of its names is
// kept once for each identity.
func (p *Process) known(address uint64) *method {
	identity, ok := p.identityAt(address)
	if !ok {
		return nil
	}
	for _, m := range p.methods[address] {
		if m.identity == identity {
			return m
		}
	}
	return p.read(address, identity)
}

// identityAt reads no more of a Method than its identity.
func (r *reader) identityAt(address uint64) (uint64, bool) {
	l := &r.l
	constant, ok1 := r.m.u64(address + uint64(l.MethodConstant))
	pool, ok2 := r.m.u64(constant + uint64(l.ConstantPool))
	var index [2]byte
	if !ok1 || !ok2 || !r.m.read(index[:], constant+uint64(l.ConstantName)) {
		return 0, false
	}
	name, ok1 := r.slot(pool, uint32(le.Uint16(index[:])))
	holder, ok2 := r.m.u64(pool + uint64(l.PoolHolder))
	class, ok3 := r.m.u64(holder + uint64(l.KlassName))
	if !ok1 || !ok2 || !ok3 {
		return 0, false
	}
	source, _ := r.slot(pool, r.sourceSlot(pool, holder))
	var marks [3]uint64
	for i, symbol := range []uint64{name, class, source} {
		if i == 2 && symbol == 0 {
			break // classes need not tell their file
		}
		begins, ok := r.m.u64(symbol)
		if !ok {
			return 0, false
		}
		marks[i] = l.mark(symbol, begins)
	}
	return identityOf(marks[0], marks[1], marks[2]), true
}

// stub names code that is no function, by what the JVM calls it.
func (p *Process) stub(blob uint64) []profile.Frame {
	name := p.stubs[blob]
	if name == "" {
		at, ok1 := p.m.u64(blob + uint64(p.l.blobName))
		text, ok2 := p.m.text(at, maxName)
		if !ok1 || !ok2 || text == "" {
			return nil
		}
		text, _ = decodeName([]byte(text))
		name = fmt.Sprintf("[%s]", strings.TrimSuffix(text, " blob"))
		if p.stubs == nil || len(p.stubs) > 1<<12 {
			p.stubs = map[uint64]string{}
		}
		p.stubs[blob] = name
	}
	return []profile.Frame{{Function: name, Kind: profile.KindJIT, Class: profile.ClassRuntime}}
}
