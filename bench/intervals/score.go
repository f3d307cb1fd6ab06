package main

import (
	"fmt"
	"os"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/truth"
)

// What the issue asks for.
const (
	floorCovered = 0.93
	floorWidth   = 1.4
)

func report(runs []*victim) error {
	harness.Header()
	var t harness.Table
	t.Row("victim", "windows", "samples in each", "intervals", "covered (95%)", "width / mid-P", "design effect", "largest bias", "holds")
	for _, v := range runs {
		c, all := v.score.Coverage(), v.score.Total
		bias := ""
		if name, worst, errors := v.score.Surest(); worst != nil {
			bias = fmt.Sprintf("%s %+.3f%% of %.1f%% (%+.1f s.e.)", name, 100*worst.Bias(), 100*worst.Truth/float64(worst.N), errors)
		}
		holds := "yes"
		if c.Value < floorCovered || all.WidthRatio() > floorWidth || all.N == 0 {
			holds = "no"
		}
		t.Row(v.name, fmt.Sprint(v.score.Windows), fmt.Sprintf("%.0f", v.score.PerWindow()), fmt.Sprint(all.N),
			fmt.Sprintf("%.2f%% (%.2f to %.2f)", 100*c.Value, 100*c.Low, 100*c.High),
			fmt.Sprintf("%.3f", all.WidthRatio()), fmt.Sprintf("%.2f", all.Effect()), bias, holds)
	}
	if err := t.Print(); err != nil {
		return err
	}
	if err := byCount(runs); err != nil {
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

// byCount prints the coverage of all victims together by how many samples a
// function was expected to have: an interval may hold in the mean and not where
// little was seen.
func byCount(runs []*victim) error {
	var all truth.Score
	for _, v := range runs {
		all.Join(&v.score)
	}
	fmt.Println()
	var t harness.Table
	t.Row("samples expected", "intervals", "covered (95%)", "width / mid-P", "holds")
	for i, tally := range all.Counts {
		if tally.N == 0 {
			continue
		}
		c, holds := tally.Coverage(), "yes"
		if c.Value < floorCovered || tally.WidthRatio() > floorWidth {
			holds = "no"
		}
		t.Row(truth.CountRange(i), fmt.Sprint(tally.N), fmt.Sprintf("%.2f%% (%.2f to %.2f)", 100*c.Value, 100*c.Low, 100*c.High),
			fmt.Sprintf("%.3f", tally.WidthRatio()), holds)
	}
	return t.Print()
}
