package freq

import "atys.dev/atys/internal/stats"

// groups are stretches that are alike, added up, in samples' worth.
type groups []group

type group struct {
	tally
	windows int
}

// leastAlike is how many samples stretches are to have before they count as one: with
// fewer, what they differ by would be taken for chance, and it is not small.
const leastAlike = 2000

// join adds a stretch to the group that it is most like, or to one of its own, and
// gives its number. What lasted a single window may be a mixture: it joins none, and
// nothing joins it.
func (g *groups) join(t tally, windows int) (number int) {
	number, best := len(*g), alike
	for i, old := range *g {
		if windows < 2 || old.windows < 2 || t.n < leastAlike || old.n < leastAlike {
			continue
		}
		c := compare(t, old.tally)
		if p := stats.ChiSquaredAbove(c.g, c.freedom); p >= best {
			number, best = i, p
		}
	}
	if number == len(*g) {
		*g = append(*g, group{})
	}
	(*g)[number].add(t)
	(*g)[number].windows += windows
	return number
}
