package hotspot

import (
	"fmt"
	"strings"
	"sync"

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

// Namer names the functions of JVMs. It keeps what it learned of one as long
// as it is asked about it. The zero value is ready.
type Namer struct {
	mu   sync.Mutex       // guards last
	last map[int]*Process // of a process that has exited since
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
	address := a.What & (1<<kindShift - 1)
	switch a.What >> kindShift {
	case kindCompiled:
		return p.compiledFrames(compilation{address, uint32(a.Where >> 32)}, uint32(a.Where))
	case kindInterpreted:
		return p.interpretedFrame(identified{address, uint16(a.Where >> kindShift)}, a.Where&(1<<kindShift-1))
	case kindStub:
		return p.stub(address)
	case kindCut:
		return []profile.Frame{{Function: "[older frames of a parked virtual thread]", Kind: profile.KindJavaCompiled}}
	}
	return nil
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
// was sampled.
func (p *Process) interpretedFrame(of identified, bytecode uint64) []profile.Frame {
	m := p.methods[of]
	if m == nil {
		read, ok := p.readMethod(of.address)
		if !ok || read.identity != of.identity {
			return nil
		}
		m = p.keep(of, read)
	}
	at := -1
	if bytecode >= m.bytecode {
		at = int(bytecode - m.bytecode)
	}
	return []profile.Frame{m.frame(profile.KindJavaInterpreted, at)}
}

// keepMethods bounds what is kept of one JVM: some 300 bytes each.
const keepMethods = 1 << 15

func (p *Process) keep(of identified, m *method) *method {
	if len(p.methods) >= keepMethods {
		clear(p.methods)
	}
	p.methods[of] = m
	return m
}

// known reads a Method that compiled code refers to. The text of its names is
// kept once for each identity.
func (p *Process) known(address uint64) *method {
	identity, ok := p.identityOf(address)
	if !ok {
		return nil
	}
	of := identified{address, identity}
	if m := p.methods[of]; m != nil {
		return m
	}
	m, ok := p.readMethod(address)
	if !ok || m.identity != identity {
		return nil
	}
	return p.keep(of, m)
}

// identityOf reads no more of a Method than its identity.
func (p *Process) identityOf(address uint64) (uint16, bool) {
	l := &p.l
	constant, ok1 := p.m.u64(address + uint64(l.MethodConstant))
	pool, ok2 := p.m.u64(constant + uint64(l.ConstantPool))
	var index [2]byte
	if !ok1 || !ok2 || !p.m.read(index[:], constant+uint64(l.ConstantName)) {
		return 0, false
	}
	name, ok1 := p.slot(pool, uint32(le.Uint16(index[:])))
	holder, ok2 := p.m.u64(pool + uint64(l.PoolHolder))
	class, ok3 := p.m.u64(holder + uint64(l.KlassName))
	if !ok1 || !ok2 || !ok3 {
		return 0, false
	}
	nameBegins, ok1 := p.m.u64(name)
	classBegins, ok2 := p.m.u64(class)
	return l.identity(name, nameBegins, class, classBegins), ok1 && ok2
}

// stub names code that is no function, by what the JVM calls it.
func (p *Process) stub(blob uint64) []profile.Frame {
	name := p.stubs[blob]
	if name == "" {
		at, ok1 := p.m.u64(blob + p.l.blobName)
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
