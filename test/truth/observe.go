package truth

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// Observed is what was sampled in one stretch of time: per function, the
// samples that fell into it itself.
type Observed struct {
	From, To int64 // CLOCK_MONOTONIC, ns
	Self     map[string]stats.Sums
	Whole    stats.Sums
}

func (o *Observed) add(function string, s stats.Sums) {
	if o.Self == nil {
		o.Self = map[string]stats.Sums{}
	}
	o.Self[function] = sum(o.Self[function], s)
	o.Whole = sum(o.Whole, s)
}

func sum(a, b stats.Sums) stats.Sums {
	return stats.Sums{N: a.N + b.N, Weight: a.Weight + b.Weight, Squares: a.Squares + b.Squares}
}

// Epoch is the wall clock's time at which CLOCK_MONOTONIC was 0, as the clocks
// stand now: windows have the one, logs the other.
func Epoch() (time.Time, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Time{}, fmt.Errorf("read monotonic clock: %w", err)
	}
	return time.Now().Add(-time.Duration(t.Nano())), nil
}

// Observe folds a window of one victim by function; Epoch gives epoch.
func Observe(w *profile.Window, epoch time.Time) Observed {
	from := w.Start.Sub(epoch).Nanoseconds()
	o := Observed{From: from, To: from + w.Duration.Nanoseconds()}
	for _, r := range w.Rows.All() {
		s := stats.Sums{N: r.N, Weight: float64(r.Values[0]), Squares: r.Squares[0]}
		if s.Squares == 0 && s.N > 0 {
			s.Squares = s.Weight * s.Weight / float64(s.N)
		}
		o.add(function(w, r.Stack), s)
	}
	return o
}

// Only gives the window with the timed samples of the log's process alone, and
// of the thread that burns in it where the log tells it.
func (l *Log) Only(w *profile.Window) *profile.Window {
	out := *w
	out.Samples = nil
	for _, s := range w.Samples {
		if t := w.Thread(s.Thread); t.PID == l.PID && (l.TID == 0 || t.TID == l.TID) {
			out.Samples = append(out.Samples, s)
		}
	}
	return &out
}

// Cut takes the samples of a window, which kept their times, apart into
// windows of the given length, aligned to multiples of it.
func Cut(w *profile.Window, epoch time.Time, length time.Duration) []Observed {
	return CutBy(w, epoch, length, func(id profile.StackID) string { return function(w, id) })
}

// CutBy does what Cut does, with functions named by the caller.
func CutBy(w *profile.Window, epoch time.Time, length time.Duration, name func(profile.StackID) string) []Observed {
	step := length.Nanoseconds()
	start := w.Start.Sub(epoch).Nanoseconds()
	first := (start + step - 1) / step // of the windows that lie inside
	count := (start+w.Duration.Nanoseconds())/step - first
	out := make([]Observed, max(count, 0))
	for i := range out {
		out[i].From = (first + int64(i)) * step
		out[i].To = out[i].From + step
	}
	names := map[profile.StackID]string{} // there are far more samples than stacks
	for _, s := range w.Samples {
		i := (start+s.Time.Nanoseconds())/step - first
		if i < 0 || i >= count {
			continue
		}
		if _, ok := names[s.Stack]; !ok {
			names[s.Stack] = name(s.Stack)
		}
		weight := float64(s.Weight)
		out[i].add(names[s.Stack], stats.Sums{N: 1, Weight: weight, Squares: weight * weight})
	}
	return out
}

// function names what was running: the innermost user function that is one of
// its own. Kernel frames above it, such as the sampling interrupt's, are its
// time as much as its victim's log says they are.
func function(w *profile.Window, id profile.StackID) string {
	for _, l := range w.Stacks[id].Locations {
		for _, f := range w.Frames(l) {
			if f.Kind != profile.KindKernel && !f.Inlined {
				return f.Function
			}
		}
	}
	return "[kernel]"
}
