package prune

import "atys.dev/atys/internal/profile"

// noticed is how small a function is that is looked at, which may be a stretch of a longer
// one: one sample in so many.
const noticed = 3000

// stake is a group of threads some of which are pruned.
type stake struct {
	percent float64 // of it that is kept
	all     int64
}

// losses are what groups would lose by pruning threads: what is on stacks that nothing is
// on that stays. A thread that is seldom at work does other things than those that always
// are: it wakes up, it compiles. Of functions that would lose too much it is told that
// they ran, if not what called them.
type losses struct {
	ofStack []int32         // the function that it ends in; 0: nothing is lost of that
	parts   []part          // by function: of the first group that loses some of it
	more    map[whose]*part // of others
}

// part is what a group has of a function, and would lose.
type part struct {
	of        *stake
	all, lost int64
}

type whose struct {
	of       *stake
	function int32
}

// newLosses tells functions apart that stacks end in which become gone.
func newLosses(w *profile.Window, becomes []profile.StackID) *losses {
	ofStack, n := functionsOf(w, becomes)
	return &losses{ofStack: ofStack, parts: make([]part, n+1), more: map[whose]*part{}}
}

// of is what a group has of the function that a stack ends in; nil: it loses none of it.
func (l *losses) of(s *stake, stack profile.StackID) *part {
	function := l.ofStack[stack]
	if function == 0 {
		return nil
	}
	if p := &l.parts[function]; p.of == s {
		return p
	}
	return l.more[whose{s, function}]
}

// lose adds something that is lost: where stacks end in nothing, of none.
func (l *losses) lose(s *stake, stack profile.StackID, weight int64) {
	function := l.ofStack[stack]
	p := &l.parts[function]
	if p.of == nil {
		p.of = s
	}
	if p.of != s {
		if p = l.more[whose{s, function}]; p == nil {
			p = &part{of: s}
			l.more[whose{s, function}] = p
		}
	}
	p.lost += weight
}

// have adds what there is.
func (l *losses) have(s *stake, stack profile.StackID, weight int64) {
	if p := l.of(s, stack); p != nil {
		p.all += weight
	}
}

// tell tells whether the function that a stack ends in stays told: its group would lose
// more than half as large a part of it as of everything.
func (l *losses) tell(s *stake, stack profile.StackID) bool {
	p := l.of(s, stack)
	return p != nil && float64(p.all)*noticed >= float64(s.all) && 2*float64(p.lost) > float64(p.all)*(MaxLevel-s.percent)/100
}

// functionsOf numbers the functions that stacks end in which become gone, from 1 on, and
// gives the number of that of each stack; 0 is none of these.
func functionsOf(w *profile.Window, becomes []profile.StackID) (ofStack []int32, n int) {
	const unknown = -1
	numbers, ofLeaf := map[function]int32{}, make([]int32, len(w.Locations))
	for i := range ofLeaf {
		ofLeaf[i] = unknown
	}
	for id, stack := range w.Stacks {
		if len(stack.Locations) == 0 || becomes[id] != gone || ofLeaf[stack.Locations[0]] != unknown {
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

// codeBits is how long a stretch of code is that counts as a function: as long as many.
const codeBits = 8

// function is what a location is in, by what is known when a window is cut: a function
// where its name is, as those of Java and Python are, else a stretch of code. Names that
// are only looked for behind this are not gone by, where a window has them, so that the
// same is pruned of it.
type function struct {
	kind profile.Kind
	name string // or the build-id of the code
	code uint64 // which stretch of it, plus one
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
