package freq

import (
	"fmt"
	"math"
)

// divergence is Algorithm 1 of the paper of Atys: a rate rises where two windows in a
// row differ by more than a threshold, and falls where they have not for a while.
type divergence struct {
	options Options
	before  *Window // the last one that had samples
	hertz   float64 // decided last
	streak  int     // windows without a change, since the rate last moved
}

func newDivergence(o Options) *divergence { return &divergence{options: o, hertz: o.Max} }

// Next takes a window. One without samples says nothing: a program that sleeps is as it was.
func (d *divergence) Next(w Window) Decision {
	o := &d.options
	if w.N() == 0 {
		return Decision{d.hertz, Few, "no samples"}
	}
	w = w.head(mostNamed)
	before := d.before
	d.before = &w
	if before == nil {
		return Decision{d.hertz, Began, "the first window"}
	}
	js := JensenShannon(o.cells(before, &w))
	found := fmt.Sprintf("divergence %.3g of the window before, threshold %.3g", js, o.Theta)
	if js > o.Theta {
		d.streak = 0
		d.hertz = o.clamp(d.hertz / o.Lambda)
		return Decision{d.hertz, Changed, found}
	}
	if d.streak++; d.streak < o.Streak {
		return Decision{d.hertz, Stays, fmt.Sprintf("%s, %d of %d windows in a row", found, d.streak, o.Streak)}
	}
	d.streak = 0
	d.hertz = o.clamp(d.hertz * o.Lambda)
	return Decision{d.hertz, Steady, found}
}

// cells are the shares of two windows by function: of the largest of both together, and of the rest.
func (o *Options) cells(a, b *Window) (p, q []float64) {
	c := newCells(largest(o.Top, a, b))
	p, q = c.counts(a), c.counts(b)
	if o.Renormalise && len(p) > 1 {
		p, q = p[:len(p)-1], q[:len(q)-1]
	}
	return normal(p), normal(q)
}

// JensenShannon is the divergence of two distributions in nats: 0 where they are the
// same, ln 2 where they have nothing in common. It is not its root, which is a metric.
func JensenShannon(p, q []float64) (nats float64) {
	for i := range p {
		middle := (p[i] + q[i]) / 2
		for _, x := range []float64{p[i], q[i]} {
			if x > 0 {
				nats += x / 2 * math.Log(x/middle)
			}
		}
	}
	return max(nats, 0)
}
