package truth

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"atys.dev/atys/internal/stats"
)

// enough is how many samples a function must be expected to have in a window
// to be scored in it: the project's criterion.
const enough = 5

// counts are numbers of expected samples at which ranges of Score.Counts end.
var counts = [...]float64{1, 2, 3, 5, 10, 20, 50, 100}

// CountRange names a range of Score.Counts.
func CountRange(i int) string {
	switch i {
	case 0:
		return fmt.Sprintf("less than %g", counts[0])
	case len(counts):
		return fmt.Sprintf("%g or more", counts[i-1])
	}
	return fmt.Sprintf("%g to %g", counts[i-1], counts[i])
}

// Score tells how well the intervals of shares hold, pooled over windows.
type Score struct {
	Windows int
	Skipped int // not within the log, or empty
	Samples int64
	Total   Tally
	By      map[string]*Tally      // by function
	Counts  [len(counts) + 1]Tally // by how many samples were expected: also those too few for Total

	clusters []cluster
}

// cluster is one window's intervals. Those of one window depend on each other:
// what one function has too much, others have too little.
type cluster struct{ n, covered float64 }

// Tally counts intervals.
type Tally struct {
	N           int // pairs of window and function
	Covered     int
	Above       int     // intervals that lie above the truth
	Width, MidP float64 // summed widths: of the intervals, of mid-P on the plain counts
	Truth       float64 // summed shares
	Estimate    float64
	Squared     float64 // summed squared errors, over the variance of as many independent samples
}

// Coverage is the part of intervals that contained the truth, with its own
// 95% interval as if windows and functions were independent.
func (t Tally) Coverage() stats.Interval { return stats.MidP(float64(t.Covered), float64(t.N)) }

// WidthRatio is the mean width over that of the mid-P intervals.
func (t Tally) WidthRatio() float64 { return t.Width / t.MidP }

// Effect is the design effect: the variance of the estimates over what as
// many independent samples would have.
func (t Tally) Effect() float64 { return t.Squared / float64(t.N) }

// Bias is by how much the shares were overestimated, in the mean.
func (t Tally) Bias() float64 { return (t.Estimate - t.Truth) / float64(t.N) }

func (t *Tally) join(o Tally) {
	t.N += o.N
	t.Covered += o.Covered
	t.Above += o.Above
	t.Width += o.Width
	t.MidP += o.MidP
	t.Truth += o.Truth
	t.Estimate += o.Estimate
	t.Squared += o.Squared
}

func (t *Tally) add(truth float64, part, whole stats.Sums) {
	got := stats.Share(part, whole)
	t.N++
	switch {
	case got.Contains(truth):
		t.Covered++
	case got.Low > truth:
		t.Above++
	}
	n := float64(whole.N)
	t.Width += got.Width()
	t.MidP += stats.MidP(float64(part.N), n).Width()
	t.Truth += truth
	t.Estimate += got.Value
	if spread := truth * (1 - truth); spread > 0 {
		t.Squared += math.Pow(got.Value-truth, 2) * n / spread
	}
}

// Add scores one window against the log.
func (s *Score) Add(l *Log, o Observed) {
	truth := l.Self(o.From, o.To)
	total := 0.0
	for _, ns := range truth {
		total += ns
	}
	if o.From < l.Start || o.To > l.End || total == 0 || o.Whole.N == 0 {
		s.Skipped++
		return
	}
	s.Windows++
	s.Samples += o.Whole.N
	before := s.Total
	if s.By == nil {
		s.By = map[string]*Tally{}
	}
	for f, ns := range truth {
		share := ns / total
		expected := share * float64(o.Whole.N)
		if f == Other || ns == 0 {
			continue
		}
		i, _ := slices.BinarySearch(counts[:], math.Nextafter(expected, math.Inf(1)))
		s.Counts[i].add(share, o.Self[f], o.Whole)
		if expected < enough {
			continue
		}
		if s.By[f] == nil {
			s.By[f] = &Tally{}
		}
		s.By[f].add(share, o.Self[f], o.Whole)
		s.Total.add(share, o.Self[f], o.Whole)
	}
	s.clusters = append(s.clusters, cluster{float64(s.Total.N - before.N), float64(s.Total.Covered - before.Covered)})
}

// Join adds the windows of another score, of another victim perhaps. Its
// functions are not told apart from those of the same name here.
func (s *Score) Join(o *Score) {
	s.Windows += o.Windows
	s.Skipped += o.Skipped
	s.Samples += o.Samples
	s.Total.join(o.Total)
	s.clusters = append(s.clusters, o.clusters...)
	for i := range s.Counts {
		s.Counts[i].join(o.Counts[i])
	}
	if s.By == nil {
		s.By = map[string]*Tally{}
	}
	for f, t := range o.By {
		if s.By[f] == nil {
			s.By[f] = &Tally{}
		}
		s.By[f].join(*t)
	}
}

// PerWindow is how many samples a window has, in the mean.
func (s *Score) PerWindow() float64 { return float64(s.Samples) / max(float64(s.Windows), 1) }

// Coverage is the part of intervals that contained the truth, with the 95%
// interval of a ratio over windows.
func (s *Score) Coverage() stats.Interval {
	var n, covered, squares float64
	for _, c := range s.clusters {
		n += c.n
		covered += c.covered
	}
	if n == 0 {
		return stats.Interval{High: 1}
	}
	p := covered / n
	for _, c := range s.clusters {
		squares += math.Pow(c.covered-p*c.n, 2)
	}
	k := float64(len(s.clusters))
	half := 1.96 * math.Sqrt(squares*k/max(k-1, 1)) / n
	return stats.Interval{Value: p, Low: max(p-half, 0), High: min(p+half, 1)}
}

// Surest is the function whose share is most surely overestimated or
// underestimated, and by how many standard errors of the mean over windows.
func (s *Score) Surest() (name string, t *Tally, errors float64) {
	for _, f := range slices.Sorted(maps.Keys(s.By)) {
		one := s.By[f]
		share := one.Truth / float64(one.N)
		deviation := math.Sqrt(one.Effect() * share * (1 - share) / s.PerWindow() / float64(one.N))
		if z := one.Bias() / deviation; t == nil || math.Abs(z) > math.Abs(errors) {
			name, t, errors = f, one, z
		}
	}
	return name, t, errors
}

// Worst is the function whose share is overestimated or underestimated most.
func (s *Score) Worst() (name string, t *Tally) {
	for _, f := range slices.Sorted(maps.Keys(s.By)) {
		if one := s.By[f]; t == nil || math.Abs(one.Bias()) > math.Abs(t.Bias()) {
			name, t = f, one
		}
	}
	return name, t
}

// WriteTo prints the score as a table: all functions, then each.
func (s *Score) WriteTo(w io.Writer) (int64, error) {
	var written int64
	line := func(format string, args ...any) error {
		n, err := fmt.Fprintf(w, format, args...)
		written += int64(n)
		return err
	}
	if err := line("%d windows, %d skipped\n%-32s %8s %9s %17s %7s %7s %9s %7s\n", s.Windows, s.Skipped,
		"function", "n", "covered", "(95%)", "width", "effect", "bias", "share"); err != nil {
		return written, err
	}
	row := func(name string, t *Tally) error {
		c := t.Coverage()
		return line("%-32.32s %8d %9.4f [%.4f, %.4f] %7.3f %7.2f %+9.5f %7.4f\n",
			name, t.N, c.Value, c.Low, c.High, t.WidthRatio(), t.Effect(), t.Bias(), t.Truth/float64(t.N))
	}
	if err := row("all", &s.Total); err != nil {
		return written, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.By)) {
		if err := row(name, s.By[name]); err != nil {
			return written, err
		}
	}
	return written, nil
}
