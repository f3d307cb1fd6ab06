package pprof

import (
	"encoding/binary"
	"iter"
)

// messages walks the fields of a protobuf message that hold bytes: messages
// and strings. What is no protobuf ends the walk.
func messages(data []byte) iter.Seq2[uint64, []byte] {
	const varint, fixed64, lengthDelimited, fixed32 = 0, 1, 2, 5
	return func(yield func(uint64, []byte) bool) {
		for len(data) > 0 {
			tag, n := binary.Uvarint(data)
			if n <= 0 {
				return
			}
			data = data[n:]
			skip := uint64(0)
			switch tag & 7 {
			case varint:
				_, n := binary.Uvarint(data)
				skip = uint64(max(n, 0))
			case fixed64:
				skip = 8
			case fixed32:
				skip = 4
			case lengthDelimited:
				length, n := binary.Uvarint(data)
				if n <= 0 || length > uint64(len(data)-n) {
					return
				}
				data = data[n:]
				if !yield(tag>>3, data[:length]) {
					return
				}
				skip = length
			}
			if skip > uint64(len(data)) {
				return
			}
			data = data[skip:]
		}
	}
}

// extraFields finds the fields that are ours alone.
func extraFields(data []byte) (notes []string, timed []byte) {
	for field, value := range messages(data) {
		switch field {
		case noteField:
			notes = append(notes, string(value))
		case timedField:
			timed = value
		}
	}
	return notes, timed
}

func appendBytes(b []byte, field uint64, value []byte) []byte {
	const lengthDelimited = 2
	b = binary.AppendUvarint(b, field<<3|lengthDelimited)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}
