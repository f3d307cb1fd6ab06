package stats

import "math"

// Side is a part of a selection, to be compared with that of another.
type Side struct {
	Part, Whole Sums
	Counted     bool // not sampled: shares are exact
}

// Share is the share that the part has, with its interval.
func (s Side) Share() Interval {
	if !s.Counted {
		return Share(s.Part, s.Whole)
	}
	value := 0.0
	if s.Whole.Weight > 0 {
		value = s.Part.Weight / s.Whole.Weight
	}
	return Interval{value, value, value}
}

// Comparison tells how the share of a part differs between two selections.
type Comparison struct {
	Before, After Interval // the shares
	Difference    Interval
	// P is how often sampling alone would make shares that are the same differ
	// as much as these do, or more.
	P float64
	// Adjusted is P after Judge: the least rate of false discoveries at which it is
	// one. Tested is false where there are too few samples for any difference to
	// be found; it is no discovery then.
	Adjusted float64
	Tested   bool

	least float64 // that P could have been of as many samples
}

// Significant tells whether the share changed, as far as Judge can know. The
// interval, which is of this comparison alone, has to say so too.
func (c *Comparison) Significant() bool {
	return c.Tested && c.Adjusted <= FalseDiscoveries && !c.Difference.Contains(0)
}

// Compare compares a part's share with that which it had before. It asks what
// sampling explains and nothing else: of a program that is busy in turns, two
// recordings differ because they are of different times.
func Compare(before, after Side) Comparison {
	c := Comparison{Before: before.Share(), After: after.Share(), Adjusted: 1}
	c.Difference = Difference(c.Before, c.After)
	x, y := before.counts(after), after.counts(before)
	switch {
	case !(x.N > 0 && y.N > 0):
		c.P, c.least = 1, 1
	case before.Counted && after.Counted:
		if c.P = 1; c.Difference.Value != 0 {
			c.P = 0
		}
	default:
		c.P, c.least = x.against(y)
	}
	return c
}

// Counts are so many hits in so many samples that weigh the same and are
// independent.
type Counts struct{ Hits, N float64 }

// normalAbove is the number of hits and misses from which on they are as good as
// normal: P of 1e-5 is then off by a twentieth of it, for being skewed.
const normalAbove = 1e5

// against is the two-sided probability that x and y differ as they do by chance
// (Fisher's, of the split of all hits), and the least it could be.
func (x Counts) against(y Counts) (p, least float64) {
	if min(x.Hits, x.N-x.Hits, y.Hits, y.N-y.Hits) > normalAbove {
		share := (x.Hits + y.Hits) / (x.N + y.N)
		deviate := math.Abs(x.Hits/x.N-y.Hits/y.N) / math.Sqrt(share*(1-share)*(1/x.N+1/y.N))
		return math.Erfc(deviate / math.Sqrt2), 0
	}
	if x.N > y.N {
		x, y = y, x // the fewer samples, the fewer terms
	}
	s := split{x.Hits + y.Hits, x.N, y.N}
	p = s.test(x.Hits)
	return p, min(p, s.least())
}

// counted stands for so many samples that their share has no error beside that
// of the other side.
const counted = 1e9

// counts are the effective ones of a side.
//
// How much its samples' weights vary where the part is sampled, beyond how they
// vary in the whole, is known of few samples badly, and of none not at all: a
// function that runs only while the rate is low has few, heavy samples, and none
// of them says as much as one of the others. So the other side counts as well,
// as if borrowed of its samples were this side's.
func (s Side) counts(other Side) Counts {
	share := 0.0
	if s.Whole.Weight > 0 {
		share = min(max(s.Part.Weight/s.Whole.Weight, 0), 1)
	}
	if s.Counted {
		return Counts{share * counted, counted}
	}
	if s.Whole.N <= 0 || s.Whole.Weight <= 0 {
		return Counts{}
	}
	const borrowed = 5
	uneven, own := s.uneven(), float64(max(s.Part.N, 0))
	uneven = max(uneven, (own*uneven+borrowed*other.uneven())/(own+borrowed))
	n := max(effective(0, Sums{}, s.Whole)/uneven, 1)
	return Counts{share * n, n}
}

// uneven is by how much fewer samples count for this part than for others; 1
// where its weights vary as those of the whole.
func (s Side) uneven() float64 {
	if s.Counted || s.Part.N <= 0 || s.Whole.N <= 0 || s.Whole.Weight <= 0 {
		return 1
	}
	share := min(max(s.Part.Weight/s.Whole.Weight, 0), 1)
	return max(1, effective(0, Sums{}, s.Whole)/effective(share, s.Part, s.Whole))
}

// normalTail is the deviate beyond which lies so much of a normal distribution.
func normalTail(p float64) float64 { return math.Sqrt2 * math.Erfcinv(2*p) }
