// Package dotnet finds out how to walk managed code of .NET, and what its methods are called.
//
//	Holds, Read    is it a runtime, and what walks need of it (dotnet.h)
//	Ask            asks the runtime of a process for its methods (socket.go, question.go):
//	Parse          it answers with a trace (trace.go) of one event for each (methods.go)
//	Methods        names addresses by it
//
// Code that was compiled ahead lies in files of .NET (package unwind/cfi makes
// rows for them), all else in memory without a file.
package dotnet

import (
	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

// Holds tells whether a file holds a runtime of .NET: it is in a library of its
// own, or in a program that contains it.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.DotNet) }

// Parameters are struct dotnet_process of dotnet.h.
type Parameters struct {
	Pieces uint32 // where a method's header tells of its pieces of code
	Method uint32 // and where it points at what it is the code of
}

// Read gives what walks need to know. The header of a method, RealCodeHeader of
// the runtime's codeman.h, was the same throughout .NET Core 3; walks check what
// they find there, but a later one might pass.
func Read(m lang.Mapped) (lang.Walked, error) {
	told := func(f *binfile.File) (lang.Runtime, error) { return lang.Told(f, m.Path, lang.DotNet) }
	return lang.Read(m, ".NET", told, func(lang.Mapped, lang.Runtime) (lang.Walked, error) {
		return &lang.Known[Parameters]{Needs: Parameters{Pieces: 32, Method: 24}}, nil
	})
}
