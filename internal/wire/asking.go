package wire

import "connectrpc.com/connect"

// Limits of requests that hold no windows: what agents tell of themselves, what
// people ask. What a few bytes are unpacked to is bounded by them, and by how many
// are read at once.
const (
	MaxAsked  = 1 << 20          // bytes of a message, before and after compression
	MaxBody   = MaxAsked + 1<<10 // of a request, which has an envelope around it
	MaxAsking = 32 * MaxBody     // of all requests that came and are not answered yet
	maxBegin  = 64 << 10         // of a message that begins a stream: it is kept while that stands
)

// Asking has a handler of connect, behind Reading, take no more than requests need
// that hold no windows.
func Asking() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(s connect.Spec) []connect.HandlerOption {
		if s.StreamType == connect.StreamTypeUnary {
			return []connect.HandlerOption{connect.WithReadMaxBytes(MaxAsked)}
		}
		return []connect.HandlerOption{connect.WithReadMaxBytes(maxBegin)}
	})
}
