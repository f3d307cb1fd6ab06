package dotnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"

	"atys.dev/atys/internal/unwind/cfi/cursor"
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

// reader reads the bytes of a trace.
type reader struct{ cursor.Cursor }

// readerOf reads some bytes from their beginning.
func readerOf(data []byte) reader { return reader{cursor.Cursor{Bytes: data}} }

// align goes to the next multiple of 4.
func (c *reader) align() { c.Take(uint64(-c.Pos & 3)) }

// damage says what is wrong where something else should be.
func (c *reader) damage() error {
	if c.Bad {
		return errTraceShort
	}
	return errTrace
}

// text reads UTF-16 up to a zero.
func (c *reader) text() string {
	var units []uint16
	for !c.Bad {
		u := c.U16()
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
	c := readerOf(trace)
	if string(c.Take(uint64(len(traceMagic)))) != traceMagic || string(c.Take(uint64(c.U32()))) != objectMagic {
		return errTrace
	}
	kinds := map[uint32]eventKind{}
	for {
		switch tag := c.U8(); {
		case c.Bad:
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
func readObject(c *reader, kinds map[uint32]eventKind, each func(event)) error {
	if c.U8() != tagBegin || c.U8() != tagNull {
		return c.damage()
	}
	c.Take(8) // versions
	name := string(c.Take(uint64(c.U32())))
	if c.U8() != tagEnd {
		return c.damage()
	}
	switch name {
	case "Trace":
		c.Take(48) // clocks and the process
	case "MetadataBlock", "EventBlock", "StackBlock", "SPBlock":
		length := c.U32()
		c.align()
		block := readerOf(c.Take(uint64(length)))
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
	if c.U8() != tagEnd {
		return c.damage()
	}
	return nil
}

// addKind takes what a metadata event tells.
func addKind(kinds map[uint32]eventKind, payload []byte) {
	c := readerOf(payload)
	number, provider, id := c.U32(), c.text(), c.U32()
	if !c.Bad {
		kinds[number] = eventKind{provider, id}
	}
}

// head is of an event; what it leaves out is as in the one before.
type head struct {
	kind   uint32
	length uint32
}

// eachOfBlock calls a function with the kind and payload of each event.
func eachOfBlock(c *reader, each func(kind uint32, payload []byte)) {
	length := int(c.U16())
	flags := c.U16()
	c.Take(uint64(length - 4))
	var h head
	for !c.Bad && c.Pos < len(c.Bytes) {
		if flags&headsCompressed != 0 {
			h.next(c)
		} else {
			h.whole(c)
		}
		payload := c.Take(uint64(h.length))
		if c.Bad {
			return
		}
		each(h.kind&^(1<<31), payload) // the highest bit tells that it is sorted
		if flags&headsCompressed == 0 {
			c.align()
		}
	}
}

// next reads a compressed head. What is not needed is read over.
func (h *head) next(c *reader) {
	flags := c.U8()
	if flags&1 != 0 {
		h.kind = uint32(c.ULEB())
	}
	if flags&2 != 0 {
		c.ULEB() // number in sequence
		c.ULEB() // thread that wrote it
		c.ULEB() // processor
	}
	if flags&4 != 0 {
		c.ULEB() // thread
	}
	if flags&8 != 0 {
		c.ULEB() // stack
	}
	c.ULEB() // time since the one before
	if flags&16 != 0 {
		c.Take(16) // activity
	}
	if flags&32 != 0 {
		c.Take(16) // the one related to it
	}
	if flags&128 != 0 {
		h.length = uint32(c.ULEB())
	}
}

// whole reads a head that is not compressed.
func (h *head) whole(c *reader) {
	c.U32() // size of all
	h.kind = c.U32()
	c.Take(4 + 8 + 8 + 4 + 4 + 8 + 16 + 16) // sequence, threads, processor, stack, time, activities
	h.length = c.U32()
}
