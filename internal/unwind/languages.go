package unwind

import (
	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/lang/beam"
	"atys.dev/atys/internal/lang/dotnet"
	"atys.dev/atys/internal/lang/hotspot"
	"atys.dev/atys/internal/lang/perl"
	"atys.dev/atys/internal/lang/php"
	"atys.dev/atys/internal/lang/python"
	"atys.dev/atys/internal/lang/ruby"
	"atys.dev/atys/internal/lang/v8"
	"atys.dev/atys/internal/profile"
)

// Language is whose functions a frame shows; the numbers are enum language's.
type Language uint32

// The languages that walks know.
const (
	Python Language = 1 + iota
	Java
	V8
	Ruby
	PHP
	Perl
	BEAM
	DotNet
)

// runs is the flag by which executables and processes are marked.
func (l Language) runs() uint32 { return 1 << (8 + l) }

// languages are what is particular to each language.
//
// Executables are recognised when their tables are built; the runtime of each process that
// maps one is then read apart from all that (runtimes), again and again while it is still
// starting.
var languages = []struct {
	language Language
	// kind is how frames are shown that have no name.
	kind profile.Kind
	// holds reports whether a file holds the runtime.
	holds func(*binfile.File) bool
	// read finds out what walks need to know of a process.
	read func(lang.Mapped) (lang.Walked, error)
	// parameters is the map of the programs that takes it, by process.
	parameters string
	newNamer   func() lang.Namer
}{
	{V8, profile.KindV8, v8.Holds, v8.Read, "v8_processes", func() lang.Namer { return &v8.Namer{} }},
	{Python, profile.KindPython, python.Holds, python.Read, "python_processes", func() lang.Namer { return &python.Album{} }},
	{Java, profile.KindJavaCompiled, hotspot.Holds, hotspot.Read, "hotspot_processes", func() lang.Namer { return &hotspot.Namer{} }},
	{Ruby, profile.KindRuby, ruby.Holds, ruby.Read, "ruby_processes", func() lang.Namer { return &ruby.Album{} }},
	{PHP, profile.KindPHP, php.Holds, php.Read, "php_processes", func() lang.Namer { return &php.Album{} }},
	{Perl, profile.KindPerl, perl.Holds, perl.Read, "perl_processes", func() lang.Namer { return &perl.Album{} }},
	{BEAM, profile.KindBEAM, beam.Holds, beam.Read, "beam_processes", func() lang.Namer { return &beam.Namer{} }},
	{DotNet, profile.KindUnknown, dotnet.Holds, dotnet.Read, "dotnet_processes", func() lang.Namer { return dotnet.Namer{} }},
}

// runsIn returns which languages' runtimes a file holds.
func runsIn(f *binfile.File) (flags uint32) {
	for _, l := range languages {
		if l.holds(f) {
			flags |= l.language.runs()
		}
	}
	return flags
}

// namers name the frames of languages.
type namers map[Language]lang.Namer

func newNamers() namers {
	n := namers{}
	for _, l := range languages {
		n[l.language] = l.newNamer()
	}
	return n
}

// keep keeps what a walk copied of a function. runtime gives what is known of
// the language's runtime in a process: some namers read more there at once, for
// it may be gone soon.
func (n namers) keep(language Language, p lang.Photograph, runtime func(int, Language) (lang.Walked, error)) {
	switch album := n[language].(type) {
	case interface{ Add(lang.Photograph) }:
		album.Add(p)
	case interface {
		Look(lang.Photograph, lang.Walked)
	}:
		of, _ := runtime(p.PID, language)
		album.Look(p, of)
	}
}

// Name returns what a language's frame shows, calls inlined there innermost
// first. Objects mean nothing outside their process: what has no name is one
// place for all of its language. Call Develop before, once the walks have ended.
func (u *Unwinder) Name(pid int, f Frame) []profile.Frame {
	if namer := u.namers[f.Language]; namer != nil {
		of, _ := u.Runtime(pid, f.Language)
		if names := namer.Name(lang.Activation{PID: pid, What: f.Offset, Where: f.Where}, of); len(names) > 0 {
			return names
		}
	}
	kind := profile.KindUnknown
	for _, l := range languages {
		if l.language == f.Language {
			kind = l.kind
		}
	}
	return []profile.Frame{{Kind: kind, Function: "[" + kind.String() + " function]"}}
}
