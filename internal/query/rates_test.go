package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// ratedWindow is a window of ten seconds of the service shop, by how often it was sampled and why.
func ratedWindow(instance string, window int, rate profile.Rate) written {
	w := cut(instance, time.Duration(window)*10*time.Second, 10*time.Second, 0, map[string]int64{"main": int64(rate.Hertz)})
	w.head.Rate = rate
	return w
}

// ratedShelf is two instances, of which one hears late that the rate fell, and then is
// over its budget.
func ratedShelf() *shelf {
	began := profile.Rate{Hertz: 100, Policy: "auto", Reason: "began", Why: "the first window", By: profile.ByServer}
	steady := profile.Rate{Hertz: 80, Policy: "auto", Reason: "steady", Why: "for 5 windows", By: profile.ByServer}
	again := steady
	again.Why = "for 10 windows"
	capped := profile.Rate{Hertz: 20, Policy: "auto", Reason: "steady", By: profile.ByBudget}
	s := &shelf{}
	for i, rates := range [][2]profile.Rate{{began, began}, {began, began}, {steady, began}, {again, steady}, {again, capped}} {
		s.windows = append(s.windows, ratedWindow("a", i, rates[0]), ratedWindow("bb", i, rates[1]))
	}
	fixed := head(0) // as agents before rates were told cut them: by the period
	fixed.Task, fixed.Duration = "old", 10*time.Second
	fixed.Types[0].Period = int64(time.Second / 19)
	s.windows = append(s.windows, written{profile.Labels{"service": "shop", "instance": "a"}, fixed, "", map[string]int64{"main": 2}},
		written{profile.Labels{"node": "n"}, machineHead(0), "", nil})
	return s
}

func TestRates(t *testing.T) {
	a := Asker{Tenant: "x", Now: func() time.Time { return noon.Add(time.Minute) }, Store: ratedShelf()}
	for all, want := range map[bool]string{
		false: `
			old shop at 0s for 10s: 19 Hz (19 to 19), "" of 1 windows, 1 instances, 2 samples
			t shop at 0s for 30s: 100 Hz (80 to 100), "began" of 6 windows, 2 instances, 580 samples
			t shop at 30s for 20s: 80 Hz (20 to 80), "steady" of 4 windows, 2 instances, 260 samples`,
		true: `
			old shop at 0s for 10s: 19 Hz (19 to 19), "" of 1 windows, 1 instances, 2 samples
			t shop at 0s for 10s: 100 Hz (100 to 100), "began" of 2 windows, 2 instances, 200 samples
			t shop at 10s for 10s: 100 Hz (100 to 100), "began" of 2 windows, 2 instances, 200 samples
			t shop at 20s for 10s: 100 Hz (80 to 100), "began" of 2 windows, 2 instances, 180 samples
			t shop at 30s for 10s: 80 Hz (80 to 80), "steady" of 2 windows, 2 instances, 160 samples
			t shop at 40s for 10s: 80 Hz (20 to 80), "steady" of 2 windows, 2 instances, 100 samples`,
	} {
		rows, coverage, err := a.Rates(t.Context(), about(t, ""), all)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, d := range rows {
			fmt.Fprintf(&got, "\n\t\t\t%s %s at %v for %v: %.3g Hz (%.3g to %.3g), %q of %d windows, %d instances, %d samples", d.Task, d.Service, d.Start.Sub(noon), d.Duration,
				d.Rate.Hertz, d.Lowest, d.Highest, d.Rate.Reason, d.Windows, d.Instances, d.N)
		}
		if got.String() != want {
			t.Errorf("all %v:%s\nwant%s", all, got.String(), want)
		}
		if coverage.Windows != 12 || coverage.N != 842 {
			t.Errorf("%d windows and %d samples are covered", coverage.Windows, coverage.N)
		}
	}
}

// TestRatesOfSums looks at what a relay has added up of nine windows, and at two by
// themselves: each window counts once.
func TestRatesOfSums(t *testing.T) {
	h := newHistory()
	for i, of := range []int{9, 1, 1} {
		head := head(0)
		head.Duration, head.Rate = 10*time.Second, profile.Rate{Hertz: []float64{19, 99, 99}[i], Policy: "auto"}
		if err := h.add(store.Head{Series: profile.Labels{"service": "shop", "instance": fmt.Sprint(i)}, Head: &head, N: 10, Of: of}); err != nil {
			t.Fatal(err)
		}
	}
	rows := h.rows(nil)
	if len(rows) != 1 || rows[0].Windows != 11 || rows[0].Rate.Hertz != 19 || h.windows != 11 || h.looked != 3 {
		t.Errorf("%+v, %d windows, %d looked at", rows, h.windows, h.looked)
	}
}
