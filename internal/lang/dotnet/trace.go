package dotnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
)

// A trace is what the runtime's EventPipe writes (NetTraceFormat.md of
// microsoft/perfview): "Nettrace", then objects.
//
//	object   begin(5) type(5 null(1) version minimum length name end(6)) content end(6)
//	block    length, padding up to a multiple of 4 in the trace, then so many bytes:
//	         header (length, flags, two times), then events
//	event    head, compressed: what equals the event before is left out; payload
//
// A block of metadata has an event for each kind of event: its number, its
// provider and its id there.
const (
	traceMagic  = "Nettrace"
	objectMagic = "!FastSerialization.1"

	tagNull  = 1
	tagBegin = 5
	tagEnd   = 6

	headsCompressed = 1
)

var (
	errTrace      = errors.New("the answer of .NET is damaged")
	errTraceShort = errors.New("the answer of .NET ends in the middle")
	le            = binary.LittleEndian
)

// event is one event, and which kind it is of.
type event struct {
	provider string
	id       uint32
	payload  []byte
}

type eventKind struct {
	provider string
	id       uint32
}

// cursor reads bytes; what is beyond the end is zeros, and makes it short.
type cursor struct {
	data  []byte
	at    int
	short bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.data)-c.at {
		c.short, c.at = true, len(c.data)
		return nil
	}
	c.at += n
	return c.data[c.at-n : c.at]
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// damage says what is wrong where something else should be.
func (c *cursor) damage() error {
	if c.short {
		return errTraceShort
	}
	return errTrace
}

// varint reads a number of 7 bits a byte, the lowest first.
func (c *cursor) varint() (v uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := c.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	return v
}

// text reads UTF-16 up to a zero.
func (c *cursor) text() string {
	var units []uint16
	for !c.short {
		u := c.uint16()
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return string(utf16.Decode(units))
}

// eachEvent calls a function for each event of a trace. One that ends in the
// middle still gives the events before.
func eachEvent(trace []byte, each func(event)) error {
	c := cursor{data: trace}
	if string(c.take(len(traceMagic))) != traceMagic || string(c.take(int(c.uint32()))) != objectMagic {
		return errTrace
	}
	kinds := map[uint32]eventKind{}
	for {
		switch tag := c.byte(); {
		case c.short:
			return errTraceShort
		case tag == tagNull:
			return nil
		case tag != tagBegin:
			return errTrace
		}
		if err := readObject(&c, kinds, each); err != nil {
			return err
		}
	}
}

// readObject reads what follows the tag by which an object begins.
func readObject(c *cursor, kinds map[uint32]eventKind, each func(event)) error {
	if c.byte() != tagBegin || c.byte() != tagNull {
		return c.damage()
	}
	c.take(8) // versions
	name := string(c.take(int(c.uint32())))
	if c.byte() != tagEnd {
		return c.damage()
	}
	switch name {
	case "Trace":
		c.take(48) // clocks and the process
	case "MetadataBlock", "EventBlock", "StackBlock", "SPBlock":
		length := c.uint32()
		c.take(-c.at & 3)
		block := cursor{data: c.take(int(length))}
		switch name {
		case "MetadataBlock":
			eachOfBlock(&block, func(_ uint32, payload []byte) { addKind(kinds, payload) })
		case "EventBlock":
			eachOfBlock(&block, func(kind uint32, payload []byte) {
				if k, ok := kinds[kind]; ok {
					each(event{k.provider, k.id, payload})
				}
			})
		}
	default:
		return fmt.Errorf("%w: it holds a %.20q", errTrace, name)
	}
	if c.byte() != tagEnd {
		return c.damage()
	}
	return nil
}

// addKind takes what a metadata event tells.
func addKind(kinds map[uint32]eventKind, payload []byte) {
	c := cursor{data: payload}
	number, provider, id := c.uint32(), c.text(), c.uint32()
	if !c.short {
		kinds[number] = eventKind{provider, id}
	}
}

// head is of an event; what it leaves out is as in the one before.
type head struct {
	kind   uint32
	length uint32
}

// eachOfBlock calls a function with the kind and payload of each event.
func eachOfBlock(c *cursor, each func(kind uint32, payload []byte)) {
	length := int(c.uint16())
	flags := c.uint16()
	c.take(length - 4)
	var h head
	for !c.short && c.at < len(c.data) {
		if flags&headsCompressed != 0 {
			h.next(c)
		} else {
			h.whole(c)
		}
		payload := c.take(int(h.length))
		if c.short {
			return
		}
		each(h.kind&^(1<<31), payload) // the highest bit tells that it is sorted
		if flags&headsCompressed == 0 {
			c.take(-c.at & 3)
		}
	}
}

// next reads a compressed head. What is not needed is read over.
func (h *head) next(c *cursor) {
	flags := c.byte()
	if flags&1 != 0 {
		h.kind = uint32(c.varint())
	}
	if flags&2 != 0 {
		c.varint() // number in sequence
		c.varint() // thread that wrote it
		c.varint() // processor
	}
	if flags&4 != 0 {
		c.varint() // thread
	}
	if flags&8 != 0 {
		c.varint() // stack
	}
	c.varint() // time since the one before
	if flags&16 != 0 {
		c.take(16) // activity
	}
	if flags&32 != 0 {
		c.take(16) // the one related to it
	}
	if flags&128 != 0 {
		h.length = uint32(c.varint())
	}
}

// whole reads a head that is not compressed.
func (h *head) whole(c *cursor) {
	c.uint32() // size of all
	h.kind = c.uint32()
	c.take(4 + 8 + 8 + 4 + 4 + 8 + 16 + 16) // sequence, threads, processor, stack, time, activities
	h.length = c.uint32()
}
