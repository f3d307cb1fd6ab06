// Package query asks a store: what it answers is a Grove, as if one sampler had seen it all.
package query

import (
	"fmt"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// grove makes one of a column of a merge. Its values are those of the kind that
// was merged, the only type it has.
func grove(m *store.Merged, column int, kind string) (*profile.Grove, error) {
	c := &m.Columns[column]
	g := &profile.Grove{Head: c.Head, Forest: m.Forest, Leaves: make([]profile.Leaf, len(c.Sums))}
	g.Head.Types = nil
	for _, t := range c.Head.Types {
		if t.Kind == kind {
			g.Head.Types = []profile.ValueType{t}
		}
	}
	if g.Head.Types == nil {
		return nil, fmt.Errorf("the windows have no values of kind %q", kind)
	}
	for i := range c.Sums {
		s := &c.Sums[i]
		g.Leaves[i] = profile.Leaf{Call: s.Call, Sum: s.Sum}
	}
	return g, nil
}
