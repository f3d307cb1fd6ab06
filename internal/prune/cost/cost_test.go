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

// crowd is a window of a busy thread and some that are sampled once.
func crowd(idle int) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu", Unit: "nanoseconds", Period: 10}}})
	add := func(tid int, function string, n int64) {
		leaf := b.Named(profile.Frame{Function: function})
		id := b.Thread(profile.Thread{PID: 1, TID: tid, Process: "shop", Name: "worker-" + fmt.Sprint(tid)})
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndComplete), Thread: id, N: n, Values: []int64{10 * n}})
	}
	add(1, "hot", int64(60*idle))
	add(1, "warm", int64(40*idle))
	for i := range idle {
		add(2+i, "hot", 1)
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
		threads, share := 1, 10.0/1010 // the busy thread has 99.01%
		switch {
		case l.Percent > 99.01: // one would go, and is more than the 0.1% that hot may lose
			threads, share = 11, 0
		case l.Percent > 98: // hot has 610, of which it may lose 6
			threads, share = 5, 6.0/1010
		}
		if l.Threads != threads || l.MostOff != share || l.Samples != int64(11-threads) {
			t.Errorf("%s: %d threads stay, %d samples are pruned, off by %g at most", prune.Level(l.Percent), l.Threads, l.Samples, l.MostOff)
		}
		if l.Bytes == 0 || l.All == 0 || l.All < l.Took[Encoding] {
			t.Errorf("%s: %+v", prune.Level(l.Percent), l.Times)
		}
	}
	if got := r.Levels[0].MAPE[0]; math.Abs(got-0.5*10/610) > 1e-9 { // of two functions one loses ten of 610
		t.Errorf("the largest are off by %g", got)
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
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu", Unit: "nanoseconds"}}})
	b.Add(profile.Row{Stack: b.Stack(nil, profile.EndUnknown), N: 1, Values: []int64{1}})
	if _, err := Of(t.Context(), b.Window(), 1, false); !errors.Is(err, ErrNoThreads) {
		t.Errorf("%v", err)
	}
}
