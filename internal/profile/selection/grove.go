package selection

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// OwnGrove is Own of a grove whose frames have their classes. Its calls have no
// hashes, as it is to be drawn and not to be sent.
func OwnGrove(g *profile.Grove) *profile.Grove {
	f := &groveFolder{from: g.Forest, to: &profile.Forest{}, places: make([]int, len(g.Forest.Places)), strangers: map[stranger]int{}}
	for i := range f.from.Places {
		f.place(i)
	}
	f.calls = make([]int, len(f.from.Calls))
	for i := range f.from.Calls {
		f.calls[i] = f.call(f.from.Calls[i])
	}
	out := &profile.Grove{Head: g.Head, Forest: f.to}
	at := map[int]int{} // of leaves, by their calls
	for _, l := range g.Leaves {
		l.Call = f.leaf(l.Call)
		if i, ok := at[l.Call]; ok {
			sum := &out.Leaves[i].Sum
			sum.N, sum.Value, sum.Squares = sum.N+l.N, sum.Value+l.Value, sum.Squares+l.Squares
			continue
		}
		at[l.Call] = len(out.Leaves)
		out.Leaves = append(out.Leaves, l)
	}
	return out
}

// groveFolder makes a forest of what is left of another one's calls.
type groveFolder struct {
	from, to  *profile.Forest
	places    []int // of the old ones; -1: nothing of it is left
	calls     []int // of the old ones; those that are folded are their callers'
	strangers map[stranger]int
}

// stranger is a call that stands for stacks without a frame that is left.
type stranger struct {
	root     int
	function string
}

func (f *groveFolder) place(i int) {
	p := f.from.Places[i]
	own := slices.DeleteFunc(slices.Clone(p.Frames()), func(frame profile.Frame) bool { return !frame.Class.Own() })
	if f.places[i] = -1; len(own) > 0 {
		p.Names = own
		f.places[i] = f.add(p)
	}
}

func (f *groveFolder) add(p profile.Place) int {
	f.to.Places = append(f.to.Places, p)
	return len(f.to.Places) - 1
}

func (f *groveFolder) call(c profile.Call) int {
	c.Hash = profile.Hash{}
	if c.Caller >= 0 {
		c.Caller = f.calls[c.Caller]
		if c.Place = f.places[c.Place]; c.Place < 0 {
			return c.Caller
		}
	}
	f.to.Calls = append(f.to.Calls, c)
	return len(f.to.Calls) - 1
}

// leaf gives the call that what was sampled at an old one is charged to.
func (f *groveFolder) leaf(old int) int {
	call := f.calls[old]
	if c := f.to.Calls[call]; c.Caller >= 0 || c.End.Truncated() {
		return call // of a stack that is cut it is not known who called what is missing
	}
	places, _ := f.from.Stack(old)
	var all []profile.Frame
	for _, p := range places {
		all = append(all, f.from.Places[p].Frames()...)
	}
	frame := profile.Strangers(all)
	key := stranger{call, frame.Function}
	if made, ok := f.strangers[key]; ok {
		return made
	}
	place := f.add(profile.Place{Location: profile.Location{Name: frame.Function}, Names: []profile.Frame{frame}})
	f.to.Calls = append(f.to.Calls, profile.Call{Caller: call, Place: place})
	f.strangers[key] = len(f.to.Calls) - 1
	return f.strangers[key]
}
