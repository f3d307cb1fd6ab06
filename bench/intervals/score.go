package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/test/truth"
)

// What the issue asks for.
const (
	floorCovered = 0.93
	floorWidth   = 1.5
)

// cluster is one window's intervals. Those of one window depend on each other:
// what one function has too much, others have too little.
type cluster struct{ n, covered float64 }

// add scores one window.
func (v *victim) add(log *truth.Log, o truth.Observed) {
	var one truth.Score
	one.Add(log, o)
	v.score.Add(log, o)
	if one.Windows > 0 {
		v.clusters = append(v.clusters, cluster{float64(one.Total.N), float64(one.Total.Covered)})
		v.samples += o.Whole.N
	}
}

// coverage is the part of intervals that contained the truth, with the interval
// of a ratio over windows.
func coverage(clusters []cluster) stats.Interval {
	var n, covered, squares float64
	for _, c := range clusters {
		n += c.n
		covered += c.covered
	}
	if n == 0 {
		return stats.Interval{High: 1}
	}
	p := covered / n
	for _, c := range clusters {
		squares += math.Pow(c.covered-p*c.n, 2)
	}
	k := float64(len(clusters))
	half := 1.96 * math.Sqrt(squares*k/max(k-1, 1)) / n
	return stats.Interval{Value: p, Low: max(p-half, 0), High: min(p+half, 1)}
}

// worst is the function whose share is most overestimated or underestimated,
// and by how many standard errors of the mean over windows.
func (v *victim) worst() (name string, t *truth.Tally, errors float64) {
	perWindow := float64(v.samples) / max(float64(v.score.Windows), 1)
	for _, f := range slices.Sorted(maps.Keys(v.score.By)) {
		one := v.score.By[f]
		share := one.Truth / float64(one.N)
		deviation := math.Sqrt(one.Effect() * share * (1 - share) / perWindow / float64(one.N))
		if z := one.Bias() / deviation; t == nil || math.Abs(z) > math.Abs(errors) {
			name, t, errors = f, one, z
		}
	}
	return name, t, errors
}

func report(runs []*victim) error {
	harness.Header(os.Stdout, fmt.Sprintf("go run ./bench/intervals -windows %d -d %v -F %v -at-once %d -placement %s",
		*windows, *length, *hz, *atOnce, *where))
	var t harness.Table
	t.Row("victim", "windows", "samples in each", "intervals", "covered (95%)", "width / mid-P", "design effect", "largest bias", "holds")
	for _, v := range runs {
		c, all := coverage(v.clusters), v.score.Total
		bias := ""
		if name, worst, errors := v.worst(); worst != nil {
			bias = fmt.Sprintf("%s %+.3f%% of %.1f%% (%+.1f s.e.)", name, 100*worst.Bias(), 100*worst.Truth/float64(worst.N), errors)
		}
		holds := "yes"
		if c.Value < floorCovered || all.WidthRatio() > floorWidth || all.N == 0 {
			holds = "no"
		}
		t.Row(v.name, fmt.Sprint(v.score.Windows), fmt.Sprintf("%.0f", float64(v.samples)/max(float64(v.score.Windows), 1)), fmt.Sprint(all.N),
			fmt.Sprintf("%.2f%% (%.2f to %.2f)", 100*c.Value, 100*c.Low, 100*c.High),
			fmt.Sprintf("%.3f", all.WidthRatio()), fmt.Sprintf("%.2f", all.Effect()), bias, holds)
	}
	if err := t.Print(os.Stdout); err != nil {
		return err
	}
	for _, v := range runs {
		fmt.Printf("\n%s: %s\n", v.name, v.placed)
		for _, l := range v.losses {
			fmt.Printf("  %s (%s): %d samples\n", l.Reason, l.Detail, l.N)
		}
		if *verbose {
			if _, err := v.score.WriteTo(os.Stdout); err != nil {
				return err
			}
		}
	}
	return nil
}
