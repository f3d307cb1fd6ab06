package prune

import (
	"cmp"
	"math"
	"slices"

	"atys.dev/atys/internal/profile"
)

// Skew tells how unevenly threads share a window's samples: Figure 4 of the paper
// of Atys.
type Skew struct {
	Threads []ThreadShare // largest first, ranked as Window does; those that used time without being sampled last
	Sampled int           // of the threads
	N       int64         // samples of all of them
}

// ThreadShare is one thread's part.
type ThreadShare struct {
	Thread   profile.Thread
	N        int64
	Share    float64 // of all threads
	UpToHere float64 // of this one and all before it
}

// SkewOf weighs all threads of a window against each other, whatever their process.
// Samples of no thread, and those of threads that were pruned, are in none of it.
func SkewOf(w *profile.Window) *Skew {
	s := &Skew{}
	all := make([]ThreadShare, len(w.Threads))
	g := &group{}
	sampled, scale := sampledOn(w)
	for i, t := range w.Threads {
		if t.Pruned {
			continue
		}
		weight := scale.sum(sampled[i])
		all[i] = ThreadShare{Thread: t, N: sampled[i].n}
		s.N += all[i].N
		g.total += weight
		if all[i].N > 0 {
			s.Sampled++
		}
		g.threads = append(g.threads, weighed{i, weight})
	}
	g.rank(w.Threads)
	before := int64(0)
	for _, t := range g.threads {
		one := all[t.thread]
		before += t.weight
		one.Share, one.UpToHere = Part(t.weight, g.total), Part(before, g.total)
		s.Threads = append(s.Threads, one)
	}
	return s
}

// Making is how many threads, the largest first, make up so many percent of the
// samples.
func (s *Skew) Making(percent float64) int {
	for i, t := range s.Threads {
		if 100*t.UpToHere >= percent-1e-9 { // shares are rounded
			return i + 1
		}
	}
	return len(s.Threads)
}

// Kept counts the threads of a window that are sampled and not pruned.
func Kept(w *profile.Window) (n int) { return SkewOf(w).Sampled }

// Ranking is a window's functions and their shares of all its values.
type Ranking struct {
	order []profile.FrameKey
	share map[profile.FrameKey]float64
}

// Rank orders a window's functions by what they used themselves, or with all they
// called. What stands for what was cut is no function.
func Rank(w *profile.Window, total bool) (*Ranking, error) {
	tree, err := profile.NewTree(profile.TreeOptions{}, w)
	if err != nil {
		return nil, err
	}
	value := func(f *profile.Function) int64 {
		if total {
			return f.Total[0].Value
		}
		return f.Self[0].Value
	}
	functions := tree.Functions()
	slices.SortStableFunc(functions, func(a, b profile.Function) int { return cmp.Compare(value(&b), value(&a)) })
	r := &Ranking{share: map[profile.FrameKey]float64{}}
	whole := tree.Root.Total[0].Value
	for i := range functions {
		key := functions[i].Frame.Key()
		if v := value(&functions[i]); v > 0 && key.Function != Name {
			r.order, r.share[key] = append(r.order, key), Part(v, whole)
		}
	}
	return r, nil
}

// Len is how many functions there are.
func (r *Ranking) Len() int { return len(r.order) }

// MAPE is by how much the shares of the n largest functions are off in another
// window, as parts of them, in the mean: 0.01 is 1%. It is NaN where there are no
// functions; with fewer than n it is of all.
func (r *Ranking) MAPE(other *Ranking, n int) float64 {
	largest := r.order[:min(n, len(r.order))]
	if len(largest) == 0 {
		return math.NaN()
	}
	off := 0.0
	for _, key := range largest {
		off += math.Abs(other.share[key]-r.share[key]) / r.share[key]
	}
	return off / float64(len(largest))
}
