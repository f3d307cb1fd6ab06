package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// A request is put together of parts that are compressed beforehand, so that who
// sends for a thousand agents takes little of the machine that it measures:
//
//	its series | what explains its stacks, or not | its stacks, and the window but for its end | the window's end: run and start
//
// Files of gzip that follow each other are one, and so are fields of a message.

// packed are the middle parts of a request.
type packed struct {
	gzip       []byte
	size       int // before it was compressed
	dictionary []byte
}

// Numbers of the fields that are written here.
const (
	requestSeries, requestStacks, requestWindows, requestDictionary, requestIfUnknown = 1, 2, 3, 4, 5
	windowRun, windowStart                                                            = 3, 4
)

// endSize is what the end of a window takes.
var endSize = len(windowEnd(profile.Run{}, time.Unix(0, 0)))

func windowEnd(run profile.Run, start time.Time) []byte {
	end := protowire.AppendTag(nil, windowRun, protowire.BytesType)
	end = protowire.AppendBytes(end, run[:])
	end = protowire.AppendTag(end, windowStart, protowire.Fixed64Type)
	return protowire.AppendFixed64(end, uint64(start.UnixNano()))
}

func pack(s *atysv1.Spooled) (packed, error) {
	w := proto.CloneOf(s.GetWindow())
	w.Run, w.StartUnixNano = nil, 0
	body, err := proto.Marshal(w)
	if err != nil {
		return packed{}, err
	}
	m := protowire.AppendTag(nil, requestStacks, protowire.BytesType)
	m = protowire.AppendBytes(m, s.GetStacks())
	m = protowire.AppendTag(m, requestWindows, protowire.BytesType)
	m = protowire.AppendVarint(m, uint64(len(body)+endSize))
	m = append(m, body...)
	d := protowire.AppendBytes(protowire.AppendTag(nil, requestDictionary, protowire.BytesType), s.GetDictionary())
	return packed{compressed(m), len(m), compressed(d)}, nil
}

// packSeries is the first part of an instance's requests.
func packSeries(s *atysv1.Series) ([]byte, error) {
	body, err := proto.Marshal(s)
	if err != nil {
		return nil, err
	}
	m := protowire.AppendTag(nil, requestSeries, protowire.BytesType)
	return compressed(protowire.AppendBytes(m, body)), nil
}

// explains is what explains all of a window's stacks, in case they are unknown or
// anyway.
func (p packed) explains(ifUnknown bool) []byte {
	if !ifUnknown {
		return p.dictionary
	}
	return slices.Concat(stored(protowire.AppendVarint(protowire.AppendTag(nil, requestIfUnknown, protowire.VarintType), 1)), p.dictionary)
}

// request is one window of one instance, with what explains its stacks.
func (p packed) request(series, explains []byte, run profile.Run, start time.Time) []byte {
	return slices.Concat(series, explains, p.gzip, stored(windowEnd(run, start)))
}

func compressed(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data) // a buffer takes all
	_ = z.Close()
	return b.Bytes()
}

// stored is a file of gzip that is not compressed.
func stored(data []byte) []byte {
	file := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1} // no name, no time; one block, the last
	file = binary.LittleEndian.AppendUint16(file, uint16(len(data)))
	file = binary.LittleEndian.AppendUint16(file, ^uint16(len(data)))
	file = append(file, data...)
	file = binary.LittleEndian.AppendUint32(file, crc32.ChecksumIEEE(data))
	return binary.LittleEndian.AppendUint32(file, uint32(len(data)))
}
