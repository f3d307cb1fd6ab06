package disk

import (
	"cmp"
	"maps"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// merged makes one forest of all services, and columns over it.
func (a *adder) merged(damaged int) (*store.Merged, error) {
	f := forester{adder: a, forest: &profile.Forest{}, places: make([]int32, a.shelf.tenant.places.size())}
	byService := map[string][]sumKey{}
	for k, s := range a.sums {
		s.settle()
		byService[k.service] = append(byService[k.service], k)
	}
	tables := a.shelf.damage(0)
	if f.damaged = tables.Count() > 0; f.damaged || len(byService) > 1 {
		f.calls = map[[2]int]int{}
	}
	columns := map[columnKey]*merging{}
	for _, service := range slices.Sorted(maps.Keys(byService)) {
		keys := byService[service]
		slices.SortFunc(keys, func(x, y sumKey) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.by, y.by)) })
		d, err := a.shelf.take(service)
		if err != nil {
			return nil, err
		}
		numbers := f.add(d, keys)
		for _, k := range keys {
			s := a.sums[k]
			c := columns[k.columnKey]
			if c == nil {
				c = &merging{Column: store.Column{By: s.by, Start: s.start}}
				if a.grouping.MaxInstances > 0 {
					c.Instances = []store.OfInstance{}
				}
				columns[k.columnKey] = c
			}
			absorb(&c.Head, c.Windows, &s.head, s.windows)
			c.Windows += s.windows
			c.kinds.Absorb(s.kinds)
			c.Sums = s.appendTo(c.Sums, numbers)
			if s.apart == nil || len(c.Instances)+len(s.apart.of) > s.apart.most {
				c.Instances = nil
			} else if c.Instances != nil {
				c.Instances = s.apart.appendTo(c.Instances, numbers)
			}
		}
	}
	if f.damaged {
		f.rehash()
	}
	m := &store.Merged{Forest: f.forest, Summary: a.summary, Damaged: a.shelf.damage(damaged)}
	for _, c := range columns {
		if f.calls != nil {
			c.Sums = folded(c.Sums)
		}
		c.Kinds = c.kinds.Sorted()
		if minutes := a.observed.Of(&a.grouping, &c.Column); minutes != nil {
			c.Average(minutes)
		}
		m.Columns = append(m.Columns, c.Column)
	}
	m.Sort()
	if a.grouping.Divides() {
		m.Divided(store.Column{Head: a.whole.head, Windows: a.whole.windows})
	}
	return m, nil
}

// merging is a column to which sums of several services are added.
type merging struct {
	store.Column
	kinds store.KindSums
}

// appendTo appends what has samples. All groups have been settled.
func (s *sums) appendTo(out []store.Sum, numbers []int) []store.Sum {
	count := 0
	for range s.sampled() {
		count++
	}
	out = slices.Grow(out, count) // a sum is large
	for leaf, at := range s.sampled() {
		sum := store.Sum{Call: numbers[leaf], Sum: s.cells[at]}
		for g, values := range s.groups {
			if values != nil {
				sum.Groups[g] = values[at]
				sum.Value += values[at]
			}
		}
		out = append(out, sum)
	}
	return out
}

// folded adds up what several have of one stack.
func folded(sums []store.Sum) []store.Sum {
	slices.SortFunc(sums, func(a, b store.Sum) int { return cmp.Compare(a.Call, b.Call) })
	out := sums[:0]
	for _, s := range sums {
		if n := len(out) - 1; n >= 0 && out[n].Call == s.Call {
			out[n].Add(s.Sum)
			for g, v := range s.Groups {
				out[n].Groups[g] += v
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// forester builds the forest of what has samples.
type forester struct {
	*adder
	forest *profile.Forest
	places []int32 // of the tenant: where each is in the forest, plus one
	// Calls by caller and place, or end: services share stacks, and what is damaged
	// is alike. Nil: there is one service, and it is whole.
	calls   map[[2]int]int
	damaged bool // what dictionaries know as the hash of a stack may be that of nothing
}

// add adds the calls of a service that columns need, and gives the numbers of its
// leaves in the forest.
func (f *forester) add(d *dictionary, keys []sumKey) []int {
	calls, leaves := d.all()
	needed := make([]bool, len(calls))
	for _, k := range keys {
		s := f.sums[k]
		for leaf := range s.sampled() {
			if leaf < len(leaves) {
				needed[leaves[leaf]] = true
			}
		}
	}
	count := 0
	for i := len(calls) - 1; i >= 0; i-- {
		if !needed[i] {
			continue
		}
		count++
		if calls[i].caller != nobody {
			needed[calls[i].caller] = true
		}
	}
	f.forest.Calls = slices.Grow(f.forest.Calls, count)
	numbers := make([]int, len(calls))
	for i, c := range calls {
		if needed[i] {
			numbers[i] = f.number(f.call(c, numbers))
		}
	}
	ofLeaves, hashes := make([]int, len(leaves)), d.stacks()
	for leaf, call := range leaves {
		ofLeaves[leaf] = numbers[call]
		if needed[call] {
			f.forest.Calls[numbers[call]].Hash = hashes[leaf]
		}
	}
	return ofLeaves
}

// rehash works out what stacks are called in an answer: of what is damaged the
// store has names of its own.
func (f *forester) rehash() {
	places := make([]profile.Hash, len(f.forest.Places))
	for i := range places {
		places[i] = f.forest.Places[i].Location.Hash()
		f.forest.Places[i].Hash = places[i]
	}
	for i := range f.forest.Calls {
		c := &f.forest.Calls[i]
		if c.Caller < 0 {
			c.Hash = c.End.Hash()
		} else {
			c.Hash = f.forest.Calls[c.Caller].Hash.Call(places[c.Place])
		}
	}
}

// number finds or adds a call of the forest.
func (f *forester) number(c profile.Call) int {
	number := len(f.forest.Calls)
	if f.calls != nil {
		same := [2]int{c.Caller, c.Place}
		if c.Caller < 0 {
			same[1] = int(c.End)
		}
		if known, ok := f.calls[same]; ok {
			return known
		}
		f.calls[same] = number
	}
	f.forest.Calls = append(f.forest.Calls, c)
	return number
}

func (f *forester) call(c call, numbers []int) profile.Call {
	if c.caller == nobody {
		end := c.end()
		return profile.Call{Hash: end.Hash(), Caller: -1, Place: -1, End: end}
	}
	if int(c.place) >= len(f.places) { // it came since
		f.places = append(f.places, make([]int32, int(c.place)+1-len(f.places))...)
	}
	place := &f.places[c.place]
	if *place == 0 {
		f.forest.Places = append(f.forest.Places, f.shelf.tenant.places.at(c.place))
		*place = int32(len(f.forest.Places))
	}
	return profile.Call{Caller: numbers[c.caller], Place: int(*place) - 1}
}

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
