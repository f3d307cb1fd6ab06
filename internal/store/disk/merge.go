package disk

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Merge adds windows up; see store.Store.
func (s *Store) Merge(ctx context.Context, tenant string, q store.Query, kind string, g store.Grouping) (*store.Merged, error) {
	t, err := s.tenant(tenant)
	if err != nil {
		return nil, err
	}
	numbers, all := t.chosen(q)
	work := make(chan uint32)
	adders := make([]*adder, min(runtime.GOMAXPROCS(0), max(len(numbers), 1)))
	failed := make([]error, len(adders))
	var done sync.WaitGroup
	for i := range adders {
		adders[i] = &adder{store: s, tenant: t, query: q, kind: kind, grouping: g, sums: map[sumKey]*sums{}}
		done.Go(func() {
			for n := range work {
				if failed[i] == nil {
					failed[i] = adders[i].series(ctx, n, all[n])
				}
			}
		})
	}
	for _, n := range numbers {
		work <- n
	}
	close(work)
	done.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	for _, a := range adders[1:] {
		adders[0].absorb(a)
	}
	return adders[0].merged()
}

// adder adds the windows of some series up.
type adder struct {
	store    *Store
	tenant   *tenant
	query    store.Query
	kind     string
	grouping store.Grouping
	sums     map[sumKey]*sums

	columns columns
}

// sumKey is a column of one service.
type sumKey struct{ column, service string }

// sums are what was added up, by call.
type sums struct {
	head    profile.Head
	windows int
	n       []int64
	squares []float64
	groups  [store.Groups][]int64 // a group that no row was of is nil
}

// series adds one series up. At the raw level all of it is of one group.
func (a *adder) series(ctx context.Context, number uint32, of series) error {
	a.tenant.mu.Lock()
	d, err := a.store.dictionary(a.tenant, of.service)
	a.tenant.mu.Unlock()
	if err != nil {
		return err
	}
	h := fnv.New32a()
	h.Write([]byte(of.written)) // never fails
	group := int(h.Sum32() % store.Groups)
	return a.store.windows(ctx, a.tenant, a.query, number, of, func(key []byte, w window, start time.Time, task string, _ profile.Run) error {
		size := len(d.all())
		if !a.columns.read(w, a.kind, size, a.grouping.Thread != nil) {
			a.store.log.Error("a window is damaged", "series", of.written, "start", start)
			return nil
		}
		if a.columns.absent {
			return nil
		}
		head := &a.columns.head
		head.Start, head.Task, head.Target = start, task, of.labels
		column := ""
		if a.grouping.Key != nil {
			column = a.grouping.Key(of.labels, head)
		}
		a.add(column, of.service, group, size)
		return nil
	})
}

// add adds the window that was read to its column, or to one for each thread.
func (a *adder) add(column, service string, group, size int) {
	c := &a.columns
	if a.grouping.Thread == nil {
		s := a.column(column, service, size)
		s.absorb(&c.head)
		s.add(c, group, nil, 0)
		return
	}
	names := make([]string, len(c.threads)+1)
	for i, t := range c.threads {
		names[i+1] = a.grouping.Thread(t)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		s := a.column(column+name, service, size)
		s.absorb(threadHead(c, names, name))
		for i := range names {
			if names[i] == name {
				s.add(c, group, c.thread, uint32(i))
			}
		}
	}
}

// threadHead is a window's head as it is of some of its threads.
func threadHead(c *columns, names []string, name string) *profile.Head {
	h := c.head
	h.Exact, h.Idle, h.Watched, h.Losses = profile.Exact{}, 0, 0, nil
	for i, t := range c.threads {
		if names[i+1] == name {
			h.Exact.Add(t.Exact)
		}
	}
	return &h
}

func (a *adder) column(column, service string, size int) *sums {
	k := sumKey{column, service}
	s := a.sums[k]
	if s == nil {
		s = &sums{}
		a.sums[k] = s
	}
	s.grow(size)
	return s
}

// grow makes room for as many calls.
func (s *sums) grow(size int) {
	if size <= len(s.n) {
		return
	}
	size += size / 8 // dictionaries grow while windows come
	s.n = append(s.n, make([]int64, size-len(s.n))...)
	s.squares = append(s.squares, make([]float64, size-len(s.squares))...)
	for g := range s.groups {
		if s.groups[g] != nil {
			s.groups[g] = append(s.groups[g], make([]int64, size-len(s.groups[g]))...)
		}
	}
}

func (s *sums) group(g int) []int64 {
	if s.groups[g] == nil {
		s.groups[g] = make([]int64, len(s.n))
	}
	return s.groups[g]
}

func (s *sums) absorb(h *profile.Head) {
	if s.windows == 0 {
		s.head = *h
		s.head.Types, s.head.Target = slices.Clone(h.Types), maps.Clone(h.Target)
		s.head.Losses, s.head.Comments = slices.Clone(h.Losses), slices.Clone(h.Comments)
	} else {
		s.head.Absorb(h)
	}
	s.windows++
}

// add adds the rows of one thread, or all of them.
func (s *sums) add(c *columns, group int, threads []uint32, thread uint32) {
	all := threads == nil
	if !all && len(threads) == 0 { // no row has a thread
		if thread != 0 {
			return
		}
		all = true
	}
	into := s.group(group)
	scale := c.scale
	for i, call := range c.calls {
		if !all && threads[i] != thread {
			continue
		}
		n, value := c.n[i], c.value[i]*scale
		s.n[call] += n
		if c.groups == nil {
			into[call] += value
		} else {
			for g, v := range c.groups[i*store.Groups : (i+1)*store.Groups] {
				if v != 0 {
					s.group(g)[call] += v * scale
				}
			}
		}
		square := float64(value) * float64(value)
		if n > 1 {
			square /= float64(n)
		}
		if c.spread != nil {
			square += float64(c.spread[i]) * float64(scale) * float64(scale)
		}
		s.squares[call] += square
	}
}

// absorb adds what another adder has.
func (a *adder) absorb(o *adder) {
	for k, s := range o.sums {
		mine := a.sums[k]
		if mine == nil {
			a.sums[k] = s
			continue
		}
		mine.grow(len(s.n))
		mine.head.Absorb(&s.head)
		mine.windows += s.windows
		for i, n := range s.n {
			mine.n[i] += n
			mine.squares[i] += s.squares[i]
		}
		for g, values := range s.groups {
			if values != nil {
				into := mine.group(g)
				for i, v := range values {
					into[i] += v
				}
			}
		}
	}
}

// merged makes one forest of all services, and columns over it.
func (a *adder) merged() (*store.Merged, error) {
	f := forester{adder: a, forest: &profile.Forest{}, places: map[uint32]int{}, calls: map[[2]int]int{}}
	byService := map[string][]sumKey{}
	for k := range a.sums {
		byService[k.service] = append(byService[k.service], k)
	}
	columns := map[string]*store.Column{}
	for _, service := range slices.Sorted(maps.Keys(byService)) {
		keys := byService[service]
		slices.SortFunc(keys, func(x, y sumKey) int { return cmp.Compare(x.column, y.column) })
		numbers := f.add(a.tenant.dictionaryOf(service), keys)
		for _, k := range keys {
			s := a.sums[k]
			c := columns[k.column]
			if c == nil {
				c = &store.Column{Key: k.column, Head: s.head}
				columns[k.column] = c
			} else {
				c.Head.Absorb(&s.head)
			}
			c.Windows += s.windows
			c.Sums = s.appendTo(c.Sums, numbers)
		}
	}
	m := &store.Merged{Forest: f.forest}
	for _, c := range columns {
		if len(byService) > 1 {
			c.Sums = folded(c.Sums)
		}
		m.Columns = append(m.Columns, *c)
	}
	slices.SortFunc(m.Columns, func(x, y store.Column) int { return strings.Compare(x.Key, y.Key) })
	return m, nil
}

func (t *tenant) dictionaryOf(service string) *dictionary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dictionaries[service]
}

func (s *sums) appendTo(out []store.Sum, numbers []int) []store.Sum {
	for call, n := range s.n {
		if n == 0 && s.squares[call] == 0 {
			continue
		}
		sum := store.Sum{Call: numbers[call], N: n, Squares: s.squares[call]}
		for g, values := range s.groups {
			if values != nil {
				sum.Groups[g] = values[call]
				sum.Value += values[call]
			}
		}
		out = append(out, sum)
	}
	return out
}

// folded adds up what several services have of one stack.
func folded(sums []store.Sum) []store.Sum {
	slices.SortFunc(sums, func(a, b store.Sum) int { return cmp.Compare(a.Call, b.Call) })
	out := sums[:0]
	for _, s := range sums {
		if n := len(out) - 1; n >= 0 && out[n].Call == s.Call {
			out[n].N += s.N
			out[n].Value += s.Value
			out[n].Squares += s.Squares
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
	places map[uint32]int // of the tenant, in the forest
	calls  map[[2]int]int // by caller and place, or end: services share stacks
}

// add adds the calls of a service that columns need, and gives their numbers in
// the forest.
func (f *forester) add(d *dictionary, keys []sumKey) []int {
	calls := d.all()
	needed := make([]bool, len(calls))
	for _, k := range keys {
		s := f.sums[k]
		for call, n := range s.n[:min(len(s.n), len(calls))] {
			if n != 0 || s.squares[call] != 0 {
				needed[call] = true
			}
		}
	}
	for i := len(calls) - 1; i >= 0; i-- {
		if needed[i] && calls[i].caller != nobody {
			needed[calls[i].caller] = true
		}
	}
	numbers := make([]int, len(calls))
	for i, c := range calls {
		if !needed[i] {
			continue
		}
		call := f.call(c, numbers)
		same := [2]int{call.Caller, call.Place}
		if call.Caller < 0 {
			same[1] = int(call.End)
		}
		number, ok := f.calls[same]
		if !ok {
			number = len(f.forest.Calls)
			f.calls[same] = number
			f.forest.Calls = append(f.forest.Calls, call)
		}
		numbers[i] = number
	}
	return numbers
}

func (f *forester) call(c call, numbers []int) profile.Call {
	if c.caller == nobody {
		end := profile.End(c.place)
		return profile.Call{Hash: end.Hash(), Caller: -1, Place: -1, End: end}
	}
	place, ok := f.places[c.place]
	if !ok {
		place = len(f.forest.Places)
		f.places[c.place] = place
		f.forest.Places = append(f.forest.Places, f.tenant.places.at(c.place))
	}
	return profile.Call{Caller: numbers[c.caller], Place: place}
}
