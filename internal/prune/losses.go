package prune

import "atys.dev/atys/internal/profile"

// smallest is the size of the smallest functions that keepsLeaf considers: one sample in so
// many of the group's.
const smallest = 3000

// prunedGroup is a group of threads some of which are pruned.
type prunedGroup struct {
	percent float64 // of it that is kept
	all     int64
}

// losses are what groups would lose of their functions by pruning: samples on stacks that no
// kept row uses. A thread that seldom runs does other things than those that always do: it
// wakes up, it compiles. A function that would lose too much stays as leaf, without its
// callers.
type losses struct {
	ofStack []int32         // by stack: the function of its leaf; 0: none of it is lost
	parts   []part          // by function: of the first group that loses any
	more    map[whose]*part // of other groups
}

// part is what a group has of a function, and would lose.
type part struct {
	of        *prunedGroup
	all, lost int64
}

type whose struct {
	of       *prunedGroup
	function int32
}

// newLosses numbers the leaf functions of stacks that are gone.
func newLosses(w *profile.Window, moved []profile.StackID) *losses {
	ofStack, n := functionsOf(w, moved)
	return &losses{ofStack: ofStack, parts: make([]part, n+1), more: map[whose]*part{}}
}

// of is the part of a group in the leaf function of a stack; nil: it loses none of it.
func (l *losses) of(g *prunedGroup, stack profile.StackID) *part {
	function := l.ofStack[stack]
	if function == 0 {
		return nil
	}
	if p := &l.parts[function]; p.of == g {
		return p
	}
	return l.more[whose{g, function}]
}

// addLost adds samples that are lost; those of empty stacks count for no function.
func (l *losses) addLost(g *prunedGroup, stack profile.StackID, weight int64) {
	function := l.ofStack[stack]
	p := &l.parts[function]
	if p.of == nil {
		p.of = g
	}
	if p.of != g {
		if p = l.more[whose{g, function}]; p == nil {
			p = &part{of: g}
			l.more[whose{g, function}] = p
		}
	}
	p.lost += weight
}

// addTotal adds samples, lost or not.
func (l *losses) addTotal(g *prunedGroup, stack profile.StackID, weight int64) {
	if p := l.of(g, stack); p != nil {
		p.all += weight
	}
}

// keepsLeaf reports whether the leaf of a stack is kept: of its function, the group would lose
// more than half the part that may be lost of everything.
func (l *losses) keepsLeaf(g *prunedGroup, stack profile.StackID) bool {
	p := l.of(g, stack)
	return p != nil && float64(p.all)*smallest >= float64(g.all) && 2*float64(p.lost) > float64(p.all)*(MaxLevel-g.percent)/100
}

// functionsOf numbers the leaf functions of stacks that are gone, from 1, and gives the
// number for each stack; 0 for all others.
func functionsOf(w *profile.Window, moved []profile.StackID) (ofStack []int32, n int) {
	const unknown = -1
	numbers, ofLeaf := map[function]int32{}, make([]int32, len(w.Locations))
	for i := range ofLeaf {
		ofLeaf[i] = unknown
	}
	for id, stack := range w.Stacks {
		if len(stack.Locations) == 0 || moved[id] != gone || ofLeaf[stack.Locations[0]] != unknown {
			continue
		}
		leaf := stack.Locations[0]
		in := functionOf(w, leaf)
		if numbers[in] == 0 {
			numbers[in] = int32(len(numbers) + 1)
		}
		ofLeaf[leaf] = numbers[in]
	}
	ofStack = make([]int32, len(w.Stacks))
	for id, stack := range w.Stacks {
		if len(stack.Locations) == 0 {
			continue
		}
		leaf := stack.Locations[0]
		if ofLeaf[leaf] == unknown {
			ofLeaf[leaf] = numbers[functionOf(w, leaf)]
		}
		ofStack[id] = ofLeaf[leaf]
	}
	return ofStack, len(numbers)
}

// codeBits is the size of a piece of code that counts as a function: a typical one.
const codeBits = 8

// function identifies the function of a location by what is known when a window is cut: its
// name, as in Java and Python, else a piece of code. Names that come with symbolization are
// not used even if a window has them: pruning gives the same result before and after it.
type function struct {
	kind profile.Kind
	name string // or the build-id of the code
	code uint64 // which piece of it, plus one
}

func functionOf(w *profile.Window, id profile.LocationID) function {
	l := &w.Locations[id]
	switch {
	case l.BuildID != "" && l.Name == "":
		return function{l.Kind, l.BuildID, l.Offset>>codeBits + 1}
	case len(w.Names[id]) > 0:
		return function{l.Kind, w.Names[id][0].Function, 0}
	case l.Name != "":
		return function{l.Kind, l.Name, 0}
	}
	return function{l.Kind, "", l.Offset>>codeBits + 1}
}
