package prune

import (
	"math"
	"slices"

	"atys.dev/atys/internal/profile"
)

// largestPlaces is how many places of a group are protected: those that anybody looks at.
const largestPlaces = 50

// sparing decides which of the threads that few samples are of stay all the same. A
// thread that is seldom at work does other things than those that always are: it wakes
// up, it compiles. By samples alone most of such a function would be left out.
type sparing struct {
	w      *profile.Window
	scales *scales
	pruned []bool
	rows   map[int][]int // of threads that are to be pruned
	of     []*stake      // of each thread's group; nil: none of it is to be pruned
	places []int         // of stacks
}

// stake is what a group has, and would lose.
type stake struct {
	threads     []int   // that are to be pruned, the largest first
	total, lost []int64 // by place
	limits      []int64 // of what may be lost of it
}

// spare takes threads out of those that are to be pruned, which are given by group.
func spare(w *profile.Window, percent float64, groups []int, scales *scales, outside map[int][]int) (pruned []bool) {
	s := &sparing{w: w, scales: scales, pruned: make([]bool, len(w.Threads)), rows: map[int][]int{}, of: make([]*stake, len(w.Threads)), places: placesOf(w)}
	stakes := map[int]*stake{}
	for group, threads := range outside {
		stakes[group] = &stake{threads: threads}
		for _, t := range threads {
			s.pruned[t] = true
		}
	}
	for i, group := range groups {
		s.of[i] = stakes[group]
	}
	s.addUp()
	for _, stake := range stakes {
		stake.limit(percent)
		s.spare(stake)
	}
	return s.pruned
}

// addUp adds up what each group has of each place, and would lose.
func (s *sparing) addUp() {
	for i := range s.w.Rows {
		r := &s.w.Rows[i]
		if r.Thread == 0 {
			continue
		}
		thread := int(r.Thread - 1)
		stake := s.of[thread]
		if stake == nil {
			continue
		}
		place, weight := s.places[r.Stack], s.scales.weightOf(s.w, i)
		stake.total = grown(stake.total, place)
		stake.total[place] += weight
		if s.pruned[thread] {
			stake.lost = grown(stake.lost, place)
			stake.lost[place] += weight
			s.rows[thread] = append(s.rows[thread], i)
		}
	}
}

func grown(sums []int64, place int) []int64 {
	if place < len(sums) {
		return sums
	}
	return append(sums, make([]int64, place+1-len(sums))...)
}

// limit says how much may be lost of each place: of the largest as much of itself as of
// all samples, of others everything.
func (s *stake) limit(percent float64) {
	least, ordered := int64(0), slices.Sorted(slices.Values(s.total))
	if n := len(ordered) - largestPlaces; n >= 0 {
		least = ordered[n]
	}
	s.limits = make([]int64, len(s.lost))
	for place := range s.limits {
		if s.limits[place] = s.total[place]; s.total[place] >= least {
			s.limits[place] = int64(math.Round(float64(s.total[place]) * (MaxLevel - percent) / 100))
		}
	}
}

// spare keeps threads that have some of a place that has lost too much, the largest
// first, until none has.
func (s *sparing) spare(of *stake) {
	for _, t := range of.threads {
		tooMuch := func(row int) bool {
			place := s.places[s.w.Rows[row].Stack]
			return of.lost[place] > of.limits[place]
		}
		if !slices.ContainsFunc(s.rows[t], tooMuch) {
			continue
		}
		s.pruned[t] = false
		for _, row := range s.rows[t] {
			of.lost[s.places[s.w.Rows[row].Stack]] -= s.scales.weightOf(s.w, row)
		}
	}
}

// codeBits is how long a stretch of code is that counts as a function: as long as many.
const codeBits = 8

// placesOf numbers what stacks end in: a function where its name is known when a window
// is cut, as those of Java and Python are, else a stretch of code, as names are only
// looked for behind this.
func placesOf(w *profile.Window) []int {
	ofStack, ofLocation, numbers := make([]int, len(w.Stacks)), make([]int, len(w.Locations)), map[profile.Location]int{}
	for i, stack := range w.Stacks {
		if len(stack.Locations) == 0 {
			continue
		}
		leaf := stack.Locations[0]
		if ofLocation[leaf] == 0 {
			place := placeOf(w, leaf)
			n, ok := numbers[place]
			if !ok {
				n = len(numbers) + 1
				numbers[place] = n
			}
			ofLocation[leaf] = n
		}
		ofStack[i] = ofLocation[leaf]
	}
	return ofStack
}

func placeOf(w *profile.Window, id profile.LocationID) profile.Location {
	l := w.Locations[id]
	switch {
	case len(w.Names[id]) > 0:
		return profile.Location{Kind: l.Kind, Name: w.Names[id][0].Function}
	case l.Name != "":
		return profile.Location{Kind: l.Kind, Name: l.Name}
	}
	return profile.Location{Kind: l.Kind, BuildID: l.BuildID, Offset: l.Offset >> codeBits}
}
