package relay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// part is a window as a server knows it apart from others.
type part struct {
	series, task, kind string
	start              int64
	run                profile.Run
}

// sum is windows of one second, task and kinds of values, added up under the labels
// that are kept. Threads are not. It begins with the first of them.
type sum struct {
	labels    profile.Labels
	head      profile.Head
	scales    []int64              // of each type
	rows      map[cellKey]int32    // numbers of keys, by which cells are found
	keys      []cellKey            // in the order in which they came
	cells     []cell               // for each key, one of each type
	contexts  profile.ContextTable // that keys and exemplars refer to
	exemplars []exemplar
	parts     []part
	series    []*atysv1.Series // of the parts
	from      [][]source       // likewise: an agent that was cut off sends again
}

// source is where a part of a sum comes from: it is a window of a push, or one of
// those that this contains.
type source struct {
	origin
	part int
}

// cellKey is what rows of a sum are told apart by. Most rows of a sum have one of their own: it is
// small, and has no strings.
type cellKey struct {
	stack, peer profile.Hash // no peer is zero
	slot        int64        // when it starts, since 1970; 0: unknown
	context     profile.ContextID
}

// compare orders keys, given the ranks of contexts.
func (k *cellKey) compare(o *cellKey, ranks []int) int {
	if c := bytes.Compare(k.stack[:], o.stack[:]); c != 0 {
		return c // as nearly always
	}
	return cmp.Or(cmp.Compare(ranks[k.context], ranks[o.context]), cmp.Compare(k.slot, o.slot), bytes.Compare(k.peer[:], o.peer[:]))
}

// cell is what rows of one key add up to, of one type.
type cell struct {
	profile.Sum
	groups [store.Groups]int64
}

// exemplar is one of a window, with what it refers to.
type exemplar struct {
	profile.Exemplar // its context is one of the sum
	stack            profile.Hash
	start            time.Time // of its window
}

// sums adds windows up that are passed on together.
type sums struct {
	keep    []string        // labels
	divided bool            // the server takes sums of several types, contexts, peers, exemplars and slots
	needed  bool            // there are such sums
	without map[part]bool   // what the server has already
	out     map[origin]bool // what it refuses
	taken   map[part]*sum   // what is in a sum: an agent that was cut off sends again
	of      map[string]*sum
	keys    []string // in the order in which they came
}

func newSums(keep []string, divided bool, without map[part]bool, out map[origin]bool) *sums {
	return &sums{keep: keep, divided: divided, without: without, out: out, taken: map[part]*sum{}, of: map[string]*sum{}}
}

// add adds the windows of a request that can be, and gives the request without
// them, and where the rest was in it. Those of machines themselves tell when their
// agents watched, and of whom: they go on as they are.
func (s *sums) add(p *push) (rest *atysv1.PushRequest, windows []int) {
	r := p.request
	rest = &atysv1.PushRequest{Series: r.GetSeries()}
	leave := func(i int) {
		rest.Windows, windows = append(rest.Windows, r.GetWindows()[i]), append(windows, i)
	}
	for i, w := range r.GetWindows() {
		from := origin{push: p, window: i}
		if s.out[from] {
			continue
		}
		h, run, err := wire.Head(w)
		labels := profile.Labels(r.GetSeries()[w.GetSeries()].GetLabels())
		if err != nil || labels[store.ServiceLabel] == "" || !addable(&h) || !s.divided && !plain(w, &h) {
			leave(i)
			continue
		}
		wire.SetRight(&h) // as the server would: by its clock they begin together
		parts, series := partsOf(w, h.Start, r.GetSeries(), run)
		if slices.ContainsFunc(parts, func(p part) bool { return s.without[p] }) {
			if len(w.GetContains()) > 0 { // its rows cannot be taken apart: its sender is told
				leave(i)
			}
			continue
		}
		switch again := s.again(parts); {
		case again == len(parts): // all of it is in sums that go with it
			for n, p := range parts {
				s.taken[p].also(p, source{from, n})
			}
			continue
		case again > 0:
			leave(i)
			continue
		}
		into := s.sum(labels, &h)
		into.add(w, &h, p.hashes, store.Group(labels))
		s.needed = s.needed || !plain(w, &h)
		for n, p := range parts {
			s.taken[p] = into
			into.parts, into.series, into.from = append(into.parts, p), append(into.series, series[n]), append(into.from, []source{{from, n}})
		}
	}
	return rest, windows
}

// maxTypes is how many value types a window has that is added up. Each value takes some eighty bytes
// in a sum, and one on the wire.
const maxTypes = 8

// addable reports whether an agent cut a window, and its values add up. Only the server knows
// which pushed windows are the same. Levels do not add up: the store averages those of each series
// over the part of a minute that its windows cover, of which a relay may see some only.
func addable(h *profile.Head) bool {
	return h.Origin == profile.OriginAgent && len(h.Types) > 0 && len(h.Types) <= maxTypes && !slices.ContainsFunc(h.Types, func(t profile.ValueType) bool {
		return t.Temporality != profile.Delta || t.Variance > profile.Measured // of a later version
	})
}

// plain reports whether rows of a window have nothing but a stack and one value. Earlier servers
// refuse sums of others.
func plain(w *atysv1.Window, h *profile.Head) bool {
	return len(h.Types) == 1 && h.Types[0].Variance == profile.FromWeights &&
		len(w.GetRows().GetContext()) == 0 && len(w.GetRows().GetPeer()) == 0 && len(w.GetExemplars()) == 0 &&
		!store.HeatMapSlots(h.Slot)
}

// again counts what is in sums already.
func (s *sums) again(parts []part) (n int) {
	for _, p := range parts {
		if s.taken[p] != nil {
			n++
		}
	}
	return n
}

// also notes that a part has come once more.
func (s *sum) also(p part, from source) {
	i := slices.Index(s.parts, p)
	s.from[i] = append(s.from[i], from)
}

// partsOf lists what a window contains: itself, if it is as it was cut.
func partsOf(w *atysv1.Window, start time.Time, all []*atysv1.Series, run profile.Run) (parts []part, series []*atysv1.Series) {
	kind := w.GetTypes()[0].GetKind()
	add := func(number uint32, after int64, run profile.Run) {
		parts = append(parts, part{profile.Labels(all[number].GetLabels()).String(), w.GetTask(), kind, start.UnixNano() + after, run})
		series = append(series, all[number])
	}
	for _, c := range w.GetContains() {
		add(c.GetSeries(), c.GetAfterNs(), profile.Run(c.GetRun()))
	}
	if len(parts) == 0 {
		add(w.GetSeries(), 0, run)
	}
	return parts, series
}

// sum finds or begins the sum that a window belongs to: that of the second in which
// it begins. Agents cut at the same edges of the clock, nearly always whole seconds,
// but each some moments later, never before: so windows of one edge are of one second.
// No step of the store begins within one: it has the same windows as without a relay. The store puts
// all slots of a window into the period of a heat map in which the first of them starts. So windows
// with slots belong to one sum only if their first slots start in the same second, too.
func (s *sums) sum(labels profile.Labels, h *profile.Head) *sum {
	kept := profile.Labels{}
	for _, name := range s.keep {
		if value, ok := labels[name]; ok {
			kept[name] = value
		}
	}
	if !store.HeatMapSlots(h.Slot) {
		h.Slot = 0 // its slots are of one rate, and a sum has several
	}
	first := h.Start
	if h.Slot > 0 {
		first = h.SlotStart(1)
	}
	key := fmt.Sprint(kept.String(), h.Task, h.Start.Unix(), first.Unix(), h.Slot, h.Design, h.Types)
	into := s.of[key]
	if into == nil {
		into = &sum{labels: kept, head: *h, scales: make([]int64, len(h.Types))}
		s.of[key] = into
		s.keys = append(s.keys, key)
	} else {
		into.head.Absorb(h)
	}
	return into
}

// add adds the rows of a window; values are of a group, if it does not tell them
// by group itself.
func (s *sum) add(w *atysv1.Window, h *profile.Head, hashes []profile.Hash, group int) {
	rows, groups, contexts := wire.Rows(w), wire.Groups(w), idsOf(wire.Contexts(w), &s.contexts)
	if s.rows == nil { // as many at least
		s.rows = make(map[cellKey]int32, rows.Len())
	}
	for t, of := range w.GetTypes() {
		s.scales[t] = store.CommonScale(s.scales[t], of.GetScale())
	}
	for i, row := range rows.All() {
		key := cellKey{stack: hashes[row.Stack], context: contexts[row.Context]}
		if row.Peer != 0 {
			key.peer = hashes[row.Peer-1]
		}
		if h.Slot > 0 && row.Slot > 0 {
			key.slot = h.SlotStart(row.Slot).UnixNano()
		}
		cells := s.cellsOf(key)
		for t := range cells {
			c := &cells[t]
			c.Add(h.Types[t].Variance.Known(row.Sum(t)))
			if groups == nil {
				c.groups[group] += row.Values[t]
				continue
			}
			for g, v := range groups[(i*rows.Types+t)*store.Groups : (i*rows.Types+t+1)*store.Groups] {
				c.groups[g] += v
			}
		}
	}
	for _, e := range wire.Exemplars(w) {
		e.Context = contexts[e.Context]
		s.exemplars = append(s.exemplars, exemplar{e, hashes[e.Stack], h.Start})
	}
}

// cellsOf finds or makes the cells of a key.
func (s *sum) cellsOf(key cellKey) []cell {
	types := len(s.scales)
	number, ok := s.rows[key]
	if !ok {
		number = int32(len(s.keys))
		s.rows[key] = number
		s.keys = append(s.keys, key)
		if len(s.cells)+types > cap(s.cells) { // append would grow it by a quarter, and copy it often
			s.cells = slices.Grow(s.cells, len(s.cells)+types)
		}
		s.cells = append(s.cells, make([]cell, types)...)
	}
	return s.cells[int(number)*types:][:types]
}

// request gives all sums, and the stacks that they name.
func (s *sums) request() (r *atysv1.PushRequest, hashes []profile.Hash, windows []*sum) {
	r = &atysv1.PushRequest{}
	stacks := map[profile.Hash]uint32{}
	for _, key := range s.keys {
		one := s.of[key]
		w := wire.SealHead(&one.head, one.run())
		w.Series = uint32(len(r.Series))
		r.Series = append(r.Series, &atysv1.Series{Labels: one.labels})
		for i, p := range one.parts {
			w.Contains = append(w.Contains, &atysv1.Contained{Series: uint32(len(r.Series)), Run: p.run[:], AfterNs: p.start - w.GetStartUnixNano()})
			r.Series = append(r.Series, one.series[i])
		}
		one.fill(w, func(h profile.Hash) profile.StackID {
			n, ok := stacks[h]
			if !ok {
				n = uint32(len(hashes))
				stacks[h] = n
				hashes = append(hashes, h)
			}
			return profile.StackID(n)
		})
		r.Windows, windows = append(r.Windows, w), append(windows, one)
	}
	return r, hashes, windows
}

// run tells sums apart that contain other windows: the same ones make the same.
func (s *sum) run() (run profile.Run) {
	names := make([]string, len(s.parts))
	for i, p := range s.parts {
		names[i] = fmt.Sprintf("%q %d %x", p.series, p.start, p.run)
	}
	slices.Sort(names)
	hash := sha256.Sum256(fmt.Append(nil, names))
	copy(run[:], hash[:])
	return run
}

// fill sets the rows of a window, what they refer to, and the exemplars. What is in which order
// does not depend on what came first.
func (s *sum) fill(w *atysv1.Window, number func(profile.Hash) profile.StackID) {
	types, ranks := len(s.scales), ranksOf(&s.contexts)
	var contexts profile.ContextTable // of the window: numbered in the order of its rows
	rows, groups := profile.MakeRows(types, len(s.keys)), make([]int64, 0, len(s.cells)*store.Groups)
	context := func(id profile.ContextID) profile.ContextID { return contexts.ID(s.contexts.Context(id)) }
	for t := range w.Types {
		w.Types[t].Scale = s.scales[t]
	}
	for i, from := range s.sorted(ranks) {
		key, cells, row := &s.keys[from], s.cells[int(from)*types:][:types], rows.At(i)
		row.Stack, row.Context, row.N = number(key.stack), context(key.context), cells[0].N
		if key.peer != (profile.Hash{}) {
			row.Peer = profile.PeerID(number(key.peer)) + 1
		}
		if key.slot != 0 {
			row.Slot = uint32((key.slot-s.head.SlotStart(1).UnixNano())/int64(s.head.Slot)) + 1
		}
		for t := range cells {
			row.Values[t], row.Squares[t] = cells[t].Value, cells[t].Squares
			groups = append(groups, cells[t].groups[:]...)
		}
		rows.Set(i, row)
	}
	w.Exemplars = wire.SealExemplars(s.chosen(number, context, ranks))
	w.Contexts = wire.SealContexts(contexts.All())
	w.Rows = wire.SealRows(&rows, w.Types)
	w.Rows.Groups = wire.SealGroups(groups, w.Types)
}

// sorted lists the numbers of keys in the keys' order.
func (s *sum) sorted(ranks []int) []int32 {
	order := make([]int32, len(s.keys))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return s.keys[a].compare(&s.keys[b], ranks) })
	return order
}

// chosen returns the exemplars that one window of all would have.
func (s *sum) chosen(number func(profile.Hash) profile.StackID, context func(profile.ContextID) profile.ContextID, ranks []int) []profile.Exemplar {
	slices.SortFunc(s.exemplars, func(a, b exemplar) int {
		return cmp.Or(bytes.Compare(a.stack[:], b.stack[:]), cmp.Compare(ranks[a.Context], ranks[b.Context]))
	})
	all := make([]profile.Exemplar, len(s.exemplars))
	for i, e := range s.exemplars {
		all[i] = e.Exemplar
		all[i].Stack, all[i].Thread, all[i].Context = profile.StackID(i), 0, 0 // equal ones are chosen by their stacks
		if e.Time != 0 {
			all[i].Time += e.start.Sub(s.head.Start)
		}
	}
	all = profile.ChooseExemplars(all)
	for i := range all {
		e := &s.exemplars[all[i].Stack]
		all[i].Stack, all[i].Context = number(e.stack), context(e.Context)
	}
	return all
}

// idsOf returns the numbers of a window's contexts in a table, by their numbers in the window.
func idsOf(contexts []profile.Context, in *profile.ContextTable) []profile.ContextID {
	ids := make([]profile.ContextID, 1, 1+len(contexts))
	for _, c := range contexts {
		ids = append(ids, in.ID(c))
	}
	return ids
}

// ranksOf returns the places of contexts in their order, by number.
func ranksOf(t *profile.ContextTable) []int {
	order := make([]profile.ContextID, 1+len(t.All()))
	for i := range order {
		order[i] = profile.ContextID(i)
	}
	slices.SortFunc(order, func(a, b profile.ContextID) int { return store.CompareContexts(t.Context(a), t.Context(b)) })
	ranks := make([]int, len(order))
	for rank, id := range order {
		ranks[id] = rank
	}
	return ranks
}
