package cost

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/prune"
)

// crowd is a window of a busy thread and some that are sampled once, in what that does
// too, but on another stack.
func crowd(idle int) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(10)}})
	add := func(tid int, n int64, calls ...string) {
		var stack []profile.LocationID
		for _, function := range calls {
			stack = append(stack, b.Named(profile.Frame{Function: function}))
		}
		id := b.Thread(profile.Thread{PID: 1, TID: tid, Process: "shop", Name: "worker-" + fmt.Sprint(tid)})
		b.Add(profile.Row{Stack: b.Stack(stack, profile.EndComplete), Thread: id, N: n, Values: []int64{10 * n}})
	}
	add(1, int64(60*idle), "hot", "serve")
	add(1, int64(40*idle), "warm", "serve")
	for i := range idle {
		add(2+i, 1, "hot", "keep")
	}
	return b.Window()
}

func TestReport(t *testing.T) {
	w := crowd(10)
	r, err := Of(t.Context(), w, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Skew.Sampled != 11 || r.Functions != 2 || len(r.Levels) != len(Levels()) || len(r.Measured.Runs) != 1+len(Levels()) || r.Unpruned.Bytes == 0 {
		t.Errorf("%+v", r)
	}
	for _, l := range r.Levels {
		threads, cut, off := 1, int64(10), 0.5*10/610 // the busy thread has 99.01%; of two functions one loses ten of 610
		if l.Percent >= 99 {
			off = 0 // which would be more than half a percent of it: it is told
		}
		if l.Percent > 99.01 {
			threads, cut = 10, 0 // one goes, and others are on its stack
		}
		if l.Threads != threads || math.Abs(l.MostOff-float64(cut)/1010) > 1e-12 || l.Samples != cut || math.Abs(l.MAPE[0]-off) > 1e-9 {
			t.Errorf("%s: %d threads stay, %d samples are cut, off by %g, by %g at most", prune.Level(l.Percent), l.Threads, l.Samples, l.MAPE[0], l.MostOff)
		}
		if l.Bytes == 0 || l.All == 0 || l.All < l.Took[Encoding] {
			t.Errorf("%s: %+v", prune.Level(l.Percent), l.Times)
		}
	}
}

// TestNoTimes measures nothing where nobody asks, and changes nothing.
func TestNoTimes(t *testing.T) {
	w := crowd(3)
	before := profiletest.Canonical(w)
	if r, err := Of(t.Context(), w, 0, true); err != nil || r.Measured != nil || r.Unpruned != (Times{}) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Measure(t.Context(), w, []float64{100, 80}, 1); err != nil {
		t.Error(err)
	}
	if after := profiletest.Canonical(w); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the recording has changed")
	}
}

func TestWithoutThreads(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	b.Add(profile.Row{Stack: b.Stack(nil, profile.EndUnknown), N: 1, Values: []int64{1}})
	if _, err := Of(t.Context(), b.Window(), 1, false); !errors.Is(err, ErrNoThreads) {
		t.Errorf("%v", err)
	}
}
