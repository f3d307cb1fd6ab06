package unwind

import (
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

// namers name the frames of languages.
type namers map[Language]lang.Namer

func newNamers() namers {
	return namers{
		Python: &python.Album{},
		V8:     &v8.Namer{},
		Java:   &hotspot.Namer{},
		PHP:    &php.Album{},
		BEAM:   &beam.Namer{},
		Perl:   &perl.Album{},
		Ruby:   &ruby.Album{},
		DotNet: dotnet.Namer{},
	}
}

// kinds are how frames of a language are shown that have no name.
var kinds = map[Language]profile.Kind{
	Python: profile.KindPython,
	Java:   profile.KindJavaCompiled,
	V8:     profile.KindV8,
	Ruby:   profile.KindRuby,
	PHP:    profile.KindPHP,
	Perl:   profile.KindPerl,
	BEAM:   profile.KindBEAM,
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

// Name tells what a language's frame shows, calls inlined there innermost
// first. Objects mean nothing outside their process: what has no name is one
// place for all of its language. Call Develop before, once the walks have ended.
func (u *Unwinder) Name(pid int, f Frame) []profile.Frame {
	if namer := u.namers[f.Language]; namer != nil {
		of, _ := u.Runtime(pid, f.Language)
		if names := namer.Name(lang.Activation{PID: pid, What: f.Offset, Where: f.Where}, of); len(names) > 0 {
			return names
		}
	}
	kind := kinds[f.Language]
	return []profile.Frame{{Kind: kind, Function: "[" + kind.String() + " function]"}}
}
