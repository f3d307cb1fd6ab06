package recorder

import (
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/lang/beam"
	"atys.dev/atys/internal/lang/hotspot"
	"atys.dev/atys/internal/lang/perl"
	"atys.dev/atys/internal/lang/php"
	"atys.dev/atys/internal/lang/python"
	"atys.dev/atys/internal/lang/ruby"
	"atys.dev/atys/internal/lang/v8"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// languages names what walks saw of languages.
type languages struct {
	unwinder *unwind.Unwinder
	namers   map[unwind.Language]lang.Namer
}

func newLanguages() *languages {
	return &languages{namers: map[unwind.Language]lang.Namer{
		unwind.Python: &python.Album{},
		unwind.V8:     &v8.Namer{},
		unwind.Java:   &hotspot.Namer{},
		unwind.PHP:    &php.Album{},
		unwind.BEAM:   &beam.Namer{},
		unwind.Perl:   &perl.Album{},
		unwind.Ruby:   &ruby.Album{},
	}}
}

// kinds are how frames of a language are shown that have no name.
var kinds = map[unwind.Language]profile.Kind{
	unwind.Python: profile.KindPython,
	unwind.Java:   profile.KindJavaCompiled,
	unwind.V8:     profile.KindV8,
	unwind.Ruby:   profile.KindRuby,
	unwind.PHP:    profile.KindPHP,
	unwind.Perl:   profile.KindPerl,
	unwind.BEAM:   profile.KindBEAM,
}

// photographed keeps what a walk copied of a function.
func (l *languages) photographed(language unwind.Language, p lang.Photograph) {
	switch album := l.namers[language].(type) {
	case interface{ Add(lang.Photograph) }:
		album.Add(p)
	case interface {
		Look(lang.Photograph, lang.Walked)
	}: // it also reads from the process what may be gone soon
		of, _ := l.unwinder.Runtime(p.PID, language)
		album.Look(p, of)
	}
}

// name tells what a language's frame shows, calls inlined there innermost
// first. Objects mean nothing outside their process: what has no name is one
// place for all of its language.
func (l *languages) name(pid int, f unwind.Frame) []profile.Frame {
	kind := kinds[f.Language]
	if namer := l.namers[f.Language]; namer != nil {
		of, _ := l.unwinder.Runtime(pid, f.Language)
		if names := namer.Name(lang.Activation{PID: pid, What: f.Offset, Where: f.Where}, of); len(names) > 0 {
			return names
		}
	}
	return []profile.Frame{{Kind: kind, Function: "[" + kind.String() + " function]"}}
}
