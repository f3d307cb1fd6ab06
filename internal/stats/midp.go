package stats

import "math"

const (
	// exactBelow is the count (of hits or misses, the smaller) up to which
	// bounds are solved exactly. Beyond it the expansion of signedRoot is
	// within 0.3% of the width (TestMidPOracle), and its cost does not grow
	// with n as that of the continued fraction does.
	exactBelow = 30

	maxSteps  = 60   // of Newton; 3-6 are usual
	tolerance = 1e-4 // relative, of the last step: the error left is about its square
)

// MidP is the interval of a proportion of which k of n independent draws were
// hits, by the mid-P variant of Clopper and Pearson: half the probability of k
// itself counts as tail. k and n need not be whole numbers.
//
// It is what widths are measured by. Where three hits are expected it covers
// 91.6%, not 95: Proportion is what is shown.
func MidP(k, n float64) Interval {
	return enclose(k, n, level{oneTail, z}, func(float64) float64 { return half })
}

// half is how much of the probability of k itself mid-P counts as tail.
const half = 0.5

// level is how sure an interval is: what lies beyond each of its bounds, and the
// normal deviate of that.
type level struct{ tail, deviate float64 }

// levelOf gives that of a confidence, such as 0.95.
func levelOf(confidence float64) level {
	tail := (1 - confidence) / 2
	return level{tail, normalTail(tail)}
}

// enclose gives the interval of a proportion. own tells how much of the
// probability of k itself counts as tail, by the smaller of hits and misses;
// it is a half above exactBelow.
func enclose(k, n float64, at level, own func(fewer float64) float64) Interval {
	if !(n > 0) {
		return Interval{0, 0, 1}
	}
	k = min(max(k, 0), n)
	fewer := min(k, n-k)
	low, high := bounds(fewer, n, own(fewer), at)
	if k > n/2 {
		return Interval{k / n, 1 - high, 1 - low}
	}
	return Interval{k / n, low, high}
}

// bounds solves both ends for k <= n/2.
func bounds(k, n, own float64, at level) (low, high float64) {
	if k == 0 {
		// own (1-p)^n is to be the tail.
		return 0, -math.Expm1(math.Log(at.tail/own) / n)
	}
	low, high = wilson(k, n, at.deviate)
	if k > exactBelow {
		return solveExpansion(k, n, low, at.deviate), solveExpansion(k, n, high, -at.deviate)
	}
	low = max(low, k/n*1e-6) // the difference wilson takes may cancel
	b := binomial{k, n, logChoose(n, k), own, at.tail}
	return b.solveLow(low), b.solveHigh(high)
}

// wilson is the score interval: not good enough at small k, but never far.
func wilson(k, n, z float64) (low, high float64) {
	centre := k + z*z/2
	spread := z * math.Sqrt(k*(n-k)/n+z*z/4)
	return (centre - spread) / (n + z*z), (centre + spread) / (n + z*z)
}

// signedRoot is the modified signed root of the deviance (Barndorff-Nielsen's
// r*): its normal probability without continuity correction is the mid-P tail
// to third order. The second result is its derivative, but for a small term.
func signedRoot(k, n, p float64) (value, slope float64) {
	estimate := k / n
	q := 1 - p
	logHit, logMiss := math.Log(estimate/p), math.Log((1-estimate)/q)
	root := math.Sqrt(2 * (k*logHit + (n-k)*logMiss))
	if p > estimate {
		root = -root
	}
	wald := (logHit - logMiss) * math.Sqrt(k*(1-estimate))
	return root + math.Log(wald/root)/root, n * (p - estimate) / (p * q * root)
}

// solveExpansion finds p where the signed root is at target.
func solveExpansion(k, n, p, target float64) float64 {
	for range maxSteps {
		value, slope := signedRoot(k, n, p)
		step := (target - value) / slope
		p += step
		if math.Abs(step) < 1e-5*p*(1-p) {
			break
		}
	}
	return p
}

// binomial is a distribution of n draws, with what its tails at k need: own is
// how much of the probability of k counts as tail, tail how much there is to be.
type binomial struct{ k, n, logChoose, own, tail float64 }

func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

// mass is the probability of exactly k hits.
func (b binomial) mass(p float64) float64 {
	return math.Exp(b.logChoose + b.k*math.Log(p) + (b.n-b.k)*math.Log1p(-p))
}

// solveLow finds p where the tail above k is as it is to be. Log tail is concave and
// rising in log p, so Newton's steps approach from below after the first.
func (b binomial) solveLow(p float64) float64 {
	for range maxSteps {
		mass := b.mass(p)
		tail := b.own*mass + mass*p*(b.n-b.k)/(b.k+1)*betaFraction(b.k+1, b.n-b.k, p)
		slope := mass * (b.own*b.k/p + (1-b.own)*(b.n-b.k)/(1-p))
		step := math.Log(b.tail/tail) * tail / (slope * p)
		p *= math.Exp(min(step, 1))
		if math.Abs(step) < tolerance || p < math.SmallestNonzeroFloat64 {
			break
		}
	}
	return p
}

// solveHigh finds p where the tail below k is. Log tail is concave and
// falling in p.
func (b binomial) solveHigh(p float64) float64 {
	for range maxSteps {
		mass := b.mass(p)
		tail := b.own*mass + mass*(1-p)*b.k/(b.n-b.k+1)*betaFraction(b.n-b.k+1, b.k, 1-p)
		slope := mass * ((1-b.own)*b.k/p + b.own*(b.n-b.k)/(1-p))
		next := p + math.Log(tail/b.tail)*tail/slope
		if next >= 1 {
			next = (p + 1) / 2
		}
		step := next - p
		p = next
		if math.Abs(step) < tolerance*p {
			break
		}
	}
	return p
}

// betaFraction is the continued fraction of the incomplete beta function
// (DLMF 8.17.22), by Lentz's method: what multiplies x^a (1-x)^b / (a B(a,b)).
// It converges fast for x below (a+1)/(a+b+2), where all our tails lie.
func betaFraction(a, b, x float64) float64 {
	const tiny = 1e-300
	c, d := 1.0, 1-(a+b)*x/(a+1)
	if math.Abs(d) < tiny {
		d = tiny
	}
	d = 1 / d
	f := d
	for m := 1.0; m < 1000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / nonzero(1+even*d)
		c = nonzero(1 + even/c)
		f *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / nonzero(1+odd*d)
		c = nonzero(1 + odd/c)
		f *= d * c
		if math.Abs(d*c-1) < 1e-9 {
			break
		}
	}
	return f
}

// nonzero keeps Lentz's divisions finite.
func nonzero(v float64) float64 {
	if math.Abs(v) < 1e-300 {
		return 1e-300
	}
	return v
}
