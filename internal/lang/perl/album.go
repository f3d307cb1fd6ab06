package perl

import (
	"fmt"
	"path"
	"strings"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

// Places in photographs, and what their values mean; see perl.h.
const (
	nameBytes = 512
	fileAt    = 2 * nameBytes

	valueKind      = 0
	valueStartLine = 1
	valueOperation = 2

	kindSub  = 0
	kindEval = 1

	operationRequire = 342 // of Perl 5.36
	operationDo      = 343
)

// Album names subs by what walks photographed. The zero value is ready.
type Album struct{ subs lang.Album[uint64, sub] }

type sub struct {
	title, file string
	firstLine   int
}

// Add keeps a photograph.
func (a *Album) Add(p lang.Photograph) {
	s := sub{file: fileName(p.Text(fileAt, len(p.Bytes)-fileAt, p.Lengths[2])), firstLine: int(uint32(p.Values[valueStartLine]))}
	switch p.Values[valueKind] {
	case kindSub:
		s.title = title(p.Text(0, nameBytes, p.Lengths[0]), p.Text(nameBytes, nameBytes, p.Lengths[1]), s.file, s.firstLine)
	case kindEval:
		s.title = evalTitle(p.Values[valueOperation], p.Text(nameBytes, nameBytes, p.Lengths[1]))
	default:
		s.title = "(main program)"
	}
	a.subs.Keep(p.What, s)
}

const anonymous = "__ANON__"

// title names a sub as caller() does; one without a name also by its place.
func title(stash, name, file string, line int) string {
	if name == "" {
		name = anonymous
	}
	if stash == "" {
		stash = anonymous // its package was deleted
	}
	if name == anonymous && line > 0 {
		return fmt.Sprintf("%s::%s[%s:%d]", stash, name, path.Base(file), line)
	}
	return stash + "::" + name
}

// evalTitle names what is compiled as it runs: files as they were asked for, which
// is forgotten as they are left.
func evalTitle(operation uint64, wanted string) string {
	switch operation {
	case operationRequire:
		return strings.TrimSpace("require " + wanted)
	case operationDo:
		return strings.TrimSpace("do " + wanted)
	}
	return "(eval)"
}

// fileName drops the number of an eval: each run of one has another.
func fileName(file string) string {
	if strings.HasPrefix(file, "(eval ") {
		return "(eval)"
	}
	return file
}

// Name tells what an activation is called.
func (a *Album) Name(at lang.Activation, _ lang.Walked) []profile.Frame {
	s, ok := a.subs.Find(at.What)
	if !ok {
		return nil
	}
	return []profile.Frame{{Kind: profile.KindPerl, Function: s.title, File: s.file, Line: int(uint32(at.Where)), StartLine: s.firstLine}}
}
