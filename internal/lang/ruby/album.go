package ruby

import (
	"strings"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// Places in photographs, and what their values mean; see ruby.h.
const (
	classBytes  = 384
	labelAt     = classBytes
	labelBytes  = 384
	methodAt    = labelAt + labelBytes
	methodBytes = 256
	fileAt      = methodAt + methodBytes

	valueFlags     = 0
	valueSingleton = 1
	valueStartLine = 2

	flagBlockMethod = 0x40 // made by define_method
)

// Album names methods by what walks photographed. The zero value is ready.
type Album struct{ methods lang.Album[uint64, method] }

type method struct {
	title, file string
	firstLine   int
}

// Add keeps a photograph.
func (a *Album) Add(p lang.Photograph) {
	m := method{file: p.Text(fileAt, len(p.Bytes)-fileAt, p.Lengths[3]), firstLine: int(uint32(p.Values[valueStartLine]))}
	class := p.Text(0, classBytes, p.Lengths[0])
	label := p.Text(labelAt, labelBytes, p.Lengths[1])
	name := p.Text(methodAt, methodBytes, p.Lengths[2])
	if p.Values[valueFlags]&flagBlockMethod != 0 && name != "" {
		label = "" // that of a block in the class
	}
	m.title = title(class, label, name, p.Values[valueSingleton] != 0)
	a.methods.Keep(p.What, m)
}

// title names a method as Ruby's documentation does, Class#method or
// Class.method, and blocks in it as Ruby's traces do.
func title(class, label, name string, singleton bool) string {
	qualified := name
	if class != "" && name != "" {
		qualified = class + "#" + name
		if singleton {
			qualified = class + "." + name
		}
	}
	switch {
	case label == "":
		return qualified
	case name == "" || class == "":
		return label
	case label == name:
		return qualified
	}
	if around, ok := strings.CutSuffix(label, " in "+name); ok {
		return around + " in " + qualified
	}
	return label
}

// Name tells what an activation is called.
func (a *Album) Name(at lang.Activation, _ lang.Walked) []profile.Frame {
	m, ok := a.methods.Find(at.What)
	if !ok || m.title == "" {
		return nil
	}
	return []profile.Frame{{Kind: profile.KindRuby, Function: m.title, File: m.file, Line: int(uint32(at.Where)), StartLine: m.firstLine}}
}
