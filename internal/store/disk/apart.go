package disk

import (
	"maps"
	"slices"

	"atys.dev/atys/internal/store"
)

// apart is what each instance has of sums. Nil: they are not told apart.
type apart struct {
	most     int    // instances
	instance string // whose the values of the cells are
	// What was settled, of few of a service's leaves: by leaf each time, so that one
	// is there more than once where an instance was added up in several parts.
	of map[string][]leafValue
}

type leafValue struct {
	leaf  uint32
	value int64
}

func newApart(most int, instance string) *apart {
	if most <= 0 {
		return nil
	}
	return &apart{most: most, instance: instance, of: map[string][]leafValue{}}
}

// settle adds the values of cells, which are by leaf, to their instance. Of one
// too many nothing is left.
func (a *apart) settle(cells []cell) *apart {
	if a == nil {
		return nil
	}
	count := 0
	for leaf := range cells {
		if cells[leaf].Value != 0 {
			count++
		}
	}
	if count == 0 {
		return a
	}
	values := slices.Grow(a.of[a.instance], count) // there may be as many as rows
	for leaf := range cells {
		if v := cells[leaf].Value; v != 0 {
			values = append(values, leafValue{uint32(leaf), v})
		}
	}
	a.of[a.instance] = values
	return a.few()
}

// absorb adds what other sums have.
func (a *apart) absorb(o *apart) *apart {
	if a == nil || o == nil {
		return nil
	}
	for instance, values := range o.of {
		a.of[instance] = append(a.of[instance], values...)
	}
	return a.few()
}

func (a *apart) few() *apart {
	if len(a.of) > a.most {
		return nil
	}
	return a
}

// appendTo adds the instances of a service, which have other names than those of
// others, to a column that has those of others.
func (a *apart) appendTo(all []store.OfInstance, numbers []int) []store.OfInstance {
	for _, name := range slices.Sorted(maps.Keys(a.of)) {
		values := make([]store.StackValue, 0, len(a.of[name]))
		for _, v := range a.of[name] {
			values = append(values, store.StackValue{Call: numbers[v.leaf], Value: v.value})
		}
		all = append(all, store.OfInstance{Name: name, Values: values})
	}
	return all
}
