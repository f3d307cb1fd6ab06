package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/internal/profile"
)

// maxDepth bounds a stack: walks keep half of it.
const maxDepth = 4096

// lesson is a forest that is being read.
type lesson struct {
	profile.Forest
	texts  []string // each once, however many name it
	depths []int32
	left   int // parts that may still come
}

// Learn reads the bytes of a Dictionary, checks them, and hashes what they hold.
// It reads them as they lie: as messages its calls would be memory of their own
// each, and while a fleet comes up a server reads millions of them. Other
// programs read and write the same bytes as the message.
func Learn(dictionary []byte) (*profile.Forest, error) {
	l := &lesson{left: MaxParts}
	ordered, err := l.makeRoom(dictionary)
	if err != nil {
		return nil, err
	}
	passes := []learners{{dictionaryStrings: l.learnString}, {dictionaryLocations: l.learnPlace}, {dictionaryNodes: l.learnNode}}
	if ordered {
		passes = []learners{{dictionaryStrings: l.learnString, dictionaryLocations: l.learnPlace, dictionaryNodes: l.learnNode}}
	}
	for _, learn := range passes {
		if err := learn.from(dictionary); err != nil {
			return nil, err
		}
	}
	return &l.Forest, nil
}

// learners read parts of a dictionary, by their number; nil: these are left out.
type learners [dictionaryNodes + 1]func(part []byte) error

func (l *learners) from(dictionary []byte) error {
	for f := (fields{data: dictionary}); f.next(); {
		if f.kind != protowire.BytesType || int(f.number) >= len(l) || l[f.number] == nil {
			continue
		}
		if err := l[f.number](f.bytes); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom counts what a dictionary has, before any of it is believed. Whoever
// writes one in order has all parts come after those that they name.
func (l *lesson) makeRoom(dictionary []byte) (ordered bool, err error) {
	var counts [dictionaryNodes + 1]int
	last := protowire.Number(0)
	ordered = true
	f := fields{data: dictionary}
	for f.next() {
		if f.kind == protowire.BytesType && int(f.number) < len(counts) {
			counts[f.number]++
			ordered, last = ordered && f.number >= last, f.number
			if err := l.part(); err != nil {
				return false, err
			}
		}
	}
	l.texts, l.Places = make([]string, 0, counts[dictionaryStrings]), make([]profile.Place, 0, counts[dictionaryLocations])
	l.Calls, l.depths = make([]profile.Call, 0, counts[dictionaryNodes]), make([]int32, 0, counts[dictionaryNodes])
	return ordered, f.err
}

// part takes one off those that may come.
func (l *lesson) part() error {
	if l.left--; l.left < 0 {
		return malformed("more than %d parts in one dictionary", MaxParts)
	}
	return nil
}

func (l *lesson) learnString(text []byte) error {
	l.texts = append(l.texts, string(text))
	return nil
}

func (l *lesson) learnPlace(location []byte) error {
	var p profile.Place
	f := reader{fields: fields{data: location}, texts: l.texts}
	for f.next() {
		switch f.number {
		case locationKind:
			p.Location.Kind = profile.Kind(f.small(math.MaxUint8))
		case locationBuildID:
			p.Location.BuildID = f.text()
		case locationOffset:
			p.Location.Offset = f.varint()
		case locationName:
			p.Location.Name = f.text()
		case locationFile:
			p.Location.File = f.text()
		case locationLine:
			p.Location.Line = f.small(math.MaxInt32)
		case locationNames:
			if f.kind != protowire.BytesType {
				continue
			}
			frame, err := l.frame(f.bytes)
			if err != nil {
				return err
			}
			p.Names = append(p.Names, frame)
		}
	}
	p.Hash = p.Location.Hash()
	l.Places = append(l.Places, p)
	return f.err
}

func (l *lesson) frame(data []byte) (frame profile.Frame, err error) {
	if err := l.part(); err != nil {
		return frame, err
	}
	f := reader{fields: fields{data: data}, texts: l.texts}
	for f.next() {
		switch f.number {
		case frameFunction:
			frame.Function = f.text()
		case frameLinkage:
			frame.Linkage = f.text()
		case frameFile:
			frame.File = f.text()
		case frameLine:
			frame.Line = f.small(math.MaxInt32)
		case frameStartLine:
			frame.StartLine = f.small(math.MaxInt32)
		case frameMapping:
			frame.Mapping = f.text()
		case frameKind:
			frame.Kind = profile.Kind(f.small(math.MaxUint8))
		case frameClass:
			frame.Class = profile.Class(f.small(math.MaxUint8))
		case frameInlined:
			frame.Inlined = f.varint() != 0
		}
	}
	return frame, f.err
}

func (l *lesson) learnNode(node []byte) error {
	number, back, location, end := len(l.Calls), 0, 0, 0
	f := reader{fields: fields{data: node}}
	for f.next() {
		switch f.number {
		case nodeCaller:
			back = f.small(math.MaxUint32)
		case nodeLocation:
			location = f.small(math.MaxUint32)
		case nodeEnd:
			end = f.small(math.MaxUint32)
		}
	}
	switch {
	case f.err != nil:
		return f.err
	case back == 0 && end > math.MaxUint8:
		return malformed("a walk that ended by %d", end)
	case back == 0:
		l.add(profile.Call{Hash: profile.End(end).Hash(), Caller: -1, Place: -1, End: profile.End(end)}, 0)
		return nil
	case back > number || location >= len(l.Places):
		return malformed("node %d: its caller is %d before it, its location %d of %d", number, back, location, len(l.Places))
	}
	caller := number - back
	depth := l.depths[caller] + 1
	if depth > maxDepth {
		return malformed("a stack of more than %d calls", maxDepth)
	}
	l.add(profile.Call{Hash: l.Calls[caller].Hash.Call(l.Places[location].Hash), Caller: caller, Place: location}, depth)
	return nil
}

func (l *lesson) add(n profile.Call, depth int32) {
	l.Calls, l.depths = append(l.Calls, n), append(l.depths, depth)
}
