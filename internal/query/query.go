// Package query asks a store: what it answers is a Grove, as if one sampler had seen it all.
package query

import (
	"errors"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// grove makes a grove of a column of a merge. It has one value type.
func grove(m *store.Merged, column int) (*profile.Grove, error) {
	c := &m.Columns[column]
	g := &profile.Grove{Head: c.Head, Forest: m.Forest, Leaves: make([]profile.Leaf, len(c.Sums))}
	t, err := commonType(c.Head.Types)
	if err != nil {
		return nil, err
	}
	g.Head.Types = []profile.ValueType{t}
	for i := range c.Sums {
		s := &c.Sums[i]
		g.Leaves[i] = profile.Leaf{Call: s.Call, Sum: s.Sum}
	}
	return g, nil
}

// ErrMixed means that kinds were asked for that cannot be added up.
var ErrMixed = errors.New("these kinds have different units, and cannot be added up: ask for kinds of one unit")

// kindWall is the time of threads on the CPU and off it.
const kindWall = "wall"

// commonType is the type that values of some types add up to. Several have no common exact
// total.
func commonType(types []profile.ValueType) (profile.ValueType, error) {
	if len(types) == 1 {
		return types[0], nil
	}
	var kinds []string
	for _, t := range types {
		if t.Unit != types[0].Unit || t.Temporality != types[0].Temporality {
			return profile.ValueType{}, ErrMixed
		}
		kinds = append(kinds, t.Kind)
	}
	slices.Sort(kinds)
	common := profile.ValueType{Kind: strings.Join(kinds, "+"), Unit: types[0].Unit, Temporality: types[0].Temporality}
	if slices.Equal(kinds, []string{"cpu", "off-cpu"}) {
		common.Kind = kindWall
	}
	return common, nil
}
