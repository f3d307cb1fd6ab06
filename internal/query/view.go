package query

import (
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/profile/whose"
	"atys.dev/atys/internal/store"
)

// Fold says which functions are folded into those that called them.
type Fold string

// What is folded; see profile/selection, which does the same to one window.
const (
	FoldNothing     Fold = ""
	FoldOwn         Fold = "own"          // all that is not the application's own
	FoldHideRuntime Fold = "hide-runtime" // runtimes, system libraries, the kernel
)

// View says how stacks are looked at. The zero value shows each function with
// what it used itself.
type View struct {
	Fold  Fold
	Rules *whose.Rules // the asker's, of whose code is what; nil: none
	// Callers names a function. Only what has it on the stack counts then, and is
	// charged to who called it: of several calls in each other, the outermost.
	Callers string
}

// function is one that is looked at, with what is added up of it.
type function struct {
	frame       profile.Frame
	shown       bool // it is not folded into its callers
	self, total amount
	last        int // the last stack that counted for it, and one
}

// viewer adds sums up by function.
type viewer struct {
	View
	forest     *profile.Forest
	classifier *whose.Classifier
	places     [][]*function // of each place, innermost first
	index      map[profile.FrameKey]*function
	functions  []*function
	stack      []*function // of the stack at hand, leaf first
	apart      *apart
}

func (view View) over(forest *profile.Forest) *viewer {
	return &viewer{View: view, forest: forest, classifier: whose.New(view.Rules), places: make([][]*function, len(forest.Places)), index: map[profile.FrameKey]*function{}}
}

// fold gives the functions that are shown and have anything, and the whole. A
// stack counts once for a function, however often that is on it.
func (v *viewer) fold(c *store.Column) (functions []*function, whole *amount) {
	return v.charge(c, func(s *store.Sum, of ofStack, number int) {
		if v.callers(s.Call) {
			v.add(s, of, number)
		}
	})
}

// selfs is fold for a view that shows everything: functions have what they used themselves, and
// no totals. It looks at no callers, which are most of a stack.
func (v *viewer) selfs(c *store.Column) (functions []*function, whole *amount) {
	return v.charge(c, func(s *store.Sum, of ofStack, number int) {
		if f := v.leaf(s.Call); f != nil {
			f.self.add(s, of)
			f.last = number
		}
	})
}

// charge has each sum of a column, which get numbers from 1 on, charged to functions, and
// returns those that have anything.
func (v *viewer) charge(c *store.Column, one func(s *store.Sum, of ofStack, number int)) (functions []*function, whole *amount) {
	whole, v.apart = &amount{}, newApart(c, v.forest)
	for i := range c.Sums {
		s := &c.Sums[i]
		of := v.apart.of(s.Call)
		whole.add(s, of)
		one(s, of, i+1)
	}
	return slices.DeleteFunc(v.functions, func(f *function) bool { return f.last == 0 }), whole
}

// leaf returns the innermost function of a stack, nil if it has none.
func (v *viewer) leaf(call int) *function {
	for ; call >= 0; call = v.forest.Calls[call].Caller {
		if place := v.forest.Calls[call].Place; place >= 0 {
			return v.at(place)[0]
		}
	}
	return nil
}

// callers puts the functions of a stack in v.stack: all, or those that called
// what is asked for; false if it is not on the stack.
func (v *viewer) callers(call int) bool {
	v.stack = v.stack[:0]
	found := 0
	for ; call >= 0; call = v.forest.Calls[call].Caller {
		place := v.forest.Calls[call].Place
		if place < 0 {
			continue
		}
		for _, f := range v.at(place) {
			v.stack = append(v.stack, f)
			if f.frame.Function == v.Callers {
				found = len(v.stack)
			}
		}
	}
	if v.Callers == "" {
		return true
	}
	v.stack = slices.Delete(v.stack, 0, found)
	return found > 0
}

// add charges a sum to the functions of the stack at hand, which has a number.
func (v *viewer) add(s *store.Sum, of ofStack, number int) {
	leaf := true
	for _, f := range v.stack {
		if !f.shown {
			continue
		}
		if leaf {
			f.self.add(s, of)
			leaf = false
		}
		if f.last != number {
			f.last = number
			f.total.add(s, of)
		}
	}
	if leaf && v.classed() {
		f := v.of(v.nobody(s.Call))
		f.self.add(s, of)
		f.total.add(s, of)
		f.last = number
	}
}

// nobody is what a stack is charged to that has no function to show.
func (v *viewer) nobody(call int) profile.Frame {
	for v.forest.Calls[call].Caller >= 0 {
		call = v.forest.Calls[call].Caller
	}
	if end := v.forest.Calls[call].End; end.Truncated() {
		return profile.Frame{Function: "[" + end.String() + "]"}
	}
	frames := make([]profile.Frame, len(v.stack))
	for i, f := range v.stack {
		frames[i] = f.frame
	}
	return profile.Strangers(frames)
}

// at gives the functions of a place.
func (v *viewer) at(place int) []*function {
	if v.places[place] != nil {
		return v.places[place]
	}
	p := &v.forest.Places[place]
	names := p.Names
	if len(names) == 0 {
		names = []profile.Frame{profile.Unnamed(p.Location.Kind, p.Location.BuildID, p.Location.Offset)}
	}
	for _, frame := range names {
		if v.classed() {
			frame.Class = v.class(frame)
		}
		v.places[place] = append(v.places[place], v.of(frame))
	}
	return v.places[place]
}

// classed tells whether a class decides where anything is charged: else only the
// functions that are told have theirs looked up.
func (v *viewer) classed() bool { return v.Fold != FoldNothing || v.Callers != "" }

// class tells whose a frame is. Of native code without a name nobody can tell: its
// file is but a build-id.
func (v *viewer) class(f profile.Frame) profile.Class {
	if f.IsUnnamed() && f.Kind == profile.KindNative && !strings.HasPrefix(f.Mapping, "/") {
		return profile.ClassUnknown
	}
	return v.classifier.Class(f)
}

// of gives the function of a frame.
func (v *viewer) of(frame profile.Frame) *function {
	key := frame.Key()
	f := v.index[key]
	if f == nil {
		f = &function{frame: frame, shown: v.Fold.shows(frame)}
		v.index[key] = f
		v.functions = append(v.functions, f)
	}
	return f
}

func (f Fold) shows(frame profile.Frame) bool {
	switch f {
	case FoldOwn:
		return frame.Class.Own()
	case FoldHideRuntime:
		return selection.WithoutRuntime(frame)
	}
	return true
}
