package profiletest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"atys.dev/atys/internal/profile"
)

// Forest makes so many stacks, about so deep, that share their beginnings, and
// gives their leaves: what a busy service has, for benchmarks.
func Forest(r *rand.Rand, stacks, depth int) (*profile.Forest, []profile.Hash) {
	f := &profile.Forest{}
	for i := range 4000 {
		l := profile.Location{Kind: profile.KindNative, BuildID: "0123456789abcdef0123", Offset: uint64(i) * 64}
		f.Places = append(f.Places, profile.Place{Hash: l.Hash(), Location: l, Names: []profile.Frame{{
			Function: fmt.Sprintf("github.com/acme/shop/internal/package%02d.(*Handler).function%04d", i%50, i), File: fmt.Sprintf("/src/package%02d/file.go", i%50), Line: i, Kind: profile.KindNative}}})
	}
	end := profile.EndComplete
	f.Calls = append(f.Calls, profile.Call{Hash: end.Hash(), Caller: -1, Place: -1, End: end})
	depths := []int{0}
	leaves := make([]profile.Hash, 0, stacks)
	for len(leaves) < stacks {
		at := r.IntN(len(f.Calls))
		for depths[at] > 20 && r.IntN(4) > 0 {
			at = f.Calls[at].Caller
		}
		for want := depth - 7 + r.IntN(15); depths[at] < want; {
			place := int(math.Pow(r.Float64(), 2) * float64(len(f.Places)))
			f.Calls = append(f.Calls, profile.Call{Hash: f.Calls[at].Hash.Call(f.Places[place].Hash), Caller: at, Place: place})
			depths = append(depths, depths[at]+1)
			at = len(f.Calls) - 1
		}
		leaves = append(leaves, f.Calls[at].Hash)
	}
	return f, leaves
}
