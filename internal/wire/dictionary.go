package wire

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/internal/profile"
)

// dictionary writes the message of that name, as Learn reads it. All its numbers
// are in the order of first use, so that what is needed to understand an entry
// comes before it.
type dictionary struct {
	strings   map[string]uint32
	locations map[profile.Hash]uint32
	nodes     map[profile.Hash]uint32 // plus one: 0 is none

	written [dictionaryNodes + 1][]byte // by the fields' numbers
	entry   []byte                      // that is being written, and the frame within it
	frame   []byte
}

// place is a location of a dictionary.
type place struct {
	number uint32
	hash   profile.Hash
}

func newDictionary() *dictionary {
	d := &dictionary{strings: map[string]uint32{"": 0}, locations: map[profile.Hash]uint32{}, nodes: map[profile.Hash]uint32{}}
	d.write(dictionaryStrings, nil)
	return d
}

// bytes is what was written; nil: no stack was.
func (d *dictionary) bytes() []byte {
	if len(d.written[dictionaryNodes]) == 0 {
		return nil
	}
	return slices.Concat(d.written[:]...)
}

func (d *dictionary) write(field protowire.Number, value []byte) {
	to := &d.written[field]
	*to = protowire.AppendBytes(protowire.AppendTag(*to, field, protowire.BytesType), value)
}

func (d *dictionary) string(s string) uint64 {
	number, ok := d.strings[s]
	if !ok {
		number = uint32(len(d.strings))
		d.strings[s] = number
		d.write(dictionaryStrings, []byte(s))
	}
	return uint64(number)
}

func (d *dictionary) location(l profile.Location, names []profile.Frame) place {
	return d.place(profile.Place{Hash: l.Hash(), Location: l, Names: names})
}

func (d *dictionary) place(of profile.Place) place {
	number, ok := d.locations[of.Hash]
	if !ok {
		number = uint32(len(d.locations))
		d.locations[of.Hash] = number
		d.writePlace(of)
	}
	return place{number, of.Hash}
}

func (d *dictionary) writePlace(p profile.Place) {
	l, e := p.Location, d.entry[:0]
	e = number(e, locationKind, uint64(l.Kind))
	e = number(e, locationBuildID, d.string(l.BuildID))
	e = number(e, locationOffset, l.Offset)
	e = number(e, locationName, d.string(l.Name))
	e = number(e, locationFile, d.string(l.File))
	e = number(e, locationLine, uint64(l.Line))
	for _, f := range p.Names {
		e = protowire.AppendBytes(protowire.AppendTag(e, locationNames, protowire.BytesType), d.writeFrame(f))
	}
	d.entry = e
	d.write(dictionaryLocations, e)
}

func (d *dictionary) writeFrame(f profile.Frame) []byte {
	e := d.frame[:0]
	e = number(e, frameFunction, d.string(f.Function))
	e = number(e, frameLinkage, d.string(f.Linkage))
	e = number(e, frameFile, d.string(f.File))
	e = number(e, frameLine, uint64(f.Line))
	e = number(e, frameStartLine, uint64(f.StartLine))
	e = number(e, frameMapping, d.string(f.Mapping))
	e = number(e, frameKind, uint64(f.Kind))
	e = number(e, frameClass, uint64(f.Class))
	e = number(e, frameInlined, protowire.EncodeBool(f.Inlined))
	d.frame = e
	return e
}

// number appends a field, unless it is zero.
func number(to []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return to
	}
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), value)
}

// stack adds a stack from its outermost call to its leaf, as far as it is new.
func (d *dictionary) stack(locations []place, s profile.Stack) profile.Hash {
	hash := s.End.Hash()
	number := d.node(hash, 0, 0, s.End)
	for i := len(s.Locations) - 1; i >= 0; i-- {
		l := locations[s.Locations[i]]
		hash = hash.Call(l.hash)
		number = d.node(hash, number, l.number, 0)
	}
	return hash
}

// call adds a call of a forest, and those that led to it, as far as they are
// new; numbers here are plus one.
func (d *dictionary) call(f *profile.Forest, i int) uint32 {
	c := &f.Calls[i]
	if number, ok := d.nodes[c.Hash]; ok {
		return number
	}
	if c.Caller < 0 {
		return d.node(c.Hash, 0, 0, c.End)
	}
	caller := d.call(f, c.Caller)
	return d.node(c.Hash, caller, d.place(f.Places[c.Place]).number, 0)
}

// node finds or adds a node; numbers here are plus one.
func (d *dictionary) node(hash profile.Hash, caller, location uint32, end profile.End) uint32 {
	if number, ok := d.nodes[hash]; ok {
		return number
	}
	added := uint32(len(d.nodes)) + 1
	d.nodes[hash] = added
	back := uint32(0)
	if caller != 0 {
		back = added - caller
	}
	d.writeNode(back, location, end)
	return added
}

func (d *dictionary) writeNode(back, location uint32, end profile.End) {
	e := number(d.entry[:0], nodeCaller, uint64(back))
	e = number(e, nodeLocation, uint64(location))
	e = number(e, nodeEnd, uint64(end))
	d.entry = e
	d.write(dictionaryNodes, e)
}
