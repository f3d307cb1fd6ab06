package main

import (
	"fmt"
	"math"

	"atys.dev/atys/bench/harness"
)

// report prints the matrix and the mean ratio at each rate.
func report(all []cell, done *resultFile) error {
	harness.Header()
	var t harness.Table
	head := []string{"cell", "samples", "sampled / exact (99.9%)", "must", "holds", "stolen"}
	if *other != "" {
		head = append(head, "old")
	}
	t.Row(head...)
	sums := map[float64]*mean{}
	held, judged := 0, 0
	for _, c := range all {
		r := done.of(c.String(), newProgram)
		if r == nil {
			continue
		}
		b := r.balance()
		low, high := c.within()
		holds := "no"
		if judged++; b.Ratio >= low && b.Ratio <= high {
			held++
			holds = "yes"
		}
		row := []string{c.String(), fmt.Sprint(r.Sum.N), fmt.Sprintf("%.3f (%.3f to %.3f)", b.Ratio, b.Low, b.High), fmt.Sprintf("%.2f to %.2f", low, high), holds, fmt.Sprintf("%.1f%%", 100*r.Stolen)}
		if *other != "" {
			row = append(row, ratioOf(done.of(c.String(), oldProgram)))
		}
		t.Row(row...)
		if sums[c.hz] == nil {
			sums[c.hz] = &mean{}
		}
		sums[c.hz].add(b.Ratio)
	}
	if err := t.Print(); err != nil {
		return err
	}
	fmt.Printf("\n%d of %d cells hold.", held, judged)
	printed := map[float64]bool{}
	for _, c := range all {
		if m := sums[c.hz]; m != nil && !printed[c.hz] {
			printed[c.hz] = true
			fmt.Printf(" Mean at %v Hz: %.3f.", c.hz, m.value())
		}
	}
	fmt.Println()
	return nil
}

func ratioOf(r *result) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", r.balance().Ratio)
}

// mean is a running mean that skips NaN.
type mean struct {
	n   int
	sum float64
}

func (m *mean) add(v float64) {
	if !math.IsNaN(v) {
		m.n, m.sum = m.n+1, m.sum+v
	}
}

func (m *mean) value() float64 { return m.sum / float64(max(m.n, 1)) }
