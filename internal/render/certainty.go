package render

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// certainty answers how sure the shares of one tree are.
type certainty struct {
	columns []profile.Column
	whole   []profile.Sum
}

func newCertainty(t *profile.Tree) certainty {
	return certainty{columns: t.Columns, whole: t.Root.Total}
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
	share := stats.Share(sums(part), sums(c.whole[column]))
	return stats.Interval{Value: p, Low: max(0, min(share.Low, 1)), High: max(0, min(share.High, 1))}, share.Low <= share.High
}

// noisy tells whether a share is so uncertain that its size says little: an
// interval wider than itself.
func (c certainty) noisy(column int, part profile.Sum) bool {
	i, ok := c.interval(column, part)
	return ok && i.Width() > i.Value
}

// compare compares shares in two columns, before they are judged. Columns
// without sampling error count as exact.
func (c certainty) compare(parts []profile.Sum) *stats.Comparison {
	change := stats.Compare(c.side(0, parts[0]), c.side(1, parts[1]))
	return &change
}

func (c certainty) side(column int, part profile.Sum) stats.Side {
	return stats.Side{Part: sums(part), Whole: sums(c.whole[column]), Counted: c.whole[column].Value > 0 && !c.known(column)}
}

// changes are comparisons of what a tree of two columns has, judged together.
type changes struct {
	of     map[*profile.Node]*stats.Comparison
	family stats.Family
}

// changesOf compares all nodes. One that has the samples of its caller and no
// others is no comparison of its own.
func (c certainty) changesOf(t *profile.Tree) changes {
	all := changes{of: map[*profile.Node]*stats.Comparison{}}
	var distinct []*stats.Comparison
	var visit func(n *profile.Node)
	visit = func(n *profile.Node) {
		for _, child := range n.Children {
			if slices.Equal(child.Total, n.Total) {
				all.of[child] = all.of[n]
			} else {
				all.of[child] = c.compare(child.Total)
				distinct = append(distinct, all.of[child])
			}
			visit(child)
		}
	}
	all.of[t.Root] = c.compare(t.Root.Total)
	distinct = append(distinct, all.of[t.Root])
	visit(t.Root)
	all.family = stats.Judge(distinct)
	return all
}

// relativeChange is a change in units of the larger of the two shares, -1 to 1.
func (c certainty) relativeChange(parts []profile.Sum) float64 {
	before, after := c.share(0, parts[0]), c.share(1, parts[1])
	if largest := max(before, after); largest > 0 {
		return (after - before) / largest
	}
	return 0
}
