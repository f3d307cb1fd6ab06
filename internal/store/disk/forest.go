package disk

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// merged makes one forest of all services, and columns over it.
func (a *adder) merged() (*store.Merged, error) {
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
	columns, minutes := map[string]*store.Column{}, map[string]store.Minutes{}
	for _, service := range slices.Sorted(maps.Keys(byService)) {
		keys := byService[service]
		slices.SortFunc(keys, func(x, y sumKey) int { return cmp.Compare(x.column, y.column) })
		d, err := a.shelf.take(service)
		if err != nil {
			return nil, err
		}
		numbers := f.add(d, keys)
		for _, k := range keys {
			s := a.sums[k]
			c := columns[k.column]
			if c == nil {
				c = &store.Column{Key: k.column}
				if a.grouping.Apart > 0 {
					c.Instances = []store.OfInstance{}
				}
				columns[k.column] = c
			}
			absorb(&c.Head, c.Windows, &s.head, s.windows)
			c.Windows += s.windows
			if s.minutes != nil {
				if minutes[k.column] == nil {
					minutes[k.column] = store.Minutes{}
				}
				maps.Copy(minutes[k.column], s.minutes)
			}
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
	m := &store.Merged{Forest: f.forest, Damaged: a.shelf.damage(a.damaged)}
	for _, c := range columns {
		if f.calls != nil {
			c.Sums = folded(c.Sums)
		}
		if of := minutes[c.Key]; of != nil {
			c.Average(of)
		}
		m.Columns = append(m.Columns, *c)
	}
	if a.grouping.Divides() {
		m.Divided(store.Column{Head: a.whole.head, Windows: a.whole.windows})
	}
	slices.SortFunc(m.Columns, func(x, y store.Column) int { return strings.Compare(x.Key, y.Key) })
	return m, nil
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
