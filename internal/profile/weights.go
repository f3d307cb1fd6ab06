package profile

// Alike returns the sum of squared weights of n samples of equal weight.
func Alike(n, value int64) float64 {
	if n <= 0 {
		return 0
	}
	return float64(value) * float64(value) / float64(n)
}

// Spread returns by how much the sum of squared weights exceeds Alike. It is never negative,
// and 0 if there is a single sample or the squares are unknown.
func (s Sum) Spread() float64 {
	if s.N <= 1 {
		return 0
	}
	return max(0, s.Squares-Alike(s.N, s.Value))
}

// Excess returns the ratio of Spread to Alike.
func (s Sum) Excess() float64 {
	if alike := Alike(s.N, s.Value); alike > 0 {
		return s.Spread() / alike
	}
	return 0
}

// Known returns the sum with its variance or, if that is unknown, with the one that samples of
// equal weight have.
func (v Variance) Known(s Sum) Sum {
	if v == FromWeights && s.Squares == 0 {
		s.Squares = Alike(s.N, s.Value)
	}
	return s
}
