// Package query asks a store: what it answers is a Window again, as if one sampler had seen it all.
package query

import (
	"fmt"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Window makes a window of one column of a merge. Its values are those of the
// kind that was merged, the only type it has.
func Window(m *store.Merged, column int, kind string) (*profile.Window, error) {
	c := &m.Columns[column]
	head := c.Head
	head.Types = nil
	for _, t := range c.Head.Types {
		if t.Kind == kind {
			head.Types = []profile.ValueType{t}
		}
	}
	if head.Types == nil {
		return nil, fmt.Errorf("the windows have no values of kind %q", kind)
	}
	b := profile.NewBuilder(head)
	locations := make([]profile.LocationID, len(m.Forest.Places))
	for i, p := range m.Forest.Places {
		locations[i] = b.Location(p.Location, p.Names...)
	}
	var stack []profile.LocationID
	for _, sum := range c.Sums {
		places, end := m.Forest.Stack(sum.Call)
		stack = stack[:0]
		for _, p := range places {
			stack = append(stack, locations[p])
		}
		b.Add(profile.Row{Stack: b.Stack(stack, end), N: sum.N, Values: []int64{sum.Value}, Squares: sum.Squares})
	}
	return b.Window(), nil
}
