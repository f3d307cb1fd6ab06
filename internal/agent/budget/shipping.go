package budget

import (
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// shipping is what windows took in a time.
type shipping struct {
	lasted time.Duration
	spent  float64 // core-seconds
	Shipped
}

// shippings are those of the latest decisions, oldest first, since it changed how many windows
// are shipped.
type shippings []shipping

// evidence is how long fewer windows have to be shipped before it is known what more would take:
// long ones end together, once in it.
const evidence = time.Minute

// add adds what was taken since the last decision, and forgets what is older than evidence needs.
func (all *shippings) add(l *Load) {
	one := shipping{l.For, l.Spent[cputime.Shipping] * l.For.Seconds(), l.Shipped}
	if last := len(*all) - 1; last >= 0 && (*all)[last].Windows == 0 && one.Windows == 0 {
		(*all)[last].add(one)
	} else {
		*all = append(*all, one)
	}
	_, n, _ := all.latest(evidence)
	*all = (*all)[len(*all)-n:]
}

// latest adds up the last n that lasted for long enough and in which a window was shipped: windows
// can be longer than decisions are apart. enough is false if there are no such.
func (all *shippings) latest(least time.Duration) (sum shipping, n int, enough bool) {
	for n < len(*all) && !enough {
		sum.add((*all)[len(*all)-1-n])
		n++
		enough = sum.lasted >= least && sum.Windows > 0
	}
	return sum, n, enough
}

func (s *shipping) add(o shipping) {
	s.lasted, s.spent = s.lasted+o.lasted, s.spent+o.spent
	s.Shipped.Add(o.Shipped)
}

// perWindow returns what shipping took for one of the windows, of a core.
func (s *shipping) perWindow() float64 {
	if s.Windows == 0 {
		return 0
	}
	return s.spent / s.lasted.Seconds() / float64(s.Windows)
}
