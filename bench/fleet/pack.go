package main

import (
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
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
// Frames of zstd that follow each other are one, and so are fields of a message.

// packed are the middle parts of a request.
type packed struct {
	body       []byte
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
	return packed{compressed(m), packDictionary(s.GetDictionary())}, nil
}

func packDictionary(d []byte) []byte {
	return compressed(protowire.AppendBytes(protowire.AppendTag(nil, requestDictionary, protowire.BytesType), d))
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

// explains is a dictionary, in case the stacks are unknown or anyway.
func explains(dictionary []byte, ifUnknown bool) []byte {
	if !ifUnknown {
		return dictionary
	}
	return slices.Concat(stored(protowire.AppendVarint(protowire.AppendTag(nil, requestIfUnknown, protowire.VarintType), 1)), dictionary)
}

// request is one window of one instance, with what explains its stacks.
func (p packed) request(series, explains []byte, run profile.Run, start time.Time) []byte {
	return slices.Concat(series, explains, p.body, stored(windowEnd(run, start)))
}

// compressed is what agents make of it.
func compressed(data []byte) []byte { return packer().EncodeAll(data, nil) }

// stored is a frame that is not compressed: one block, the last.
func stored(data []byte) []byte {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, byte(len(data))} // one segment, whose size is this byte
	frame = append(frame, byte(len(data)<<3|1), byte(len(data)>>5), 0)
	return append(frame, data...)
}

// packer and unpacker may be used by many at once.
var packer = sync.OnceValue(func() *zstd.Encoder {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // there is nothing about it that could be wrong
	}
	return z
})

var unpacker = sync.OnceValue(func() *zstd.Decoder {
	z, err := zstd.NewReader(nil)
	if err != nil {
		panic(err) // there is nothing about it that could be wrong
	}
	return z
})
