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
	threads  []weighed // that have samples
	total    int64     // of these, and of what was pruned before
	negative bool
}

// choose tells which threads are pruned, if any is.
func choose(w *profile.Window, percent float64, groups []int) (pruned []bool, some bool) {
	pruned = make([]bool, len(w.Threads))
	for _, g := range weigh(w, groups) {
		if g.negative || g.total <= 0 {
			continue
		}
		g.rank(w.Threads)
		kept := int64(0)
		for i, t := range g.threads {
			if i > 0 && 100*float64(kept) >= percent*float64(g.total) {
				pruned[t.thread], some = true, true
			}
			kept += t.weight
		}
	}
	return pruned, some
}

// weigh adds up what was sampled, by threads and groups.
func weigh(w *profile.Window, groups []int) map[int]*group {
	s := scalesOf(w)
	all := map[int]*group{}
	for i := range w.Threads {
		g := all[groups[i]]
		if g == nil {
			g = &group{}
			all[groups[i]] = g
		}
		of, stood := s.weight(s.of[i]), s.weight(s.stood[i])
		g.total += of + stood
		g.negative = g.negative || of < 0 || stood < 0
		if of != 0 {
			g.threads = append(g.threads, weighed{i, of})
		}
	}
	return all
}

// scales are what was sampled on each thread, and what stands for others of its
// process. Rows lie all over memory: they are gone through once.
type scales struct {
	of, stood []sum
	all       int64 // value of all rows
}

type sum struct{ n, value int64 }

func scalesOf(w *profile.Window) *scales {
	s := &scales{of: make([]sum, len(w.Threads)), stood: make([]sum, len(w.Threads))}
	standing := standingStacks(w)
	for i := range w.Rows {
		r := &w.Rows[i]
		value := int64(0)
		if len(r.Values) > 0 {
			value = r.Values[0]
		}
		s.all += value
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

// rank puts threads in the order in which they are kept, the same for each order
// of rows and threads.
func (g *group) rank(threads []profile.Thread) {
	slices.SortFunc(g.threads, func(a, b weighed) int {
		s, t := &threads[a.thread], &threads[b.thread]
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(t.Exact.CPU, s.Exact.CPU), cmp.Compare(s.PID, t.PID),
			cmp.Compare(s.TID, t.TID), cmp.Compare(s.Process, t.Process), cmp.Compare(s.Name, t.Name))
	})
}
