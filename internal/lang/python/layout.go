package python

import "fmt"

// activation is how the frames of one native activation of the evaluation
// function are told from those of the next: enum activation of python.h.
type activation uint32

const (
	calls          activation = iota // one frame for each
	entries                          // likewise, and an entry record in each
	entriesToFlags                   // an entry record in each; its last frame is flagged
	entriesToShims                   // an entry record in each; a shim ends its frames
	shims                            // a shim in each ends its frames
)

// layout is where a version of CPython keeps things: bytes from the beginning
// of what the name begins with.
type layout struct {
	Activation activation

	Key, Interpreters      uint32 // of _PyRuntime: autoTSSkey, interpreters.head
	Current                uint32 // likewise: the thread state that holds the GIL, 3.7 to 3.11
	NextInterpreter        uint32 // of an interpreter's state: next
	Threads                uint32 // likewise: the first thread's state
	NextThread             uint32 // of a thread's state: next
	ThreadPointer          uint32 // likewise: thread_id, which is pthread_self
	Top                    uint32 // likewise: the innermost frame, or where an entry record tells it
	Entry                  uint32 // likewise: the innermost entry record
	EntryFrame             uint32 // of an entry record: its innermost frame
	EntryPrevious          uint32
	FrameCode              uint32
	FramePrevious          uint32
	FrameInstruction       uint32 // last executed, or being executed
	FrameEnd               uint32 // the byte that tells an activation's last frame
	CodeFirstLine          uint32
	CodeFile               uint32
	CodeName               uint32 // qualified since 3.11
	CodeLines              uint32 // the table of lines
	CodeBytes              uint32 // where instructions begin, since 3.11
	StringLength           uint32
	StringState            uint32 // the word with the two fields below
	StringASCII            uint32 // characters of a string that is all ASCII
	StringOther            uint32 // of others
	KindBit, ASCIIBit      uint32 // lowest bit of kind, bytes a character; bit that tells ASCII
	BytesLength, BytesData uint32
	Type                   uint32 // of an object: its type
}

// The versions whose layouts are known.
const (
	firstMinor = 6
	lastMinor  = 14

	firstOwnStates = 12 // whose threads tell the state of the interpreter that they are in
	firstQualified = 11 // whose code objects know their qualified names
)

// layoutOf finds the layout of 3.minor.
func layoutOf(minor int) (layout, error) {
	if l, ok := layouts[minor]; ok {
		return l, nil
	}
	return layout{}, fmt.Errorf("the layout of CPython 3.%d is not known: atys walks 3.%d to 3.%d", minor, firstMinor, lastMinor)
}
