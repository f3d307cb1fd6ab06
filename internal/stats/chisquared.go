package stats

import "math"

// ChiSquaredAbove is the probability that a chi-squared variable with so many
// degrees of freedom is above x.
func ChiSquaredAbove(x, freedom float64) float64 {
	if !(x > 0) || !(freedom > 0) {
		return 1
	}
	a, half := freedom/2, x/2
	if half < a+1 {
		return 1 - gammaBelow(a, half)
	}
	return gammaAbove(a, half)
}

// ChiSquaredAt is the value that such a variable is above with a probability.
func ChiSquaredAt(above, freedom float64) float64 {
	if above >= 1 || !(freedom > 0) {
		return 0
	}
	deviate, spread := normalTail(above), 2/(9*freedom) // the cube root is nearly normal (Wilson and Hilferty)
	x := max(freedom*math.Pow(1-spread+deviate*math.Sqrt(spread), 3), tolerance)
	logNorm := freedom/2*math.Ln2 + logGamma(freedom/2)
	for range maxSteps { // by the logarithm, in which the tail is nearly straight
		p := ChiSquaredAbove(x, freedom)
		density := math.Exp((freedom/2-1)*math.Log(x) - x/2 - logNorm)
		step := math.Log(p/above) * p / density
		x = max(x+step, x/2)
		if math.Abs(step) < tolerance*tolerance*x {
			break
		}
	}
	return x
}

// gammaBelow is the lower incomplete gamma function, a part of the whole, by its series.
func gammaBelow(a, x float64) float64 {
	term := 1 / a
	sum := term
	for n := a + 1; term > sum*1e-16; n++ {
		term *= x / n
		sum += term
	}
	return sum * math.Exp(a*math.Log(x)-x-logGamma(a))
}

// gammaAbove is the upper one, by its continued fraction (modified Lentz).
func gammaAbove(a, x float64) float64 {
	const tiny = 1e-300
	b := x + 1 - a
	c, d := 1/tiny, 1/b
	f := d
	for n := 1.0; n < 1000; n++ {
		m := n * (a - n)
		b += 2
		d = 1 / apart(m*d+b, tiny)
		c = apart(b+m/c, tiny)
		f *= c * d
		if math.Abs(c*d-1) < 1e-15 {
			break
		}
	}
	return f * math.Exp(a*math.Log(x)-x-logGamma(a))
}

// apart keeps a divisor from being zero.
func apart(x, least float64) float64 {
	if math.Abs(x) < least {
		return least
	}
	return x
}

func logGamma(x float64) float64 {
	l, _ := math.Lgamma(x)
	return l
}
