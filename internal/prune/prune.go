// Package prune merges threads with few samples into one per process, and drops what only they used.
//
//	samples of each thread -> the fewest threads that make up P% of them (choose.go)
//	   -> the others: one thread for each process, [pruned threads] (fold.go)
//	      stacks that kept threads use too are unchanged
//	      of others the callers of the leaf are cut off, and the leaf as well if its
//	      function is small, or has enough samples without it (losses.go)
//	   -> locations that nothing uses are dropped (drop.go)
//	how unevenly threads share a window's samples, what pruning does to shares (measure.go)
//
// It runs before symbolization, encoding and shipping, and saves their work: in a service
// of a thousand threads half of them may have one sample in a hundred, on stacks of their
// own. Totals of each process and slot do not change, because what is cut is counted; so no
// function's share is off by more than Share, the share of what was cut.
package prune

import (
	"fmt"
	"slices"
	"strconv"

	"atys.dev/atys/internal/profile"
)

// Name is the name of the thread that replaces pruned threads, and of the function that
// stands for frames that were cut off.
const Name = profile.PrunedThreads

// MinLevel and MaxLevel bound the percentage of samples whose threads are kept; MaxLevel keeps all.
const (
	MinLevel = 80
	MaxLevel = 100
)

// IsMarker reports whether a location stands for frames that were cut off.
func IsMarker(l profile.Location) bool { return l.Name == Name && l.BuildID == "" }

// Window keeps the fewest threads of a window that have the given percentage of its samples,
// and replaces the others by one thread for each process. It changes the window in place,
// which nobody else may use meanwhile.
//
// Samples of pruned threads keep their stack if samples of kept threads have it too.
// Otherwise their stack becomes Name, with the leaf on it if its function has at least one in
// three thousand samples of its group, and would lose more than half the part that may be
// lost of everything (half a percent at P99). Code without a name, since symbolization comes
// later, counts as functions of 256 bytes.
//
// If fewer than one in twenty of a group's threads would be pruned, by their CPU time or by
// their samples, the whole group is kept; if they have fewer than one in a hundred of the
// window's rows, the whole window is.
//
// Only threads of one group are compared with each other: groups[i] is the group of
// Threads[i], and threads of one process are in one group. Without groups, processes of one
// name are a group.
//
//   - Samples count by their weight (of the first type of values), or as one each if
//     weights are all zero.
//   - Of threads with equal samples, those with more CPU time by the kernel's account are
//     kept, then those with lower numbers.
//   - At least one thread of a group is kept. A group without samples, with negative ones (as
//     in a difference), or that was pruned before does not change.
//   - Threads that used CPU time without being sampled are kept: nothing is known of what
//     they did, but the time is exact.
//   - Samples of no thread are kept, and count for no group.
//
// Rows of pruned threads keep their context, slot and peer.
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

// detail is the detail of the loss that counts samples of pruned threads.
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
	cut := findCutStacks(w)
	if cut == nil {
		return 0
	}
	for _, r := range w.Rows.All() {
		if cut.has(r.Stack) && valueType < len(r.Values) {
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

// cutStacks are the stacks of a window that were cut; nil: none was.
type cutStacks []bool

// findCutStacks finds them. Other tools may have put something below, or on top.
func findCutStacks(w *profile.Window) cutStacks {
	if !slices.ContainsFunc(w.Locations, IsMarker) {
		return nil
	}
	s := make(cutStacks, len(w.Stacks))
	for i, stack := range w.Stacks {
		s[i] = slices.ContainsFunc(stack.Locations, func(l profile.LocationID) bool { return IsMarker(w.Locations[l]) })
	}
	return s
}

func (s cutStacks) has(stack profile.StackID) bool { return s != nil && s[stack] }
