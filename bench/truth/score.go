package main

import (
	"fmt"
	"math"
	"os"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/truth"
)

// What the issue asks for.
const (
	floorCovered = 0.93
	floorWidth   = 1.5
	floorBias    = 0.01
)

func report(runs []*program) error {
	harness.Header()
	var t harness.Table
	t.Row("runtime", "windows", "samples in each", "intervals", "functions: covered (95%)", "width / mid-P", "worst bias", "lines: covered (95%)", "width / mid-P", "worst bias", "holds")
	families := map[string]*program{}
	for i, p := range runs {
		p.row(&t, p.runtime.Name)
		whole := families[p.runtime.Family]
		if whole == nil {
			whole = &program{runtime: p.runtime}
			families[p.runtime.Family] = whole
		}
		whole.functions.Join(&p.functions)
		whole.lines.Join(&p.lines)
		if i+1 == len(runs) || runs[i+1].runtime.Family != p.runtime.Family {
			whole.row(&t, "all of "+p.runtime.Family)
		}
	}
	if err := t.Print(); err != nil {
		return err
	}
	fmt.Println()
	for _, p := range runs {
		fmt.Printf("%s: %d of %d samples show no function of the language\n", p.runtime.Name, p.unnamed, p.sampled)
		if !*verbose {
			continue
		}
		for _, s := range []*truth.Score{&p.functions, &p.lines} {
			if s.Total.N == 0 {
				continue
			}
			if _, err := s.WriteTo(os.Stdout); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *program) row(t *harness.Table, name string) {
	holds := "yes"
	if !sound(&p.functions) || p.lines.Total.N > 0 && !sound(&p.lines) {
		holds = "no"
	}
	f, l := cells(&p.functions), cells(&p.lines)
	t.Row(append(append([]string{name, fmt.Sprint(p.functions.Windows), fmt.Sprintf("%.0f", p.functions.PerWindow()),
		fmt.Sprint(p.functions.Total.N)}, append(f, l...)...), holds)...)
}

func cells(s *truth.Score) []string {
	if s.Total.N == 0 {
		return []string{"", "", ""}
	}
	c := s.Coverage()
	name, worst := s.Worst()
	return []string{
		fmt.Sprintf("%.2f%% (%.2f to %.2f)", 100*c.Value, 100*c.Low, 100*c.High),
		fmt.Sprintf("%.3f", s.Total.WidthRatio()),
		fmt.Sprintf("%s %+.2f of %.1f points", name, 100*worst.Bias(), 100*worst.Truth/float64(worst.N)),
	}
}

// sound tells whether a score keeps the floors.
func sound(s *truth.Score) bool {
	_, worst := s.Worst()
	return worst != nil && s.Coverage().Value >= floorCovered && s.Total.WidthRatio() <= floorWidth && math.Abs(worst.Bias()) <= floorBias
}
