package wire

import (
	"math"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// maxDepth bounds a stack: walks keep half of it.
const maxDepth = 4096

// lesson is a forest that is being read.
type lesson struct {
	profile.Forest
	depths []int32
}

// Learn checks a dictionary, and hashes what it holds.
func Learn(d *atysv1.Dictionary) (*profile.Forest, error) {
	l := &lesson{}
	texts := make([]string, len(d.GetStrings())) // each once, however many name it
	for i, s := range d.GetStrings() {
		texts[i] = string(s)
	}
	text := func(number uint32) (string, error) {
		if int64(number) >= int64(len(texts)) {
			return "", malformed("string %d of %d", number, len(texts))
		}
		return texts[number], nil
	}
	l.Places, l.Calls = make([]profile.Place, 0, len(d.GetLocations())), make([]profile.Call, 0, len(d.GetNodes()))
	l.depths = make([]int32, 0, len(d.GetNodes()))
	for _, m := range d.GetLocations() {
		p, err := learnPlace(m, text)
		if err != nil {
			return nil, err
		}
		l.Places = append(l.Places, p)
	}
	for _, m := range d.GetNodes() {
		if err := l.learnNode(m); err != nil {
			return nil, err
		}
	}
	return &l.Forest, nil
}

func learnPlace(m *atysv1.Location, text func(uint32) (string, error)) (p profile.Place, err error) {
	if m.GetKind() > math.MaxUint8 || m.GetLine() > math.MaxInt32 {
		return p, malformed("a location of kind %d, line %d", m.GetKind(), m.GetLine())
	}
	p.Location = profile.Location{Kind: profile.Kind(m.GetKind()), Offset: m.GetOffset(), Line: int(m.GetLine())}
	read := reader{text: text}
	p.Location.BuildID, p.Location.Name, p.Location.File = read.string(m.GetBuildId()), read.string(m.GetName()), read.string(m.GetFile())
	for _, f := range m.GetNames() {
		if f.GetKind() > math.MaxUint8 || f.GetClass() > math.MaxUint8 || f.GetLine() > math.MaxInt32 || f.GetStartLine() > math.MaxInt32 {
			return p, malformed("a frame of kind %d, class %d, lines %d and %d", f.GetKind(), f.GetClass(), f.GetLine(), f.GetStartLine())
		}
		p.Names = append(p.Names, profile.Frame{
			Function: read.string(f.GetFunction()), Linkage: read.string(f.GetLinkage()), File: read.string(f.GetFile()),
			Line: int(f.GetLine()), StartLine: int(f.GetStartLine()), Mapping: read.string(f.GetMapping()),
			Kind: profile.Kind(f.GetKind()), Class: profile.Class(f.GetClass()), Inlined: f.GetInlined(),
		})
	}
	p.Hash = p.Location.Hash()
	return p, read.err
}

// reader keeps the first error of many reads.
type reader struct {
	text func(uint32) (string, error)
	err  error
}

func (r *reader) string(number uint32) string {
	s, err := r.text(number)
	if r.err == nil {
		r.err = err
	}
	return s
}

func (l *lesson) learnNode(m *atysv1.Node) error {
	number := len(l.Calls)
	if m.GetCaller() == 0 {
		if m.GetEnd() > math.MaxUint8 {
			return malformed("a walk that ended by %d", m.GetEnd())
		}
		end := profile.End(m.GetEnd())
		l.add(profile.Call{Hash: end.Hash(), Caller: -1, Place: -1, End: end}, 0)
		return nil
	}
	if int64(m.GetCaller()) > int64(number) || int64(m.GetLocation()) >= int64(len(l.Places)) {
		return malformed("node %d: its caller is %d before it, its location %d of %d", number, m.GetCaller(), m.GetLocation(), len(l.Places))
	}
	caller := number - int(m.GetCaller())
	depth := l.depths[caller] + 1
	if depth > maxDepth {
		return malformed("a stack of more than %d calls", maxDepth)
	}
	place := int(m.GetLocation())
	l.add(profile.Call{Hash: l.Calls[caller].Hash.Call(l.Places[place].Hash), Caller: caller, Place: place}, depth)
	return nil
}

func (l *lesson) add(n profile.Call, depth int32) {
	l.Calls, l.depths = append(l.Calls, n), append(l.depths, depth)
}
