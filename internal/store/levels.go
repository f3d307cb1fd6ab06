package store

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// A level, such as the size of a heap, is not summed over time. In each minute, the values of
// a series are averaged over the part of the minute that its windows cover; these averages are
// summed over series; and the result is the mean of the minutes that have any window. So what
// is merged and rolled up is a sum over minutes, and the set of these minutes: both can be
// added in any order.

// Minutes is a set of minutes since 1970.
type Minutes map[int64]bool

// Add adds the minutes that a window reaches into.
func (m Minutes) Add(h *profile.Head) {
	for minute := range minutesOf(h) {
		m[minute] = true
	}
}

// Sorted returns the minutes in their order.
func (m Minutes) Sorted() []int64 { return slices.Sorted(maps.Keys(m)) }

// Coverage says how much of each minute the windows of a series cover.
type Coverage map[int64]time.Duration

// Add adds a window.
func (c Coverage) Add(h *profile.Head) {
	for minute, part := range minutesOf(h) {
		c[minute] += part
	}
}

// Weight returns what a level of a window counts in the sum over minutes.
func (c Coverage) Weight(h *profile.Head) (weight float64) {
	for minute, part := range minutesOf(h) {
		if covered := c[minute]; covered > 0 {
			weight += float64(part) / float64(covered)
		}
	}
	return weight
}

// maxMinutes bounds the minutes of a window: agents cut windows of an hour at most.
const maxMinutes = 2 * 24 * 60

// minutesOf yields the minutes that a window reaches into, with the length of that part. A
// window without a length is a moment.
func minutesOf(h *profile.Head) func(yield func(int64, time.Duration) bool) {
	return func(yield func(int64, time.Duration) bool) {
		start, end := h.Start.UnixNano(), h.Start.UnixNano()+max(int64(h.Duration), 1)
		for n := 0; start < end && n < maxMinutes; n++ {
			minute := start / int64(time.Minute)
			next := min((minute+1)*int64(time.Minute), end)
			if !yield(minute, time.Duration(next-start)) {
				return
			}
			start = next
		}
	}
}

// Average turns the column's values, which are sums over minutes, into means.
func (c *Column) Average(over Minutes) {
	n := int64(max(len(over), 1))
	for i := range c.Sums {
		s := &c.Sums[i]
		s.Value, s.Squares = mean(s.Value, n), s.Squares/float64(n)/float64(n)
		for g := range s.Groups {
			s.Groups[g] = mean(s.Groups[g], n)
		}
	}
	for i := range c.Kinds {
		k := &c.Kinds[i]
		k.Value, k.Squares = mean(k.Value, n), k.Squares/float64(n)/float64(n)
	}
	for _, instance := range c.Instances {
		for i := range instance.Values {
			instance.Values[i].Value = mean(instance.Values[i].Value, n)
		}
	}
}

// mean divides, to the nearest.
func mean(sum, n int64) int64 {
	if sum < 0 {
		return -mean(-sum, n)
	}
	return (sum + n/2) / n
}
