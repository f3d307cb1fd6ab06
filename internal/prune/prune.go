// Package prune leaves out of a window what was sampled on threads that hardly matter, and keeps count of it.
//
//	samples of each thread -> the fewest threads that make up P% of them (choose.go)
//	   -> and those of the others without which a function would lose too much (spare.go)
//	   -> the rest: one row for each process, on the stack [pruned threads] (fold.go)
//	how unevenly threads share a window's samples, what pruning does to shares (measure.go)
//
// It comes before naming, encoding and shipping, and saves these what they would
// do for the rest: in a service of a thousand threads half of them may have one
// sample in a hundred. Totals stay what they were, in each process and at each
// time, since what is left out is counted; so no function's share can be off by
// more than the share of the row that stands for it, which is Share.
package prune

import (
	"fmt"
	"slices"
	"strconv"

	"atys.dev/atys/internal/profile"
)

// Name is the function that stands for threads that were pruned, and the name of
// the thread that they have become. No thread can call itself so: names that
// processes give have 15 bytes at most.
const Name = "[pruned threads]"

// MinLevel and MaxLevel bound of how many percent of the samples the threads are
// kept; at MaxLevel all are.
const (
	MinLevel = 80
	MaxLevel = 100
)

// Stands tells whether a location is that of threads that were pruned.
func Stands(l profile.Location) bool { return l.Name == Name && l.BuildID == "" }

// Window leaves in a window the threads that make up so many percent of the samples,
// and one row in place of the others of each process. It works where the window is:
// nobody else may have any of it.
//
// Of the others stay those without which one of the fifty largest functions would lose
// more than may be lost of all samples, which at P99 is one percent of itself. What is
// no function yet, since names are looked for afterwards, counts as the 256 bytes of
// code that it lies in. And where less than one in twenty of a group's threads would go,
// by the time that they used or by their samples, all of it stays.
//
// Threads of one group are weighed against each other, those of different groups
// never: groups[i] is that of Threads[i], and all of a process are in one. No
// groups are one for each name of a process.
//
//   - Samples count by their weight (of the first type of values), or each as one
//     where weights come to nothing.
//   - Of threads with as many samples, those stay that used more CPU time by the
//     kernel's account, then those of lower numbers.
//   - One thread of a group stays at least. A group without samples, or with
//     negative ones (of a difference), stays as it is; so does one that was pruned
//     before: of what is left of it nobody knows what its functions had.
//   - Threads that used CPU time without being sampled stay: nothing is known of
//     what they did, but the time is exact.
//   - Samples of no thread stay: nobody knows whose they are. They count in no group.
//
// Rows that stand for threads are of no context, but keep their slot.
func Window(w *profile.Window, percent float64, groups []int) {
	if percent >= MaxLevel || len(w.Threads) == 0 {
		return
	}
	if groups == nil {
		groups = byProcess(w.Threads)
	}
	if pruned, some := choose(w, percent, groups); some {
		fold(w, pruned, detail(percent))
	}
}

// Level writes a percentage as the paper of Atys does: P99.9.
func Level(percent float64) string { return "P" + strconv.FormatFloat(percent, 'f', -1, 64) }

// detail is what losses say of threads that were pruned.
func detail(percent float64) string { return fmt.Sprintf("threads outside %s", Level(percent)) }

// byProcess puts threads of processes of one name in one group.
func byProcess(threads []profile.Thread) []int {
	groups, numbers := make([]int, len(threads)), map[string]int{}
	for i, t := range threads {
		number, ok := numbers[t.Process]
		if !ok {
			number = len(numbers)
			numbers[t.Process] = number
		}
		groups[i] = number
	}
	return groups
}

// Share is the part of a window's values of one type that stands for threads that
// were pruned: no function's share can be off by more.
func Share(w *profile.Window, valueType int) float64 {
	return Part(Sum(w, valueType), w.Total(valueType))
}

// Sum adds up a window's values of one type that stand for threads that were pruned.
func Sum(w *profile.Window, valueType int) (pruned int64) {
	standing := standingStacks(w)
	if standing == nil {
		return 0
	}
	for i := range w.Rows {
		if standing.has(w.Rows[i].Stack) {
			pruned += w.Rows[i].Values[valueType]
		}
	}
	return pruned
}

// Part is what share some of all is: nothing of nothing.
func Part(some, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(some) / float64(all)
}

// standing are the stacks of a window that stand for threads; nil: none does.
type standing []bool

// standingStacks finds them. Other tools may have put something below, or on top.
func standingStacks(w *profile.Window) standing {
	if !slices.ContainsFunc(w.Locations, Stands) {
		return nil
	}
	s := make(standing, len(w.Stacks))
	for i, stack := range w.Stacks {
		s[i] = slices.ContainsFunc(stack.Locations, func(l profile.LocationID) bool { return Stands(w.Locations[l]) })
	}
	return s
}

func (s standing) has(stack profile.StackID) bool { return s != nil && s[stack] }
