package stats

import "math"

// Power is how often a change as large as is said to be detectable is found.
const Power = 0.8

// powerDeviate is the normal deviate below which Power lies.
const powerDeviate = 0.8416212335729143

// Detectable is the least change of a share that would be found at a level of
// P, four times of five: by how much it would have to rise, and to fall. Each is
// 0 where no change, however large, would be. The sides are those of a part that
// has about this share or, without one, of any whose weights vary as those of the
// whole; level is that of their Family.
//
// Of a part that has few samples or none nobody knows how its weights vary:
// where rates changed, what runs at the lowest of them alone is found less often
// than that (bench/differences).
func Detectable(share float64, before, after Side, level float64) (rise, fall float64) {
	x, y := before.counts(after), after.counts(before)
	share = min(max(share, 0), 1)
	if to, ok := risenTo(share, x, y, level); ok {
		rise = to - share
	}
	if from, ok := fallenTo(share, y, x, level); ok {
		fall = share - from
	}
	return rise, fall
}

// Needed is how many times as many samples both sides need for a change of a
// share to be found at a level of P, four times of five; 1 or less: they are
// enough. It is +Inf where there is no change to be found, or no samples. Sides
// and level are as of Detectable.
func Needed(share, changed float64, before, after Side, level float64) float64 {
	x, y := before.counts(after), after.counts(before)
	if changed < share {
		share, changed, x, y = changed, share, y, x
	}
	if !(changed > share) || x.N == 0 || y.N == 0 {
		return math.Inf(1)
	}
	const most = 40 // in powers of two: nobody will
	enough := func(times float64) bool {
		to, ok := risenTo(share, Counts{N: x.N * times}, Counts{N: y.N * times}, level)
		return ok && to <= changed
	}
	high := 0.0
	for !enough(math.Exp2(high)) {
		if high++; high > most {
			return math.Inf(1)
		}
	}
	for high > -most && enough(math.Exp2(high-1)) {
		high--
	}
	low := high - 1
	for high-low > 0.005 {
		if middle := (low + high) / 2; enough(math.Exp2(middle)) {
			high = middle
		} else {
			low = middle
		}
	}
	return math.Exp2(high)
}

// risenTo is the share in y that is found to be larger than share in x.
//
// With as many hits in x as are expected, so many in y are critical. How many
// fall in y varies, and what is critical varies with the hits in x: both have
// to leave room for it.
func risenTo(share float64, x, y Counts, level float64) (float64, bool) {
	if x.N == 0 || y.N == 0 {
		return 0, false
	}
	x.Hits = share * x.N
	spread := math.Sqrt(x.Hits * (1 - share))
	critical, ok := x.critical(y.N, level)
	more, known := Counts{min(x.Hits+spread, x.N), x.N}.critical(y.N, level)
	if !ok || !known {
		return 0, false
	}
	room := func(to float64) bool {
		hits := to * y.N
		return hits-powerDeviate*math.Hypot(math.Sqrt(hits*(1-to)), more-critical) >= critical
	}
	if !room(1) {
		return 0, false
	}
	return solve(share, 1, room), true
}

// fallenTo is the greatest share in y, below share in x, from which share would
// be found to have risen.
func fallenTo(share float64, y, x Counts, level float64) (float64, bool) {
	found := func(from float64) bool {
		to, ok := risenTo(from, y, x, level)
		return ok && to <= share
	}
	if !found(0) {
		return 0, false
	}
	return share - solve(0, share, func(fall float64) bool { return found(share - fall) }), true
}

// solve gives the least value between two at which something holds, which holds
// for all greater ones.
func solve(low, high float64, holds func(float64) bool) float64 {
	for range 40 {
		if middle := (low + high) / 2; holds(middle) {
			high = middle
		} else {
			low = middle
		}
		if high-low < 1e-4*high {
			break
		}
	}
	return high
}

// critical is the least whole number of hits in n samples that is significantly
// more than x has.
func (x Counts) critical(n, level float64) (float64, bool) {
	reached := func(hits float64) bool {
		p, _ := x.against(Counts{hits, n})
		return p <= level
	}
	low, high := math.Floor(x.Hits/x.N*n), math.Floor(n)
	if !(high > low) || !reached(high) {
		return 0, false
	}
	// Mostly it is not far from what is expected.
	for step := math.Ceil(math.Sqrt(low + 10)); low+step < high; step *= 2 {
		if reached(low + step) {
			high = low + step
			break
		}
		low += step
	}
	for high-low > 1 {
		if middle := math.Floor((low + high) / 2); reached(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high, true
}
