package profile

// Forest is stacks as prefix trees: what begins alike is there once. Callers
// come before those they call, so that one pass in order, or one in reverse,
// does most of what there is to do with stacks.
type Forest struct {
	Places []Place
	Calls  []Call
}

// Place is a location and, as far as they are known, its names.
type Place struct {
	Hash     Hash
	Location Location
	Names    []Frame // inlined calls innermost first; none if it is not named yet
}

// Named tells whether a place has names, and not only a number.
func (p *Place) Named() bool { return len(p.Names) > 0 && !p.Names[0].IsUnnamed() }

// Frames gives a place's frames, never none.
func (p *Place) Frames() []Frame { return framesOf(&p.Location, p.Names) }

// Call is a function call in its context, and the stack that ends with it.
type Call struct {
	Hash   Hash
	Caller int // of Calls; -1: nobody, and only End counts
	Place  int // of Places
	End    End // how the walk ended, where there is no caller
}

// Stack lists the places of a stack, leaf first, and how its walk ended.
func (f *Forest) Stack(leaf int) (places []int, end End) {
	for ; f.Calls[leaf].Caller >= 0; leaf = f.Calls[leaf].Caller {
		places = append(places, f.Calls[leaf].Place)
	}
	return places, f.Calls[leaf].End
}

// Index finds calls by the hashes of their stacks.
func (f *Forest) Index() map[Hash]int {
	index := make(map[Hash]int, len(f.Calls))
	for i, c := range f.Calls {
		index[c.Hash] = i
	}
	return index
}
