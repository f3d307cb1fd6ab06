package dotnet

import (
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// Namer names what a walk tells of .NET by itself: that the pc was in a stub of
// the runtime, between a method and the one that it calls. Methods are named by
// the runtime; see Ask.
type Namer struct{}

// Name names a stub.
func (Namer) Name(lang.Activation, lang.Walked) []profile.Frame {
	return []profile.Frame{{Kind: profile.KindDotNet, Function: "[stub]"}}
}
