package render

import (
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// certainty answers how sure the shares of one tree are.
type certainty struct {
	columns []profile.Column
	whole   []profile.Sum
	compute func(part, whole profile.Sum) (lo, hi float64)
}

func newCertainty(t *profile.Tree, o Options) certainty {
	c := certainty{columns: t.Columns, whole: t.Root.Total, compute: o.Interval}
	if c.compute == nil {
		c.compute = func(part, whole profile.Sum) (lo, hi float64) {
			i := stats.Share(sums(part), sums(whole))
			return i.Low, i.High
		}
	}
	return c
}

func sums(s profile.Sum) stats.Sums {
	return stats.Sums{N: s.N, Weight: float64(s.Value), Squares: s.Squares}
}

func (c certainty) share(column int, part profile.Sum) float64 {
	if c.whole[column].Value == 0 {
		return 0
	}
	return float64(part.Value) / float64(c.whole[column].Value)
}

// known tells whether a column's shares have intervals: they were sampled.
func (c certainty) known(column int) bool {
	return c.columns[column].Head.Design != profile.DesignCensus && c.whole[column].N > 0 && c.whole[column].Value > 0
}

// interval gives a share with its 95% interval; ok tells whether there is one.
func (c certainty) interval(column int, part profile.Sum) (i stats.Interval, ok bool) {
	p := c.share(column, part)
	if !c.known(column) {
		return stats.Interval{Value: p, Low: p, High: p}, false
	}
	lo, hi := c.compute(part, c.whole[column])
	return stats.Interval{Value: p, Low: max(0, min(lo, 1)), High: max(0, min(hi, 1))}, lo <= hi
}

// noisy tells whether a share is so uncertain that its size says little: an
// interval wider than itself.
func (c certainty) noisy(column int, part profile.Sum) bool {
	i, ok := c.interval(column, part)
	return ok && i.Width() > i.Value
}

// change compares a node's shares in two columns. Columns without sampling
// error count as exact; significant is false where the interval holds 0.
func (c certainty) change(parts []profile.Sum) (d stats.Interval, significant bool) {
	before, _ := c.interval(0, parts[0])
	after, _ := c.interval(1, parts[1])
	d = stats.Difference(before, after)
	return d, d.Low > 0 || d.High < 0
}

// relativeChange is a change in units of the larger of the two shares, -1 to 1.
func (c certainty) relativeChange(parts []profile.Sum) float64 {
	before, after := c.share(0, parts[0]), c.share(1, parts[1])
	if largest := max(before, after); largest > 0 {
		return (after - before) / largest
	}
	return 0
}
