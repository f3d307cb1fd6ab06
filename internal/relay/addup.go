package relay

import (
	"crypto/sha256"
	"fmt"
	"maps"
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

// sum is windows of one second, task and kind of values, added up under the labels
// that are kept. Threads and contexts are not. It begins with the first of them.
type sum struct {
	labels profile.Labels
	head   profile.Head
	scale  int64
	cells  map[profile.Hash]*cell
	parts  []part
	series []*atysv1.Series // of the parts
	from   [][]source       // likewise: an agent that was cut off sends again
}

// source is where a part of a sum comes from: it is a window of a push, or one of
// those that this contains.
type source struct {
	origin
	part int
}

// cell is what was sampled on one stack.
type cell struct {
	profile.Sum
	groups [store.Groups]int64
}

// sums adds windows up that are passed on together.
type sums struct {
	keep    []string        // labels
	without map[part]bool   // what the server has already
	out     map[origin]bool // what it refuses
	taken   map[part]*sum   // what is in a sum: an agent that was cut off sends again
	of      map[string]*sum
	keys    []string // in the order in which they came
}

func newSums(keep []string, without map[part]bool, out map[origin]bool) *sums {
	return &sums{keep: keep, without: without, out: out, taken: map[part]*sum{}, of: map[string]*sum{}}
}

// add adds the windows of a request that can be, and gives the request without
// them, and where the rest was in it. Those of machines themselves tell when their
// agents watched, and of whom: they go on as they are, as do windows of several
// kinds of values.
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
		if err != nil || labels[store.ServiceLabel] == "" || !plain(w, &h) {
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
		into.add(w, p.hashes, store.Group(labels))
		for n, p := range parts {
			s.taken[p] = into
			into.parts, into.series, into.from = append(into.parts, p), append(into.series, series[n]), append(into.from, []source{{from, n}})
		}
	}
	return rest, windows
}

// plain reports whether an agent cut a window, and its rows have nothing but a stack and one
// value that adds up. All others are forwarded as they are: a sum would have to tell their
// contexts, peers and minutes apart, and servers of earlier versions would refuse it. Only the
// server knows which pushed windows are the same.
func plain(w *atysv1.Window, h *profile.Head) bool {
	return h.Origin == profile.OriginAgent && len(h.Types) == 1 && h.Types[0].Temporality == profile.Delta && h.Types[0].Variance == profile.FromWeights &&
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
// No step of the store begins within one: it has the same windows as without a relay.
func (s *sums) sum(labels profile.Labels, h *profile.Head) *sum {
	kept := profile.Labels{}
	for _, name := range s.keep {
		if value, ok := labels[name]; ok {
			kept[name] = value
		}
	}
	key := fmt.Sprint(kept.String(), h.Task, h.Start.Unix(), h.Design, h.Types)
	into := s.of[key]
	if into == nil {
		into = &sum{labels: kept, head: *h, cells: map[profile.Hash]*cell{}}
		into.head.Slot = 0 // rows are not told apart by slots any more
		s.of[key] = into
		s.keys = append(s.keys, key)
	} else {
		into.head.Absorb(h)
	}
	return into
}

// add adds the rows of a window; values are of a group, if it does not tell them
// by group itself.
func (s *sum) add(w *atysv1.Window, hashes []profile.Hash, group int) {
	rows, groups, scale := wire.Rows(w), w.GetRows().GetGroups(), w.GetTypes()[0].GetScale()
	s.scale = store.CommonScale(s.scale, scale)
	for i, row := range rows.All() {
		c := s.cells[hashes[row.Stack]]
		if c == nil {
			c = &cell{}
			s.cells[hashes[row.Stack]] = c
		}
		c.Add(row.Sum(0))
		if len(groups) == 0 {
			c.groups[group] += row.Values[0]
			continue
		}
		for g := range c.groups {
			c.groups[g] += groups[i*store.Groups+g] * scale
		}
	}
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
		w.Types[0].Scale = one.scale
		w.Rows = one.rows(w.Types, func(h profile.Hash) uint32 {
			n, ok := stacks[h]
			if !ok {
				n = uint32(len(hashes))
				stacks[h] = n
				hashes = append(hashes, h)
			}
			return n
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

func (s *sum) rows(types []*atysv1.ValueType, number func(profile.Hash) uint32) *atysv1.Rows {
	rows, groups := profile.RowsOf(1), []int64(nil)
	hashes := slices.SortedFunc(maps.Keys(s.cells), func(a, b profile.Hash) int { return slices.Compare(a[:], b[:]) })
	for _, h := range hashes {
		c := s.cells[h]
		rows.Append(profile.Row{Stack: profile.StackID(number(h)), N: c.N, Values: []int64{c.Value}, Squares: []float64{c.Squares}})
		for _, v := range c.groups {
			groups = append(groups, v/s.scale)
		}
	}
	m := wire.SealRows(&rows, types)
	m.Groups = groups
	return m
}
