package lang

import (
	"os"
	"strings"

	"atys.dev/atys/internal/profile"
)

// Mapped is the file of a runtime, mapped into a process: where a package for
// a language begins to find out what walks need to know.
type Mapped struct {
	PID  int
	Path string // as the process calls it
	// Bias is what to add to the file's own addresses.
	Bias uint64
	// Open opens the very file. The caller closes it.
	Open func() (*os.File, error)
	// Notes keep what the file tells for the next process that maps it; nil:
	// nothing is kept.
	Notes *Notes
}

// Walked is a runtime that walks know how to read.
type Walked interface {
	// Parameters are what they need for it, in the layout of their map.
	Parameters() any
}

// Known is a runtime of which walks need parameters, and naming its frames nothing.
type Known[P any] struct{ Needs P }

// Parameters are a *P.
func (k *Known[P]) Parameters() any { return &k.Needs }

// Photograph is what a walk copied of a function that it met for the first
// time; see photographs.h. What Values and Bytes hold, its language knows.
type Photograph struct {
	PID     int
	What    uint64 // as in the frames that show it
	Values  [8]uint64
	Lengths [4]uint32
	Bytes   []byte
}

// Text is a name in a photograph: what there was room for of length bytes that
// lie at a place. It is cut short with an ellipsis where it had more, and what
// is no text in it is replaced.
func (p *Photograph) Text(at, room int, length uint32) string {
	n := min(int(length), room, max(len(p.Bytes)-at, 0))
	if n <= 0 {
		return ""
	}
	text := strings.ToValidUTF8(string(p.Bytes[at:at+n]), "\ufffd")
	if int(length) > n {
		text += "…"
	}
	return text
}

// Activation is a frame of a language, as its walker recorded it.
type Activation struct {
	PID         int
	What, Where uint64
}

// Namer tells what activations are called.
type Namer interface {
	// Name gives the frames of an activation: the calls inlined there innermost
	// first, then the function that holds them; none where it does not know.
	Name(a Activation, of Walked) []profile.Frame
}
