package php

import (
	"path"
	"strings"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// Places in photographs, and what their values mean; see php.h.
const (
	nameBytes = 512
	fileAt    = 2 * nameBytes

	valueType  = 0
	valueLines = 1

	internal = 1 // a bit of the type

	isCode = 1 << 32
	isTop  = 1 << 33
)

// Album names functions by what walks photographed. The zero value is ready.
type Album struct{ functions lang.Album[uint64, function] }

type function struct {
	class, name, file string
	firstLine         int
}

// Add keeps a photograph.
func (a *Album) Add(p lang.Photograph) {
	f := function{
		class: p.Text(0, nameBytes, p.Lengths[0]),
		name:  p.Text(nameBytes, nameBytes, p.Lengths[1]),
		file:  p.Text(fileAt, len(p.Bytes)-fileAt, p.Lengths[2]),
	}
	if p.Values[valueType]&internal == 0 {
		f.firstLine = int(uint32(p.Values[valueLines]))
	}
	a.functions.Keep(p.What, f)
}

// Name tells what an activation is called.
func (a *Album) Name(at lang.Activation, _ lang.Walked) []profile.Frame {
	f, ok := a.functions.Find(at.What)
	if !ok {
		return nil
	}
	return []profile.Frame{{Kind: profile.KindPHP, Function: f.title(at.Where), File: f.file, Line: int(uint32(at.Where)), StartLine: f.firstLine}}
}

// title is what PHP's own traces show.
func (f *function) title(where uint64) string {
	switch {
	case f.name != "" && f.class != "":
		return className(f.class) + "::" + methodName(f.name)
	case f.name != "":
		return f.name
	case where&isCode == 0:
		return "[unnamed]"
	case strings.HasSuffix(f.file, " : eval()'d code"):
		return "eval"
	case where&isTop != 0:
		return "{main}"
	}
	return "include(" + path.Base(f.file) + ")"
}

// className drops what makes the name of an anonymous class unique: a NUL, the
// file and a number.
func className(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	return name
}

// methodName drops the namespace, which the class has too, from closures.
func methodName(name string) string {
	if i := strings.LastIndexByte(name, '\\'); i >= 0 {
		return name[i+1:]
	}
	return name
}
