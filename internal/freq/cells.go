package freq

import (
	"cmp"
	"slices"
)

// cells tell functions apart by place: the largest ones, and the rest behind them.
type cells struct {
	names []string
	place map[string]int
}

func newCells(names []string) *cells {
	c := &cells{names: names, place: make(map[string]int, len(names))}
	for i, name := range names {
		c.place[name] = i
	}
	return c
}

// counts are a window's samples by cell.
func (c *cells) counts(w *Window) []float64 {
	n := make([]float64, len(c.names)+1)
	for _, f := range w.Functions {
		i, ok := c.place[f.Name]
		if !ok {
			i = len(c.names)
		}
		n[i] += f.N
	}
	return n
}

// largest names the functions that have most of the windows' samples, the largest
// first. Each window counts the same: one at a high rate does not choose for both.
func largest(top int, windows ...*Window) []string {
	share := map[string]float64{}
	for _, w := range windows {
		n := w.N()
		for _, f := range w.Functions {
			if n > 0 && f.N > 0 && f.Name != others {
				share[f.Name] += f.N / n
			}
		}
	}
	names := make([]string, 0, len(share))
	for name := range share {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(-cmp.Compare(share[a], share[b]), cmp.Compare(a, b)) })
	return names[:min(top, len(names))]
}

// normal divides by the sum, where there is any.
func normal(n []float64) []float64 {
	sum := 0.0
	for _, x := range n {
		sum += x
	}
	if sum == 0 {
		return n
	}
	shares := make([]float64, len(n))
	for i, x := range n {
		shares[i] = x / sum
	}
	return shares
}

// head is a window with its largest functions, and all others as one.
func (w Window) head(functions int) Window {
	byName := map[string]float64{}
	for _, f := range w.Functions {
		byName[f.Name] += f.N
	}
	all := make([]Function, 0, len(byName))
	for name, n := range byName {
		all = append(all, Function{name, n})
	}
	slices.SortFunc(all, func(a, b Function) int { return cmp.Or(-cmp.Compare(a.N, b.N), cmp.Compare(a.Name, b.Name)) })
	if len(all) > functions {
		rest := 0.0
		for _, f := range all[functions:] {
			rest += f.N
		}
		all = append(all[:functions], Function{others, rest})
	}
	w.Functions = all
	return w
}

// others is what stands for functions that are not told apart; no function has this name.
const others = "\x00others"

// absorb adds a window to one before it.
func (w *Window) absorb(o *Window) {
	n, m := w.N(), o.N()
	if n+m > 0 {
		w.Hertz = (w.Hertz*n + o.Hertz*m) / (n + m)
	}
	w.Start, w.Length = o.Start, o.Length
	w.Functions = append(slices.Clone(w.Functions), o.Functions...)
	*w = w.head(mostNamed)
}
