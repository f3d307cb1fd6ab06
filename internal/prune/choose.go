package prune

import (
	"cmp"
	"slices"

	"atys.dev/atys/internal/profile"
)

// Pruning fewer than one in fewThreads of a group's threads, or one in fewRows of a window's
// rows, costs more time than it saves.
const (
	fewThreads = 20
	fewRows    = 100
)

// choice is which threads are pruned.
type choice struct {
	pruned []bool         // by thread of the window
	groups []*prunedGroup // by thread; nil: nothing of its group is pruned
	scale  scale
}

// choose selects threads to prune; nil if there are none.
func choose(w *profile.Window, percent float64, groups []int) *choice {
	even := evenGroups(w.Threads, percent, groups)
	if len(even) > 0 && !slices.ContainsFunc(groups, func(group int) bool { return !even[group] }) {
		return nil // no row is looked at
	}
	sampled, scale := sampledOn(w)
	c := &choice{pruned: make([]bool, len(w.Threads)), groups: make([]*prunedGroup, len(w.Threads)), scale: scale}
	rows, of := 0, map[int]*prunedGroup{}
	for number, g := range weigh(w, sampled, scale, groups) {
		if g.keep || even[number] {
			continue
		}
		g.rank(w.Threads)
		threads := g.outside(percent)
		if len(threads) == 0 || len(threads)*fewThreads < len(g.threads) {
			continue
		}
		of[number] = &prunedGroup{percent: percent, all: g.total}
		for _, t := range threads {
			c.pruned[t.thread] = true
			rows += sampled[t.thread].rows
		}
	}
	if rows == 0 || rows*fewRows < w.Rows.Len() {
		return nil
	}
	for i, group := range groups {
		c.groups[i] = of[group]
	}
	return c
}

// evenGroups finds groups whose threads used such equal CPU times that few would be pruned.
// CPU times are exact, and there are far fewer threads than rows.
func evenGroups(threads []profile.Thread, percent float64, groups []int) map[int]bool {
	used := map[int]*[]int64{}
	var times *[]int64 // of the group, which mostly is that of the thread before
	for i := range threads {
		if group := groups[i]; i == 0 || group != groups[i-1] {
			if times = used[group]; times == nil {
				times = new([]int64)
				used[group] = times
			}
		}
		if cpu := threads[i].Exact.CPU; cpu > 0 {
			*times = append(*times, int64(cpu))
		}
	}
	even := map[int]bool{}
	for number, times := range used {
		if len(*times) >= fewThreads && few(*times, percent) {
			even[number] = true
		}
	}
	return even
}

// few reports whether only few times are outside the largest that make up the percentage
// of the sum. Mostly it decides without sorting them.
func few(times []int64, percent float64) bool {
	all, least := 0.0, (len(times)+fewThreads-1)/fewThreads // few are less than the least
	for _, t := range times {
		all += float64(t)
	}
	beyond := all * (MaxLevel - percent) / 100
	small, smaller := 0, 0 // twice the part of each of the least of what is beyond, or less; that part, or less
	for _, t := range times {
		if part := float64(t) * float64(least); part <= 2*beyond {
			if small++; part <= beyond {
				smaller++
			}
		}
	}
	switch {
	case smaller > least: // the least are beyond together, and one stays
		return false
	case 2*small <= least: // half of the least are too much already
		return true
	}
	slices.Sort(times)
	outside := 0.0
	for _, t := range times[:least] {
		outside += float64(t)
	}
	return outside > beyond
}

// group is threads that are compared with each other.
type group struct {
	threads []weighed // that have samples
	total   int64     // of these
	keep    bool      // prune nothing: it has negative values, or was pruned before
}

// weighed is what was sampled on a thread.
type weighed struct {
	thread int // of the window's
	weight int64
}

// weigh adds up what was sampled, by threads and groups.
func weigh(w *profile.Window, sampled []sum, scale scale, groups []int) map[int]*group {
	all := map[int]*group{}
	for i, on := range sampled {
		g := all[groups[i]]
		if g == nil {
			g = &group{}
			all[groups[i]] = g
		}
		weight := scale.sum(on)
		g.total += weight
		g.keep = g.keep || on.negative || on.rows > 0 && (on.cut || w.Threads[i].Pruned)
		if weight != 0 {
			g.threads = append(g.threads, weighed{i, weight})
		}
	}
	return all
}

// rank puts threads in the order in which they are kept, the same for each order
// of rows and threads.
func (g *group) rank(threads []profile.Thread) {
	slices.SortFunc(g.threads, func(a, b weighed) int {
		if c := cmp.Compare(b.weight, a.weight); c != 0 {
			return c
		}
		s, t := &threads[a.thread], &threads[b.thread]
		return cmp.Or(cmp.Compare(t.Exact.CPU, s.Exact.CPU), cmp.Compare(s.PID, t.PID), cmp.Compare(s.TID, t.TID),
			cmp.Compare(s.Process, t.Process), cmp.Compare(s.Name, t.Name))
	})
}

// outside are the threads beyond those that make up so many percent, in their order.
func (g *group) outside(percent float64) []weighed {
	kept := int64(0)
	for i, t := range g.threads {
		if i > 0 && 100*float64(kept) >= percent*float64(g.total) {
			return g.threads[i:]
		}
		kept += t.weight
	}
	return nil
}

// sum is what was sampled on a thread.
type sum struct {
	rows     int
	n, value int64
	negative bool // some of it is
	cut      bool // some of it is on stacks that were cut
}

// sampledOn adds up a window's rows by thread, and returns the scale to compare them by.
func sampledOn(w *profile.Window) (of []sum, by scale) {
	of = make([]sum, len(w.Threads))
	cut := findCutStacks(w)
	each, known, alike := int64(0), false, true
	for _, r := range w.Rows.All() {
		if r.Thread == 0 {
			continue
		}
		value, s := first(r), &of[r.Thread-1]
		s.rows++
		s.n += r.N
		s.value += value
		s.negative = s.negative || r.N < 0 || value < 0
		s.cut = s.cut || cut.has(r.Stack)
		if !known && r.N != 0 {
			each, known = value/r.N, true
		}
		alike = alike && value == each*r.N
	}
	return of, scale{values: !alike}
}

// scale is by what threads and rows are compared: by their values, or by their samples
// where each has the same, or none has any.
type scale struct{ values bool }

func (s scale) sum(of sum) int64 {
	if s.values {
		return of.value
	}
	return of.n
}

func (s scale) row(r profile.Row) int64 {
	if s.values {
		return first(r)
	}
	return r.N
}

// first is a row's value of the first type, if it has any.
func first(r profile.Row) int64 {
	if len(r.Values) == 0 {
		return 0
	}
	return r.Values[0]
}
