package prune

import (
	"cmp"
	"slices"

	"atys.dev/atys/internal/profile"
)

// weighed is what was sampled on a thread.
type weighed struct {
	thread int // of the window's
	weight int64
}

// group is threads that are weighed against each other.
type group struct {
	threads []weighed // that have samples
	total   int64     // of these
	stays   bool      // as it is: it has negative values, or was pruned before
}

// fewThreads is the part of a group's threads that is too little to go: to leave out one
// in twenty takes longer than that saves.
const fewThreads = 20

// choose tells which threads are pruned, if any is.
func choose(w *profile.Window, percent float64, groups []int) (pruned []bool, some bool) {
	even := evenGroups(w.Threads, percent, groups)
	if len(even) > 0 && !slices.ContainsFunc(groups, func(group int) bool { return !even[group] }) {
		return nil, false // no row is looked at
	}
	scales, outside := scalesOf(w), map[int][]int{}
	for number, g := range weigh(scales, groups) {
		if g.stays || even[number] {
			continue
		}
		g.rank(w.Threads)
		if threads := g.outside(percent); len(threads)*fewThreads >= len(g.threads) && len(threads) > 0 {
			outside[number] = threads
		}
	}
	if len(outside) == 0 {
		return nil, false
	}
	pruned = spare(w, percent, groups, scales, outside)
	return pruned, slices.Contains(pruned, true)
}

// evenGroups lists groups of threads so much alike that few would go, by the time that
// they used: it is known exactly, and of few threads where there are many rows.
func evenGroups(threads []profile.Thread, percent float64, groups []int) map[int]bool {
	all := map[int]*group{}
	for i, t := range threads {
		g := all[groups[i]]
		if g == nil {
			g = &group{}
			all[groups[i]] = g
		}
		if used := int64(t.Exact.CPU); used > 0 {
			g.total += used
			g.threads = append(g.threads, weighed{i, used})
		}
	}
	even := map[int]bool{}
	for number, g := range all {
		slices.SortFunc(g.threads, func(a, b weighed) int { return cmp.Compare(b.weight, a.weight) })
		if len(g.threads) >= fewThreads && len(g.outside(percent))*fewThreads < len(g.threads) {
			even[number] = true
		}
	}
	return even
}

// outside are the threads beyond those that make up so many percent, in their order.
func (g *group) outside(percent float64) (threads []int) {
	kept := int64(0)
	for i, t := range g.threads {
		if i > 0 && 100*float64(kept) >= percent*float64(g.total) {
			threads = append(threads, t.thread)
		}
		kept += t.weight
	}
	return threads
}

// weigh adds up what was sampled, by threads and groups.
func weigh(s *scales, groups []int) map[int]*group {
	all := map[int]*group{}
	for i, of := range s.of {
		g := all[groups[i]]
		if g == nil {
			g = &group{}
			all[groups[i]] = g
		}
		weight, stood := s.weight(of), s.weight(s.stood[i])
		g.total += weight
		g.stays = g.stays || weight < 0 || stood != 0
		if weight != 0 {
			g.threads = append(g.threads, weighed{i, weight})
		}
	}
	return all
}

// scales are what was sampled on each thread, and what stands for others of its
// process. Rows lie all over memory: they are gone through once.
type scales struct {
	of, stood []sum
	all       int64   // value of all rows
	values    []int64 // of each row
}

type sum struct{ n, value int64 }

func scalesOf(w *profile.Window) *scales {
	s := &scales{of: make([]sum, len(w.Threads)), stood: make([]sum, len(w.Threads)), values: make([]int64, len(w.Rows))}
	standing := standingStacks(w)
	for i := range w.Rows {
		r := &w.Rows[i]
		value := int64(0)
		if len(r.Values) > 0 {
			value = r.Values[0]
		}
		s.all += value
		s.values[i] = value
		if r.Thread == 0 {
			continue
		}
		into := &s.of[r.Thread-1]
		if standing.has(r.Stack) {
			into = &s.stood[r.Thread-1]
		}
		into.n, into.value = into.n+r.N, into.value+value
	}
	return s
}

// weight is by what threads are compared.
func (s *scales) weight(of sum) int64 {
	if s.all != 0 {
		return of.value
	}
	return of.n
}

// weightOf is that of a row.
func (s *scales) weightOf(w *profile.Window, row int) int64 {
	if s.all != 0 {
		return s.values[row]
	}
	return w.Rows[row].N
}

// rank puts threads in the order in which they are kept, the same for each order
// of rows and threads.
func (g *group) rank(threads []profile.Thread) {
	slices.SortFunc(g.threads, func(a, b weighed) int {
		s, t := &threads[a.thread], &threads[b.thread]
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(t.Exact.CPU, s.Exact.CPU), cmp.Compare(s.PID, t.PID),
			cmp.Compare(s.TID, t.TID), cmp.Compare(s.Process, t.Process), cmp.Compare(s.Name, t.Name))
	})
}
