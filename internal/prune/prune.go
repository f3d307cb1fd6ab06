// Package prune takes samples of threads that hardly matter together, and leaves out of them what nothing else needs.
//
//	samples of each thread -> the fewest threads that make up P% of them (choose.go)
//	   -> the others: one thread for each process, [pruned threads] (fold.go)
//	      stacks that something is on too that stays are left as they are
//	      of the rest what called their leaf is cut off, and the leaf as well where its
//	      function is small, or has enough without it (tell.go)
//	   -> what nothing needs any more is dropped (drop.go)
//	how unevenly threads share a window's samples, what pruning does to shares (measure.go)
//
// It comes before naming, encoding and shipping, and saves these what they would
// do for the rest: in a service of a thousand threads half of them may have one
// sample in a hundred, on stacks that nobody else is on. Totals stay what they were, in
// each process and at each time, since what is left out is counted; so no function's
// share can be off by more than the share of what was cut, which is Share.
package prune

import (
	"fmt"
	"slices"
	"strconv"

	"atys.dev/atys/internal/profile"
)

// Name is the thread that threads which were pruned have become, and the function that
// stands for what was cut off their stacks. No thread can call itself so: names that
// processes give have 15 bytes at most.
const Name = "[pruned threads]"

// MinLevel and MaxLevel bound of how many percent of the samples the threads are
// kept; at MaxLevel all are.
const (
	MinLevel = 80
	MaxLevel = 100
)

// Stands tells whether a location stands for what was cut off stacks.
func Stands(l profile.Location) bool { return l.Name == Name && l.BuildID == "" }

// Window leaves in a window the threads that make up so many percent of the samples,
// and one in place of the others of each process. It works where the window is: nobody
// else may have any of it.
//
// Samples of the others stay on their stacks where samples that stay are on them too.
// Those of other stacks are on Name, and so is the function that they are in if it has
// one sample of its group in three thousand, and would lose more than half as large a part of
// itself as may be lost of all, which at P99 is half a percent. What is no function yet,
// since names are looked for afterwards, counts as the 256 bytes of code that it lies in.
//
// Where less than one in twenty of a group's threads would go, by the time that they used
// or by their samples, all of it stays, and all of the window where they have less than
// one in a hundred of its rows.
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
//     negative ones (as a difference has), stays as it is; so does one that was pruned
//     before.
//   - Threads that used CPU time without being sampled stay: nothing is known of
//     what they did, but the time is exact.
//   - Samples of no thread stay: nobody knows whose they are. They count in no group.
//
// Rows of threads that were pruned are of no context, but keep their slot.
func Window(w *profile.Window, percent float64, groups []int) {
	if percent >= MaxLevel || len(w.Threads) == 0 {
		return
	}
	if groups == nil {
		groups = byProcess(w.Threads)
	}
	if c := choose(w, percent, groups); c != nil {
		fold(w, c, detail(percent))
	}
}

// Level writes a percentage as the paper of Atys does: P99.9.
func Level(percent float64) string { return "P" + strconv.FormatFloat(percent, 'f', -1, 64) }

// detail is what losses say of threads that were pruned.
func detail(percent float64) string { return fmt.Sprintf("threads outside %s", Level(percent)) }

// byProcess puts threads of processes of one name in one group.
func byProcess(threads []profile.Thread) []int {
	groups, numbers := make([]int, len(threads)), map[string]int{}
	for i := range threads {
		process := threads[i].Process
		if i > 0 && process == threads[i-1].Process {
			groups[i] = groups[i-1]
			continue
		}
		number, ok := numbers[process]
		if !ok {
			number = len(numbers)
			numbers[process] = number
		}
		groups[i] = number
	}
	return groups
}

// Share is the part of a window's values of one type that is on stacks which were cut:
// no function's share can be off by more.
func Share(w *profile.Window, valueType int) float64 {
	return Part(Sum(w, valueType), w.Total(valueType))
}

// Sum adds up a window's values of one type that are on stacks which were cut.
func Sum(w *profile.Window, valueType int) (pruned int64) {
	standing := standingStacks(w)
	if standing == nil {
		return 0
	}
	for _, r := range w.Rows.All() {
		if standing.has(r.Stack) && valueType < len(r.Values) {
			pruned += r.Values[valueType]
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

// standing are the stacks of a window that were cut; nil: none was.
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
