package wire

import (
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// dictionary builds the message of that name. All its numbers are in the order
// of first use, so that what is needed to understand an entry comes before it.
type dictionary struct {
	message   *atysv1.Dictionary
	strings   map[string]uint32
	locations map[profile.Hash]uint32
	nodes     map[profile.Hash]uint32 // plus one: 0 is none
}

// place is a location of a dictionary.
type place struct {
	number uint32
	hash   profile.Hash
}

func newDictionary() *dictionary {
	return &dictionary{
		message:   &atysv1.Dictionary{Strings: [][]byte{nil}},
		strings:   map[string]uint32{"": 0},
		locations: map[profile.Hash]uint32{},
		nodes:     map[profile.Hash]uint32{},
	}
}

func (d *dictionary) string(s string) uint32 {
	number, ok := d.strings[s]
	if !ok {
		number = uint32(len(d.message.Strings))
		d.strings[s] = number
		d.message.Strings = append(d.message.Strings, []byte(s))
	}
	return number
}

func (d *dictionary) location(l profile.Location, names []profile.Frame) place {
	return d.place(profile.Place{Hash: l.Hash(), Location: l, Names: names})
}

func (d *dictionary) place(of profile.Place) place {
	p := place{uint32(len(d.message.Locations)), of.Hash}
	if number, ok := d.locations[of.Hash]; ok {
		p.number = number
		return p
	}
	l := of.Location
	m := &atysv1.Location{Kind: uint32(l.Kind), BuildId: d.string(l.BuildID), Offset: l.Offset,
		Name: d.string(l.Name), File: d.string(l.File), Line: uint32(l.Line)}
	for _, f := range of.Names {
		m.Names = append(m.Names, &atysv1.Frame{Function: d.string(f.Function), Linkage: d.string(f.Linkage), File: d.string(f.File),
			Line: uint32(f.Line), StartLine: uint32(f.StartLine), Mapping: d.string(f.Mapping), Kind: uint32(f.Kind), Class: uint32(f.Class), Inlined: f.Inlined})
	}
	d.locations[of.Hash] = p.number
	d.message.Locations = append(d.message.Locations, m)
	return p
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
	number := uint32(len(d.message.Nodes)) + 1
	m := &atysv1.Node{Location: location, End: uint32(end)}
	if caller != 0 {
		m.Caller = number - caller
	}
	d.nodes[hash] = number
	d.message.Nodes = append(d.message.Nodes, m)
	return number
}
