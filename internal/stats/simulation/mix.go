package simulation

import (
	"math/rand/v2"
	"slices"
)

// Task is what takes turns with others on one resource.
type Task struct {
	Share       float64 `json:"share"`       // of all units, on average
	Granularity int     `json:"granularity"` // units that it runs at a time
}

// Mix is the tasks of one resource; being idle is one of them. Each stretch is
// of a task drawn by chance, more often the shorter its stretches are, so that
// each has its share of units.
type Mix []Task

// Single is one task and idle time that comes in stretches of the same length.
func Single(share float64, granularity int) Mix {
	return Mix{{share, granularity}, {1 - share, granularity}}
}

// State is what a resource ran, unit by unit: stretches that follow each other.
type State struct {
	ends  []int   // of stretches
	tasks []uint8 // of each, by its number in the mix
}

// Units is how many units the state has.
func (s *State) Units() int {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

// chances are how likely each task is to have a stretch.
func (m Mix) chances() []float64 {
	q := make([]float64, len(m))
	sum := 0.0
	for i, t := range m {
		q[i] = t.Share / float64(t.Granularity)
		sum += q[i]
	}
	for i := range q {
		q[i] /= sum
	}
	return q
}

// Draw makes a state of so many units, in place of what it was; its last
// stretch is cut.
func (m Mix) Draw(rng *rand.Rand, units int, s *State) {
	upTo := m.chances()
	for i := 1; i < len(upTo); i++ {
		upTo[i] += upTo[i-1]
	}
	s.ends, s.tasks = s.ends[:0], s.tasks[:0]
	for end := 0; end < units; {
		task, u := 0, rng.Float64()
		for _, limit := range upTo[:len(upTo)-1] { // all of them: no branch to guess wrong
			if u >= limit {
				task++
			}
		}
		end = min(end+m[task].Granularity, units)
		s.ends, s.tasks = append(s.ends, end), append(s.tasks, uint8(task))
	}
}

// Shares writes the share that each task really has between two units.
func (s *State) Shares(from, to int, shares []float64) {
	clear(shares)
	first, _ := slices.BinarySearch(s.ends, from+1)
	at := from
	for i := first; i < len(s.ends) && at < to; i++ {
		end := min(s.ends[i], to)
		shares[s.tasks[i]] += float64(end - at)
		at = end
	}
	for i := range shares {
		shares[i] /= float64(to - from)
	}
}

// settled is after how many of its longest stretches a mix has forgotten how
// it began: the paper's by far.
const settled = 100

// ErrorVariance is Model.ErrorVariance for one task of a mix, under a constant
// interval.
//
// A profile is a systematic sample of the state: over all starts, its variance
// is the sum of the task's autocovariance at multiples of the interval, less
// the mean of such sums over all that begin elsewhere, divided by n.
func (m Mix) ErrorVariance(task, interval, n int) float64 {
	covariance := m.covariance(task)
	aligned, all := covariance[0], covariance[0]
	for lag, c := range covariance[1:] {
		all += 2 * c
		if (lag+1)%interval == 0 {
			aligned += 2 * c
		}
	}
	return max(aligned-all/float64(interval), 0) / float64(n)
}

// covariance is that of the task running at one unit, and so many later.
func (m Mix) covariance(task int) []float64 {
	longest := 0
	for _, t := range m {
		longest = max(longest, t.Granularity)
	}
	begun := m.afterSwitch(task, settled*longest)
	g, share := m[task].Granularity, m[task].Share
	covariance := make([]float64, len(begun))
	again := 0.0 // sum of begun over the units within g before the lag
	for lag := range covariance {
		if lag > 0 {
			again += begun[lag-1]
		}
		if lag > g {
			again -= begun[lag-1-g]
		}
		running := (float64(max(g-lag, 0)) + again) / float64(g)
		covariance[lag] = share * (running - share)
	}
	return covariance
}

// afterSwitch is how likely the task runs so many units after a switch.
func (m Mix) afterSwitch(task, units int) []float64 {
	q := m.chances()
	likely := make([]float64, units)
	for t := range likely {
		if t < m[task].Granularity {
			likely[t] = q[task]
		}
		for i, other := range m {
			if t >= other.Granularity {
				likely[t] += q[i] * likely[t-other.Granularity]
			}
		}
	}
	return likely
}
