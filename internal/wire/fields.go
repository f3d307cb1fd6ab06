package wire

import "google.golang.org/protobuf/encoding/protowire"

// Numbers of the fields of Dictionary and what it holds: see atysv1/atys.proto.
const (
	dictionaryStrings, dictionaryLocations, dictionaryNodes = 1, 2, 3

	locationKind, locationBuildID, locationOffset, locationName, locationFile, locationLine, locationNames = 1, 2, 3, 4, 5, 6, 7

	frameFunction, frameLinkage, frameFile, frameLine, frameStartLine, frameMapping, frameKind, frameClass, frameInlined = 1, 2, 3, 4, 5, 6, 7, 8, 9

	nodeCaller, nodeLocation, nodeEnd = 1, 2, 3
)

// fields reads a message's fields one after another. What it does not know its
// user leaves out, as with every message.
type fields struct {
	data []byte
	err  error

	// Of the field that was read last: one of number and bytes, by its kind.
	number protowire.Number
	kind   protowire.Type
	value  uint64
	bytes  []byte
}

// next reads the next one; false: there is none, or err says why.
func (f *fields) next() bool {
	if len(f.data) == 0 || f.err != nil {
		return false
	}
	n := 1
	if tag := f.data[0]; tag < 1<<7 { // as all are that we know
		f.number, f.kind = protowire.Number(tag>>3), protowire.Type(tag&7)
	} else if f.number, f.kind, n = protowire.ConsumeTag(f.data); n < 0 {
		return f.fail(n)
	}
	if !f.number.IsValid() { // as a message takes none
		f.err = malformed("a field has the number %d", f.number)
		return false
	}
	f.data = f.data[n:]
	switch f.kind {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(f.data)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(f.data)
	default:
		n = protowire.ConsumeFieldValue(f.number, f.kind, f.data)
	}
	if n < 0 {
		return f.fail(n)
	}
	f.data = f.data[n:]
	return true
}

func (f *fields) fail(code int) bool {
	f.err = malformed("%v", protowire.ParseError(code))
	return false
}

// reader reads fields that are numbers, of which some stand for strings. It keeps
// the first error of all.
type reader struct {
	fields
	texts []string
}

// varint is the last field, which has to be a number.
func (r *reader) varint() uint64 {
	if r.kind != protowire.VarintType {
		if r.err == nil {
			r.err = malformed("field %d is no number", r.number)
		}
		return 0
	}
	return r.value
}

// small is one of at most so much.
func (r *reader) small(most uint64) int {
	v := r.varint()
	if v > most {
		if r.err == nil {
			r.err = malformed("field %d is %d: at most %d is taken", r.number, v, most)
		}
		return 0
	}
	return int(v)
}

// text is the string that the last field stands for; the first of all is empty.
func (r *reader) text() string {
	v := r.varint()
	if v == 0 {
		return ""
	}
	if v >= uint64(len(r.texts)) {
		if r.err == nil {
			r.err = malformed("string %d of %d", v, len(r.texts))
		}
		return ""
	}
	return r.texts[v]
}
