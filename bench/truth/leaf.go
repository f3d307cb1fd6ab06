package main

import (
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/truth"
)

// leaf tells where in a program a stack burns. Native frames below a function,
// and those of the runtime's own functions, are time of that function.
type leaf struct {
	program *program
	window  *profile.Window // with the samples of the program's thread alone
	known   map[string]bool // the program's functions; true: those that burn
}

func (p *program) newLeaf(log *truth.Log, w *profile.Window) *leaf {
	l := &leaf{p, w, map[string]bool{}}
	for _, s := range log.Sites {
		for i, f := range s.Stack {
			burns := i == len(s.Stack)-1
			l.known[functionOf(f)] = l.known[functionOf(f)] || burns
		}
	}
	return l
}

// functionOf cuts the place off: scan:loop is in scan.
func functionOf(site string) string {
	i := strings.LastIndexByte(site, ':')
	if i <= 0 || site[i-1] == ':' { // a::b
		return site
	}
	return site[:i]
}

// innermost finds the program's function that a stack is in.
func (l *leaf) innermost(id profile.StackID) (profile.Frame, bool) {
	for _, location := range l.window.Stacks[id].Locations {
		for _, f := range l.window.Frames(location) {
			if _, ok := l.known[f.Function]; ok && l.program.runtime.Own(f) {
				return f, true
			}
		}
	}
	return profile.Frame{}, false
}

// function is that of the log's sites.
func (l *leaf) function(id profile.StackID) string {
	f, ok := l.innermost(id)
	if !ok || !l.known[f.Function] {
		return truth.Other
	}
	return f.Function
}

// line is a site of the log: the function, and what burns in its line. A line
// that burns nothing is no site.
func (l *leaf) line(id profile.StackID) string {
	f, ok := l.innermost(id)
	if !ok || !l.known[f.Function] {
		return truth.Other
	}
	return f.Function + ":" + l.program.places[f.Line]
}

// count counts the samples, and those in which nothing of the language has a
// name: they show at most native frames.
func (l *leaf) count() (all, unnamed int) {
	named := map[profile.StackID]bool{}
	for _, s := range l.window.Samples {
		ok, known := named[s.Stack]
		if !known {
			ok = l.named(s.Stack)
			named[s.Stack] = ok
		}
		if all++; !ok {
			unnamed++
		}
	}
	return all, unnamed
}

func (l *leaf) named(id profile.StackID) bool {
	for _, location := range l.window.Stacks[id].Locations {
		for _, f := range l.window.Frames(location) {
			if l.program.runtime.Own(f) && !strings.HasPrefix(f.Function, "[") {
				return true
			}
		}
	}
	return false
}
