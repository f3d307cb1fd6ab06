package stats

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// Design is how the sampler chooses its instants on one CPU: by blocks (see
// DrawBlock), each with a period of its own.
type Design struct {
	Period time.Duration // mean
	Fixed  bool          // the period is the mean throughout
	Keep   float64       // probability that a sample is kept, its weight divided by it; 0: all are
}

// Randomised is the design that the sampler uses for a clock of so many samples a second.
func Randomised(hertz float64) Design {
	return Design{Period: time.Duration(float64(time.Second) / hertz)}
}

// Instant is one sample: when, and how much it weighs.
type Instant struct {
	At     time.Duration
	Weight time.Duration
}

// Draw gives the samples of one CPU between 0 and length.
func (d Design) Draw(rng *rand.Rand, length time.Duration) []Instant {
	var out []Instant
	// the first block began, or the fixed timer last fired, some time before
	from := -time.Duration(rng.Float64() * float64(BlockLength(d.Period)))
	for from < length {
		block, period, weight := d.block(rng, length-from)
		for at := from + period; at < min(from+block, length); at += period {
			if at >= 0 && (d.Keep == 0 || rng.Float64() < d.Keep) {
				out = append(out, Instant{at, d.kept(weight)})
			}
			weight = period
		}
		from += block
	}
	return out
}

// block draws the length and period of the next block and the weight of its first
// sample. A fixed design has one block that lasts to the end.
func (d Design) block(rng *rand.Rand, left time.Duration) (length, period, first time.Duration) {
	if d.Fixed {
		return left, d.Period, d.Period
	}
	length, period = DrawBlock(rng, d.Period), DrawPeriod(rng, d.Period)
	return length, period, FirstWeight(period)
}

// kept returns the weight of a sample that survived thinning.
func (d Design) kept(weight time.Duration) time.Duration {
	if d.Keep > 0 {
		return time.Duration(float64(weight) / d.Keep)
	}
	return weight
}

// Span is a stretch of a program's CPU time in one function, up to End.
type Span struct {
	End      time.Duration
	Function int
}

// Program is what one thread ran, in spans that follow each other.
type Program []Span

// Periodic repeats the same spans, of the given lengths, function 0 first,
// from a random phase.
func Periodic(rng *rand.Rand, length time.Duration, lengths ...time.Duration) Program {
	var cycle time.Duration
	for _, l := range lengths {
		cycle += l
	}
	at := -time.Duration(rng.Float64() * float64(cycle))
	var p Program
	for at < length {
		for f, l := range lengths {
			at += l
			if at > 0 {
				p = append(p, Span{min(at, length), f})
			}
		}
	}
	return p
}

// Phases is a program whose spans are exponentially distributed around mean,
// each in a function drawn with the given weights.
func Phases(rng *rand.Rand, length, mean time.Duration, weights ...float64) Program {
	upTo := make([]float64, len(weights))
	var total float64
	for f, w := range weights {
		total += w
		upTo[f] = total
	}
	var p Program
	for at := time.Duration(0); at < length; {
		at += 1 + time.Duration(rng.ExpFloat64()*float64(mean))
		u := rng.Float64() * total
		f := sort.Search(len(weights)-1, func(f int) bool { return upTo[f] > u })
		p = append(p, Span{min(at, length), f})
	}
	return p
}

// Times sums the time in each of n functions.
func (p Program) Times(n int) []time.Duration {
	out := make([]time.Duration, n)
	var from time.Duration
	for _, s := range p {
		out[s.Function] += s.End - from
		from = s.End
	}
	return out
}

// Sample gives what the samples saw in each of n functions, and in all.
func (p Program) Sample(instants []Instant, n int) (parts []Sums, whole Sums) {
	parts = make([]Sums, n)
	for _, s := range instants {
		i, _ := slices.BinarySearchFunc(p, s.At, func(span Span, at time.Duration) int {
			if span.End <= at {
				return -1
			}
			return 1
		})
		if i == len(p) {
			continue
		}
		w := float64(s.Weight)
		for _, sums := range []*Sums{&parts[p[i].Function], &whole} {
			sums.N++
			sums.Weight += w
			sums.Squares += w * w
		}
	}
	return parts, whole
}
