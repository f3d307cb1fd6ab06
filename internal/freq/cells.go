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
			if n > 0 && f.N > 0 && f.Name != Others {
				share[f.Name] += f.N / n
			}
		}
	}
	shares := make([]Function, 0, len(share))
	for name, part := range share {
		shares = append(shares, Function{name, part})
	}
	first, _ := split(shares, top)
	names := make([]string, len(first))
	for i, f := range first {
		names[i] = f.Name
	}
	return names
}

// split takes the largest functions out, sorted, and tells what the others have. It
// sorts no more than these: there may be thousands.
func split(all []Function, most int) (first []Function, rest float64) {
	first = make([]Function, 0, most+1)
	for _, f := range all {
		if len(first) < most || most > 0 && bySize(f, first[most-1]) < 0 {
			i, _ := slices.BinarySearchFunc(first, f, bySize)
			first = slices.Insert(first, i, f)
		} else {
			rest += f.N
			continue
		}
		if len(first) > most {
			rest += first[most].N
			first = first[:most]
		}
	}
	return first, rest
}

// bySize has the largest first, and those of one size by name.
func bySize(a, b Function) int {
	return cmp.Or(-cmp.Compare(a.N, b.N), cmp.Compare(a.Name, b.Name))
}

// normal divides by the sum, where there is any.
func normal(n []float64) []float64 {
	all := sum(n)
	if all == 0 {
		return n
	}
	shares := make([]float64, len(n))
	for i, x := range n {
		shares[i] = x / all
	}
	return shares
}

// head is a window with its largest functions, and all others as one.
func (w Window) head(functions int) Window {
	if len(w.Functions) <= functions {
		return w
	}
	first, rest := split(w.Functions, functions)
	w.Functions = append(first, Function{Others, rest})
	return w
}

// Others is what stands for functions that are not told apart; no function has this name.
const Others = "\x00others"

// absorb adds a window to one before it.
func (w *Window) absorb(o *Window) {
	n, m := w.N(), o.N()
	if n+m > 0 {
		w.Hertz = (w.Hertz*n + o.Hertz*m) / (n + m)
	}
	w.Start, w.Length, w.Parts = o.Start, o.Length, nil
	sums := map[string]float64{}
	for _, f := range slices.Concat(w.Functions, o.Functions) {
		sums[f.Name] += f.N
	}
	w.Functions = w.Functions[:0:0]
	for name, n := range sums {
		w.Functions = append(w.Functions, Function{name, n})
	}
	slices.SortFunc(w.Functions, bySize)
	*w = w.head(mostNamed)
}
