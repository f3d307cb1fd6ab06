package stats

import "math"

// split is how some hits fall on two sides if every sample of both is as likely
// to be one: hypergeometric, continued to numbers that are not whole. There it
// is told on the steps of one that lead away from what was observed.
type split struct{ hits, first, second float64 }

// rounding is how far from a whole number a count may be for rounding alone.
const rounding = 1e-6

// test is how likely the split would be as uneven as with x hits on the first
// side, or more so: twice the smaller tail. Of the probability of x itself half
// counts, as in mid-P: all of it would be surer than is asked for, as whole
// numbers are (see TestNoChangeIsFound for what half of it does).
func (s split) test(x float64) float64 {
	lowest, highest := s.ends()
	fewer, more := 0.0, 0.0
	for y, term := x, 1.0; y-1 >= lowest-rounding && !done(term, fewer); y-- {
		term *= y * (s.second - s.hits + y) / ((s.first - y + 1) * (s.hits - y + 1))
		fewer += term
	}
	for y, term := x, 1.0; y+1 <= highest+rounding && !done(term, more); y++ {
		term *= (s.first - y) * (s.hits - y) / ((y + 1) * (s.second - s.hits + y + 1))
		more += term
	}
	return min(1, 2*(half+min(fewer, more))/(1+fewer+more))
}

// ends are the most uneven splits there are.
func (s split) ends() (lowest, highest float64) {
	return max(0, s.hits-s.second), min(s.hits, s.first)
}

// done tells that further terms of a sum no longer matter: the last was nothing
// beside it, or all of it is so much that what was observed is nothing.
func done(term, sum float64) bool { return term < 1e-14*sum || sum > 1e290 }

// least is the least that test can be, however the hits fall. It depends on
// how many there are and not on where, so that who tests many may leave out
// what could not be found, without looking.
func (s split) least() float64 {
	lowest, highest := s.ends()
	return min(1, 2*half*math.Exp(min(s.logMass(lowest), s.logMass(highest))))
}

func (s split) logMass(x float64) float64 {
	return logChoose(s.first, x) + logChoose(s.second, s.hits-x) - logChoose(s.first+s.second, s.hits)
}
