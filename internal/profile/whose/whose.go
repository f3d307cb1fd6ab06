// Package whose tells whose code a frame is: the application's, a library's, a language runtime's or the kernel's.
//
// The flow:
//
//	rules text -> Rules   lines of class, matcher and patterns (rules.go)
//	the user's Rules, the class a file recorded, Builtin -> Classifier
//	a frame -> the first rule that matches it, else what its kind suggests
//
// It is pure: text and frames go in, classes come out. What the rules that
// come with atys are, and why, stands in builtin.rules.
package whose

import (
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
)

// Classifier classes frames. It remembers what it was asked for and is not
// safe for concurrent use.
type Classifier struct {
	users, builtin *ruleset
	known          map[frameKey]profile.Class
}

// frameKey is what the class of a frame depends on.
type frameKey struct {
	function, file, mapping string
	kind                    profile.Kind
	class                   profile.Class
}

// New gives a classifier by the user's rules, which win over all else, and
// those that come with atys. nil is no rules of the user's.
func New(users *Rules) *Classifier {
	return &Classifier{users: newRuleset(users), builtin: newRuleset(Builtin()), known: map[frameKey]profile.Class{}}
}

// Class tells whose a frame is. The user's rules win, then the class the frame
// has: whoever recorded it may have known more than its names tell.
func (c *Classifier) Class(f profile.Frame) profile.Class {
	key := frameKey{f.Function, f.File, f.Mapping, f.Kind, f.Class}
	class, ok := c.known[key]
	if !ok {
		class = c.find(f)
		if len(c.known) == maxRemembered {
			clear(c.known)
		}
		c.known[key] = class
	}
	return class
}

func (c *Classifier) find(f profile.Frame) profile.Class {
	s := subjectOf(f)
	if class, ok := c.users.class(s); ok {
		return class
	}
	if f.Class != profile.ClassUnknown {
		return f.Class
	}
	if class, ok := c.builtin.class(s); ok {
		return class
	}
	return fallback(s)
}

// Window gives a window whose frames all have their class. It shares with the
// old one all but the names that differ.
func (c *Classifier) Window(w *profile.Window) *profile.Window {
	out := *w
	out.Names = slices.Clone(w.Names)
	for i := range w.Locations {
		if classed := c.classed(w.Frames(profile.LocationID(i)), len(w.Names[i]) > 0); classed != nil {
			out.Names[i] = classed
		}
	}
	return &out
}

// Grove is Window of a grove: it shares all but the names with the old one.
func (c *Classifier) Grove(g *profile.Grove) *profile.Grove {
	out, forest := *g, *g.Forest
	out.Forest, forest.Places = &forest, slices.Clone(g.Forest.Places)
	for i := range forest.Places {
		p := &forest.Places[i]
		if classed := c.classed(p.Frames(), len(p.Names) > 0); classed != nil {
			p.Names = classed
		}
	}
	return &out
}

// classed gives the frames of a location with their classes, nil if they have them.
// Of native code without a name nobody can tell: its "file" is a build-id.
func (c *Classifier) classed(frames []profile.Frame, named bool) (classed []profile.Frame) {
	for i, f := range frames {
		class := profile.ClassUnknown
		if named || f.Kind != profile.KindNative {
			class = c.Class(f)
		}
		if class == f.Class {
			continue
		}
		if classed == nil {
			classed = slices.Clone(frames)
		}
		classed[i].Class = class
	}
	return classed
}

// fallback classes what no rule matches, by what executes it.
func fallback(s subject) profile.Class {
	switch s.frame.Kind {
	case profile.KindKernel:
		return profile.ClassKernel
	case profile.KindJavaCompiled, profile.KindJavaInterpreted, profile.KindDotNet, profile.KindBEAM:
		return profile.ClassApplication // their names hold packages, and no rule knows this one
	case profile.KindPython, profile.KindV8, profile.KindRuby, profile.KindPHP, profile.KindPerl:
		if s.file == "" {
			return profile.ClassRuntime // functions without a source file are built in
		}
		return profile.ClassApplication
	case profile.KindJIT:
		// Without a name it may be anybody's: a runtime compiles what its user
		// wrote as well as stubs of its own.
		if s.frame.Function == "" || strings.HasPrefix(s.frame.Function, "[") || s.frame.IsUnnamed() {
			return profile.ClassUnknown
		}
		return profile.ClassApplication
	case profile.KindNative:
		if s.binary == "" || strings.HasPrefix(s.binary, "[") {
			return profile.ClassUnknown
		}
		return profile.ClassApplication
	}
	if s.file != "" || strings.HasPrefix(s.binary, "/") {
		return profile.ClassApplication
	}
	return profile.ClassUnknown
}
