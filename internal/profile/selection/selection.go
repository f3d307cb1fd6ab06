// Package selection keeps, drops and rewrites the stacks of a window, as pprof's flags of the same names do.
//
// The flow, each step from window to window:
//
//	Only         one value type of several
//	Apply        focus and ignore choose stacks; show, hide and kinds choose their frames
//	Own          time charged to developers' own frames; HideRuntime is its milder sibling
//	Reverse      stacks turned round, leaf first
//	Threads      a window per thread
//	NameThreads  a name for each thread, to lead stacks with
//	TellApart    a name of its own for each
//
// and at the end, from a tree to a tree, Bound, which leaves its largest nodes.
package selection

import (
	"regexp"

	"atys.dev/atys/internal/profile"
)

// Selection holds the expressions; nil ones are not asked for. An expression
// matches a frame if it matches its function's name, its file or its mapping,
// anywhere in it. What stands for missing frames, such as [too deep], is a
// frame too.
type Selection struct {
	Focus  *regexp.Regexp // keep only stacks with a matching frame
	Ignore *regexp.Regexp // drop stacks with a matching frame; it wins over Focus
	Show   *regexp.Regexp // keep only matching frames
	Hide   *regexp.Regexp // drop matching frames
	Kinds  Kinds          // keep only frames of these kinds
}

// Empty tells whether nothing is asked for.
func (s Selection) Empty() bool { return s == Selection{} }

// Unmatched says which expressions matched no frame of a window: likely a
// mistake in them.
type Unmatched struct{ Focus, Ignore, Show, Hide, Kinds bool }

// Apply gives the window of the stacks that are kept, with the frames that
// are shown; a stack without any is left out, as pprof does. Losses stay those
// of the whole window, since nobody knows what was lost. Exact times, the
// head's and the threads', go: they belong to the whole, and shares of a
// selection must not be multiplied with them.
func (s Selection) Apply(w *profile.Window) (*profile.Window, Unmatched) {
	if s.Empty() {
		return w, Unmatched{}
	}
	head := w.Head
	head.Exact, head.Idle, head.Watched, head.Cost = profile.Exact{}, 0, 0, profile.Cost{}
	sel := selector{Selection: s, ends: map[profile.End]verdict{}, locations: make([]verdict, len(w.Locations))}
	sel.rewriter = newRewriter(w, head, func(t profile.Thread) profile.Thread {
		t.Exact = profile.Exact{}
		return t
	})
	for i := range w.Locations {
		frames := w.Frames(profile.LocationID(i))
		sel.locations[i] = sel.judge(frames)
		if shown := sel.locations[i].frames; len(shown) < len(frames) {
			sel.names[i] = shown
		}
	}
	selected := sel.rewrite(sel.stack)
	return selected, Unmatched{
		Focus:  s.Focus != nil && !sel.matched.Focus,
		Ignore: s.Ignore != nil && !sel.matched.Ignore,
		Show:   s.Show != nil && !sel.matched.Show,
		Hide:   s.Hide != nil && !sel.matched.Hide,
		Kinds:  s.Kinds != 0 && !sel.matched.Kinds,
	}
}

// selector applies a selection to one window. Expressions are tried once per
// location, not per stack.
type selector struct {
	Selection
	*rewriter
	locations []verdict
	ends      map[profile.End]verdict
	matched   Unmatched // here true where something matched
}

// verdict is what the expressions say of one location, or of one way a stack ended.
type verdict struct {
	focus, ignore bool
	frames        []profile.Frame // those to show
}

// stack decides on one stack from the verdicts on its parts.
func (s *selector) stack(stack profile.Stack) (locations []profile.LocationID, end profile.End, kept bool) {
	v, ok := s.ends[stack.End]
	if !ok {
		v = s.judge(endFrames(stack.End))
		s.ends[stack.End] = v
	}
	focus, ignore, end := v.focus, v.ignore, stack.End
	if end.Truncated() && len(v.frames) == 0 {
		end = profile.EndUnknown // its frame is not to be seen
	}
	shown := 0
	for _, id := range stack.Locations {
		l := s.locations[id]
		focus, ignore = focus || l.focus, ignore || l.ignore
		if len(l.frames) > 0 {
			shown++
		}
	}
	if s.Focus != nil && !focus || ignore || shown == 0 && !end.Truncated() {
		return nil, end, false
	}
	for _, id := range stack.Locations {
		if len(s.locations[id].frames) > 0 {
			locations = append(locations, s.location(id))
		}
	}
	return locations, end, true
}

func (s *selector) judge(frames []profile.Frame) (v verdict) {
	for _, f := range frames {
		if matches(s.Focus, f) {
			v.focus, s.matched.Focus = true, true
		}
		if matches(s.Ignore, f) {
			v.ignore, s.matched.Ignore = true, true
		}
		hide, show := matches(s.Hide, f), matches(s.Show, f)
		s.matched.Hide = s.matched.Hide || hide
		s.matched.Show = s.matched.Show || show
		kind := s.Kinds.Has(f.Kind)
		s.matched.Kinds = s.matched.Kinds || kind
		if !hide && (show || s.Show == nil) && (kind || s.Kinds == 0) {
			v.frames = append(v.frames, f)
		}
	}
	return v
}

func matches(re *regexp.Regexp, f profile.Frame) bool {
	return re != nil && (re.MatchString(f.Function) || re.MatchString(f.File) || f.Mapping != "" && re.MatchString(f.Mapping))
}

// endFrames is what trees and files show in place of missing frames.
func endFrames(end profile.End) []profile.Frame {
	if !end.Truncated() {
		return nil
	}
	return []profile.Frame{{Function: "[" + end.String() + "]"}}
}
