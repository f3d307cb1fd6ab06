package profile

import (
	"math/rand/v2"
	"testing"
	"time"
)

// balanced has so many samples a second of CPU time, each of 10 ms, and used so much.
func balanced(samples int64, exact time.Duration, losses ...Loss) *Window {
	const period = int64(10 * time.Millisecond)
	b := NewBuilder(Head{Start: time.Unix(1e9, 0), Duration: 10 * time.Second, Design: DesignRandomised, Types: []ValueType{CPUTime(period)},
		Exact: Exact{CPU: exact}})
	if samples > 0 {
		b.Add(Row{Stack: b.Stack(nil, EndComplete), N: samples, Values: []int64{samples * period}, Squares: []float64{float64(samples) * float64(period) * float64(period)}})
	}
	for _, l := range losses {
		b.Head().AddLoss(l)
	}
	return b.Window()
}

// foreign is a window of which only the samples are known.
func foreign(samples int64) *Window {
	w := balanced(samples, 0)
	w.Design = DesignUnknown
	return w
}

func TestBalance(t *testing.T) {
	late := Loss{Reason: LossUnsampled, Detail: TooShortLived, N: 1, Value: int64(time.Second)}
	for _, c := range []struct {
		name    string
		window  *Window
		want    string
		missing time.Duration
	}{
		{"all is there", balanced(1000, 10*time.Second), "", 0},
		{"a tenth is missing", balanced(9000, 100*time.Second), "10% of the CPU time was not sampled", 10 * time.Second},
		{"a tenth of few samples may be chance", balanced(90, time.Second), "", 0},
		{"one percent is tolerated", balanced(990_000, 10000*time.Second), "", 0},
		{"too much is no loss", balanced(11000, 100*time.Second), "", 0},
		{"no sample of what should have had many", balanced(0, 10*time.Second), "100% of the CPU time was not sampled", 10 * time.Second},
		{"a loss that is told is within what is missing", balanced(9000, 100*time.Second, late), "10% of the CPU time was not sampled: threads too short-lived", 10 * time.Second},
		{"a loss is told even where chance could be it", balanced(90, time.Second, Loss{Reason: LossUnsampled, Detail: TooShortLived, N: 3, Value: int64(34 * time.Millisecond)}),
			"3.4% of the CPU time was not sampled: threads too short-lived", 34 * time.Millisecond},
		{"a small one is not", balanced(1000, 10*time.Second, Loss{Reason: LossUnsampled, N: 1, Value: 1e6}), "", 0},
		{"what found no room was sampled", balanced(9000, 100*time.Second, Loss{Reason: LossDropped, N: 1000, Value: int64(10 * time.Second)}), "", 0},
		{"what has no exact time is left out", balanced(10100, 100*time.Second, Loss{Reason: LossExact, N: 1, Value: int64(time.Second)}), "", 0},
		{"nor can be much of it", balanced(15000, 100*time.Second, Loss{Reason: LossExact, N: 1, Value: int64(50 * time.Second)}),
			"sampled time is not checked against exact time: processes came and went unseen", 0},
		{"too many targets", balanced(5000, 100*time.Second, Loss{Reason: LossTargets, N: 9}),
			"50% of the CPU time was not sampled: more processes than the kernel's table of targets holds", 50 * time.Second},
		{"nothing at all", balanced(0, 0), "", 0},
		{"a profile of another tool", foreign(100), "", 0},
		{"a profiler without exact times", balanced(100, 0), "sampled time is not checked against exact time: this profiler keeps no exact CPU time", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.window.Balance()
			if got := b.String(); got != c.want {
				t.Errorf("%q, want %q (%+v)", got, c.want, b)
			}
			if got := b.Missing(); got != c.missing {
				t.Errorf("%v are missing, want %v", got, c.missing)
			}
		})
	}
}

func TestWithoutExactTime(t *testing.T) {
	w := balanced(100, time.Second)
	w.Types[0] = ValueType{Kind: "page-faults", Unit: "count"}
	if got := w.Balance().String(); got != "sampled time is not checked against exact time: the kernel keeps no exact total of page-faults" {
		t.Error(got)
	}
	w = balanced(100, 10*time.Second)
	w.MarkPartOfCPU()
	w.MarkPartOfCPU()
	if b := w.Balance(); b.Missing() != 0 || b.Unknown == "" || len(w.Comments) != 1 {
		t.Errorf("%q of user code only, %q", b, w.Comments)
	}
}

// What is added to a window as a loss is not missing a second time, nor in the sum
// of windows that have it.
func TestLossIsToldOnce(t *testing.T) {
	a, b := balanced(9000, 100*time.Second), balanced(8000, 100*time.Second)
	for _, w := range []*Window{a, b} {
		w.AddLoss(w.Balance().Loss())
		if again := w.Balance().Loss(); again.N != 0 || again.Value != 0 {
			t.Errorf("told again: %+v", again)
		}
	}
	sum, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := sum.LossOf(LossUnsampled); got.N != 3000 || got.Value != int64(30*time.Second) {
		t.Errorf("the sum of the windows tells of %+v", got)
	}
	if got := sum.Balance().Missing(); got != 30*time.Second {
		t.Errorf("%v are missing of the sum", got)
	}
}

// Windows that are each within chance show in their sum what is missing, once.
func TestLedgerFindsWhatNoWindowShows(t *testing.T) {
	var l Ledger
	var told Loss
	var exact time.Duration
	for range 30 {
		w := balanced(85, time.Second)
		if loss := w.Balance().Loss(); loss.Value != 0 {
			t.Fatalf("one window alone tells of %+v", loss)
		}
		l.Add(w)
		exact += w.Exact.CPU
		if loss := w.LossOf(LossUnsampled); loss.Value > 0 {
			told.N, told.Value = told.N+loss.N, told.Value+loss.Value
			if want := int64(exact) * 15 / 100; told.Value != want {
				t.Errorf("%v are told after %v, want %v", time.Duration(told.Value), exact, time.Duration(want))
			}
		}
	}
	if told.Value == 0 {
		t.Error("15% of 30 s were missing, and no window tells of it")
	}
}

// A minute has to pass, and what is told once is not told again.
func TestLedgerWaits(t *testing.T) {
	var l Ledger
	for i := range 12 {
		w := balanced(500, 10*time.Second)
		l.Add(w)
		if got, want := w.LossOf(LossUnsampled).Value > 0, i == 5 || i == 11; got != want {
			t.Errorf("window %d tells of a loss: %v", i, got)
		}
	}
}

// Chance alone is hardly ever told as a loss: a target's ledger is asked each window.
func TestLedgerKeepsQuiet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 29))
	told := 0
	for range 300 { // targets, an hour each
		var l Ledger
		for range 360 {
			var samples int64
			for range 100 { // of a second, at 99 Hz
				if rng.Float64() < 0.99 {
					samples++
				}
			}
			w := balanced(samples, 990*time.Millisecond)
			l.Add(w)
			if w.LossOf(LossUnsampled).Value > 0 {
				told++
			}
		}
	}
	if told > 3 {
		t.Errorf("%d losses are told of 300 hours in which all was sampled", told)
	}
}
