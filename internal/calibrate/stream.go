package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
)

// Stream is what was sampled of a service, one step after the other. By which samples
// of a step came first it is not told: nothing here needs it.
type Stream struct {
	Step   time.Duration
	Hertz  float64     // samples of a second of CPU time
	Names  []string    // of functions; the last one stands for all others
	Counts [][]float64 // samples by step and function, whole numbers
}

// Refusals of recordings that cannot be replayed.
var (
	ErrNoSamples = errors.New("it holds no samples")
	ErrNoTimes   = errors.New("it holds no times of samples")
	ErrNoClock   = errors.New("its samples are not those of a clock, so that nobody knows at which rate they were taken")
	ErrTooLong   = fmt.Errorf("its samples are more than %d steps apart", mostSteps)
)

// mostSteps are five days of five seconds each.
const mostSteps = 86_400

// mostFunctions are told apart: those that have the largest shares in any step.
const mostFunctions = 64

// FromTimed reads a recording that has kept its samples' times.
func FromTimed(w *profile.Window, step time.Duration) (*Stream, error) {
	switch {
	case len(w.Samples) == 0 && w.N() == 0:
		return nil, ErrNoSamples
	case len(w.Samples) == 0:
		return nil, ErrNoTimes
	}
	if err := clocked(w); err != nil {
		return nil, err
	}
	byTime := func(a, b profile.Sample) int { return cmp.Compare(a.Time, b.Time) }
	first, last := slices.MinFunc(w.Samples, byTime).Time, slices.MaxFunc(w.Samples, byTime).Time
	if length := last - first; length < 0 || length/step >= mostSteps { // below nothing: it is more than a duration can be
		return nil, ErrTooLong
	}
	r, functions := &reading{step: step}, functionsOf(w)
	for _, s := range w.Samples {
		r.add(int((s.Time-first)/step), functions[s.Stack], 1, s.Weight)
	}
	return r.stream()
}

// FromWindows reads windows that were cut one after the other, each a step long. Nil
// ones had no samples.
func FromWindows(step time.Duration, windows ...*profile.Window) (*Stream, error) {
	r := &reading{step: step}
	for i, w := range windows {
		if w == nil {
			continue
		}
		if err := clocked(w); err != nil {
			return nil, err
		}
		functions := functionsOf(w)
		for _, row := range w.Rows.All() {
			r.add(i, functions[row.Stack], row.N, row.Values[0])
		}
	}
	return r.stream()
}

func clocked(w *profile.Window) error {
	if len(w.Types) == 0 || w.Types[0].Unit != "nanoseconds" {
		return ErrNoClock
	}
	return nil
}

// functionsOf names what each stack was in, itself.
func functionsOf(w *profile.Window) []string {
	names := make([]string, len(w.Stacks))
	for i, s := range w.Stacks {
		switch {
		case len(s.Locations) == 0:
			names[i] = "[unknown]"
		case prune.IsMarker(w.Locations[s.Locations[0]]):
			names[i] = freq.Others
		default:
			names[i] = w.Frames(s.Locations[0])[0].Function
		}
	}
	return names
}

// reading counts samples by step and function.
type reading struct {
	step   time.Duration
	steps  []map[string]int64
	n      int64
	weight int64
}

// add adds samples; what was taken away from others (a difference) is none.
func (r *reading) add(step int, function string, n, weight int64) {
	if n <= 0 {
		return
	}
	for len(r.steps) <= step {
		r.steps = append(r.steps, map[string]int64{})
	}
	r.steps[step][function] += n
	r.n, r.weight = r.n+n, r.weight+weight
}

func (r *reading) stream() (*Stream, error) {
	if r.n == 0 {
		return nil, ErrNoSamples
	}
	if r.weight <= 0 {
		return nil, ErrNoClock
	}
	s := &Stream{Step: r.step, Hertz: float64(r.n) / time.Duration(r.weight).Seconds(), Names: append(r.largest(), freq.Others)}
	place := map[string]int{}
	for i, name := range s.Names {
		place[name] = i
	}
	for _, step := range r.steps {
		counts := make([]float64, len(s.Names))
		for name, n := range step {
			i, ok := place[name]
			if !ok {
				i = len(s.Names) - 1
			}
			counts[i] += float64(n)
		}
		s.Counts = append(s.Counts, counts)
	}
	return s, nil
}

// largest are the functions that have most of any step.
func (r *reading) largest() []string {
	most := map[string]float64{}
	for _, step := range r.steps {
		all := int64(0)
		for _, n := range step {
			all += n
		}
		for name, n := range step {
			most[name] = max(most[name], float64(n)/float64(max(all, 1)))
		}
	}
	delete(most, freq.Others)
	names := slices.SortedFunc(maps.Keys(most), func(a, b string) int { return cmp.Or(-cmp.Compare(most[a], most[b]), cmp.Compare(a, b)) })
	return names[:min(mostFunctions, len(names))]
}

// Length is how long was recorded.
func (s *Stream) Length() time.Duration { return time.Duration(len(s.Counts)) * s.Step }

// N is how many samples there are.
func (s *Stream) N() (n float64) {
	for _, counts := range s.Counts {
		n += sum(counts)
	}
	return n
}

// Functions is how many there are, up to those that are not told apart.
func (s *Stream) Functions() int { return len(s.Names) - 1 }

// largest are the places of the functions that have most of all samples.
func (s *Stream) largest(top int) []int {
	all := make([]float64, s.Functions())
	places := make([]int, s.Functions())
	for i := range places {
		places[i] = i
		for _, counts := range s.Counts {
			all[i] += counts[i]
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return -cmp.Compare(all[a], all[b]) })
	return places[:min(top, len(places))]
}

// window is steps [from, to) as a policy is told of them, if so many of each function
// had been sampled.
func (s *Stream) window(from, to int, hertz float64, counts []float64) freq.Window {
	w := freq.Window{Start: time.Unix(0, int64(from)*int64(s.Step)), Length: time.Duration(to-from) * s.Step, Hertz: hertz}
	for i, n := range counts {
		if n > 0 {
			w.Functions = append(w.Functions, freq.Function{Name: s.Names[i], N: n})
		}
	}
	return w
}

// summed adds steps [from, to) up.
func summed(steps [][]float64, from, to int) []float64 {
	counts := make([]float64, len(steps[from]))
	for _, step := range steps[from:to] {
		for i, n := range step {
			counts[i] += n
		}
	}
	return counts
}

func sum(counts []float64) (n float64) {
	for _, x := range counts {
		n += x
	}
	return n
}

// Divergence is how much a window differs from the one before.
type Divergence struct {
	At   time.Duration // since the beginning: where the one ends and the other begins
	Nats float64
}

// Divergences are those of windows of one length, at the rate of the recording: Figure 5
// of the paper. Windows without samples say nothing, and are left out.
func (s *Stream) Divergences(length time.Duration) (all []Divergence) {
	steps := int(length / s.Step)
	o := freq.Options{Policy: freq.Atys}
	o.Fill()
	var before *freq.Window
	for from := 0; from+steps <= len(s.Counts); from += steps {
		w := s.window(from, from+steps, s.Hertz, summed(s.Counts, from, from+steps))
		if w.N() == 0 {
			continue
		}
		if before != nil {
			all = append(all, Divergence{time.Duration(from) * s.Step, o.Divergence(before, &w)})
		}
		before = &w
	}
	return all
}

// ByChance is how much windows of one length diverge at a rate, in the mean, of a program
// that always does the same: an eighth of chi-squared, over the samples of each of the two.
func (s *Stream) ByChance(length time.Duration, hertz float64) (nats float64) {
	busy := 0.0
	for _, counts := range s.Counts {
		if sum(counts) > 0 {
			busy += s.Step.Seconds()
		}
	}
	n := s.N() / s.Hertz * hertz * length.Seconds() / busy // of a window
	freedom := min(freq.DefaultTop, s.Functions()-1)
	return min(float64(max(freedom, 0))/(4*n), math.Ln2) // which is the most there is
}
