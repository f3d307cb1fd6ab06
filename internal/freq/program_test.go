package freq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// program gives what each window of one does: shares of functions. A window may do
// two things, one after the other.
type program func(window int) []float64

// steady has every window do the same.
func steady(shares ...float64) program { return func(int) []float64 { return shares } }

// wandering has windows differ as equivalent samples would have it.
func wandering(rng *rand.Rand, equivalent float64, p program) program {
	return func(i int) []float64 {
		shares, sum := make([]float64, len(p(i))), 0.0
		for j, share := range p(i) {
			shares[j] = gamma(rng, equivalent*share)
			sum += shares[j]
		}
		for j := range shares {
			shares[j] /= sum
		}
		return shares
	}
}

// gamma draws a gamma variable (Marsaglia and Tsang); small shapes by their power.
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// sample draws a window at a rate, of a service that keeps so many CPUs busy.
func sample(rng *rand.Rand, p program, window int, hertz, cpus float64) Window {
	const length = 10 * time.Second
	w := Window{Start: time.Unix(int64(window)*10, 0), Length: length, Hertz: hertz}
	shares := p(window)
	n := poisson(rng, hertz*cpus*length.Seconds())
	counts := make([]float64, len(shares))
	left, of := n, 1.0
	for i, share := range shares {
		k := left
		if share < of {
			k = binomial(rng, left, min(share/of, 1))
		}
		counts[i] = float64(k)
		left, of = left-k, of-share
	}
	for i, k := range counts {
		if k > 0 {
			w.Functions = append(w.Functions, Function{fmt.Sprint("f", i), k})
		}
	}
	return w
}

func poisson(rng *rand.Rand, mean float64) int {
	if mean > 500 {
		return int(max(math.Round(mean+math.Sqrt(mean)*rng.NormFloat64()), 0))
	}
	n, p := 0, rng.Float64()
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= rng.Float64()
	}
	return n
}

func binomial(rng *rand.Rand, n int, p float64) int {
	if mean := float64(n) * p; mean > 500 && float64(n)-mean > 500 {
		return int(math.Round(mean + math.Sqrt(mean*(1-p))*rng.NormFloat64()))
	}
	if p > 0.5 {
		return n - binomial(rng, n, 1-p)
	}
	k, limit := 0, 1/math.Log1p(-p)
	for at := math.Floor(math.Log(1-rng.Float64()) * limit); p > 0 && at < float64(n); k++ { // from hit to hit
		at += 1 + math.Floor(math.Log(1-rng.Float64())*limit)
	}
	return k
}

// zipf are shares of many functions, the largest first.
func zipf(functions int) []float64 {
	shares, sum := make([]float64, functions), 0.0
	for i := range shares {
		shares[i] = 1 / math.Pow(float64(i+1), 1.2)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// moved has a part of all time go from one function to another.
func moved(shares []float64, part float64, from, to int) []float64 {
	shares = append([]float64(nil), shares...)
	part = min(part, shares[from])
	shares[from] -= part
	shares[to] += part
	return shares
}

// phased is a program of stretches of random length, of which each does what one of a
// few phases does; changes are anywhere within a window.
func phased(rng *rand.Rand, windows, shortest, longest int, phases ...[]float64) (p program, changes []int) {
	truth := make([][]float64, windows)
	for i := range truth {
		truth[i] = make([]float64, len(phases[0]))
	}
	at, now := 0.0, 0
	for at < float64(windows) {
		end := min(at+float64(shortest)+rng.Float64()*float64(longest-shortest), float64(windows))
		for w := int(at); w < windows && float64(w) < end; w++ {
			part := min(end, float64(w+1)) - max(at, float64(w))
			for f, share := range phases[now] {
				truth[w][f] += part * share
			}
		}
		if at = end; at < float64(windows) {
			changes = append(changes, int(at))
		}
		now = (now + 1 + rng.IntN(len(phases)-1)) % len(phases)
	}
	return func(i int) []float64 { return truth[i] }, changes
}
