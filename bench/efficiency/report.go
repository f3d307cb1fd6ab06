package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/stats"
)

// result is all that replay finds, as -json writes it.
type result struct {
	Command    string
	Workload   string
	Par        par
	Recordings []string
	Stretches  int
	Rows       []found
	Checks     []checked
	Windows    []seenWindow
}

// found is a row of the table. Errors are mean absolute ones of shares: 0.01 is a point.
type found struct {
	Stream, Estimate string
	Hertz            float64 // in the mean
	Error            stats.Interval
	Reference        *verdict // against the par's
	After            float64  // error in the two windows after a change
	AfterAt99        *verdict // of those: against fixed 99 Hz
	AfterAt500       *verdict
	Cost, CostPart   float64 // cores; of those at the par's Reference. 0: not known

	Accounts, AccountsPart float64 // the same by what was counted: see curve
}

// checked is a recording at a lower rate, or by another kernel.
type checked struct {
	Recording, Kernel string
	Hertz             float64
	Error             stats.Interval
	Windows, Empty    int     // the second are those without any sample, left out of the error
	Samples           float64 // in a window, in the mean
	Thinned           float64 // the error of the thinned one at its rate; 0: there is none
	ThinnedSamples    float64
}

// seenWindow is a window, and each row's mean error and rate in it.
type seenWindow struct {
	Start         int64 // unix ns
	Truth         []float64
	Changed       bool
	Divergence    float64 // of the window before, by the truth: nats
	Errors, Rates []float64
}

// report prints the table, and writes what is asked for.
func (p *replaying) report(o *replayed, args []string) error {
	command := "go run ./bench/efficiency replay " + strings.Join(args, " ")
	var costs *curve
	if p.cost != "" {
		var err error
		if costs, err = readCurve(p.cost); err != nil {
			return err
		}
	}
	r, err := p.result(o, costs)
	if err != nil {
		return err
	}
	r.Command = command
	if p.json != "" {
		text, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(p.json, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	harness.Header()
	return r.print(os.Stdout, o, p.repetitions)
}

// result compares the rows.
func (p *replaying) result(o *replayed, costs *curve) (*result, error) {
	r := &result{Workload: o.name, Par: o.workload.par}
	if p.par.Reference > 0 {
		r.Par.Reference = p.par.Reference
	}
	if p.par.Scale > 0 {
		r.Par.Scale = p.par.Scale
	}
	for _, of := range o.recordings {
		r.Recordings = append(r.Recordings, of.dir)
	}
	if n := len(o.moments); n > 0 {
		r.Stretches = o.moments[n-1].block + 1
	}
	for _, w := range o.rows {
		row, err := o.compare(w, r.Par)
		if err != nil {
			return nil, err
		}
		if costs != nil {
			row.Cost, row.CostPart = costs.share(w.rates, r.Par.Reference)
			row.Accounts, row.AccountsPart = costs.byAccounts().share(w.rates, r.Par.Reference)
		}
		r.Rows = append(r.Rows, row)
	}
	for _, c := range o.checks {
		r.Checks = append(r.Checks, o.checked(c))
	}
	r.Windows = o.windows()
	return r, nil
}

// fixed finds the row of a fixed rate.
func (o *replayed) fixed(hz float64) (*row, error) {
	for _, w := range o.rows {
		if w.fixed == hz {
			return w, nil
		}
	}
	return nil, fmt.Errorf("%g Hz is compared with, but is none of -rates", hz)
}

// compare compares a row with fixed rates.
func (o *replayed) compare(w *row, p par) (found, error) {
	f := found{Stream: w.Stream, Estimate: w.Estimate, Error: w.errors.mean(o.moments, every)}
	f.Hertz = w.rates.mean(o.moments, every).Value
	f.After = w.errors.mean(o.moments, behind).Value
	against := func(reference, scale float64, counts func(moment) bool) (*verdict, error) {
		of, err := o.fixed(reference)
		if err != nil || of == w {
			return nil, err
		}
		wide, err := o.fixed(scale)
		if err != nil {
			return nil, err
		}
		v := judge(w.errors.less(of.errors).mean(o.moments, counts), wide.errors.mean(o.moments, counts).Value)
		return &v, nil
	}
	var err error
	if f.Reference, err = against(float64(p.Reference), float64(p.Scale), every); err != nil {
		return f, err
	}
	if math.IsNaN(f.After) { // there was no change
		f.After = 0
		return f, nil
	}
	if f.AfterAt99, err = against(99, 99, behind); err != nil {
		return f, err
	}
	if _, missing := o.fixed(500); missing != nil { // which a slow profiler cannot hold
		return f, nil
	}
	f.AfterAt500, err = against(500, 500, behind)
	return f, err
}

func (o *replayed) checked(c check) checked {
	out := checked{Recording: c.recording.dir, Kernel: c.recording.Kernel, Hertz: c.recording.Hertz, Windows: c.windows, Empty: c.empty,
		Error: c.errors.mean(c.moments, every), Samples: float64(c.recording.Samples) / float64(max(c.windows, 1))}
	if w, err := o.fixed(out.Hertz); err == nil {
		out.Thinned = w.errors.mean(o.moments, every).Value
		out.ThinnedSamples = w.samples.mean(o.moments, every).Value
	}
	return out
}

// windows are the moments, one after the other.
func (o *replayed) windows() []seenWindow {
	all := make([]seenWindow, len(o.moments))
	for j, m := range o.moments {
		all[j] = seenWindow{Start: m.start, Truth: m.truth, Changed: m.at}
		if j > 0 {
			all[j].Divergence = freq.JensenShannon(o.moments[j-1].truth, m.truth)
		}
		for _, w := range o.rows {
			all[j].Errors = append(all[j].Errors, w.errors.at(j))
			all[j].Rates = append(all[j].Rates, w.rates.at(j))
		}
	}
	return all
}

// at is the mean of a moment.
func (s series) at(j int) (mean float64) {
	for i := range s {
		mean += s[i][j] / float64(len(s))
	}
	return mean
}

// print prints what is published.
func (r *result) print(w io.Writer, o *replayed, repetitions int) error {
	for _, of := range o.recordings {
		fmt.Fprintf(w, "%s: %s, %d samples at %g Hz, %d threads at work in a window at most, seed %d; missing or incomplete: %v; %s\n",
			of.dir, of.Workload, of.Samples, of.Hertz, of.Threads, of.Seed, of.Losses, of.Machine)
	}
	if len(r.Rows) > 0 {
		fmt.Fprintf(w, "%d windows in %d stretches, %d repetitions; on a par: the upper end of the difference to %d Hz is at most a tenth of the error at %d Hz\n%s\n\n",
			len(r.Windows), r.Stretches, repetitions, r.Par.Reference, r.Par.Scale, r.divergences())
		if err := r.table(w); err != nil {
			return err
		}
	}
	if len(r.Checks) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	var t harness.Table
	t.Row("recording", "kernel", "rate", "windows; without a sample", "error, points", "samples a window", "error when thinned to that rate", "samples a window")
	for _, c := range r.Checks {
		thinned, samples := "", ""
		if c.Thinned > 0 {
			thinned, samples = fmt.Sprintf("%.3f", 100*c.Thinned), fmt.Sprintf("%.0f", c.ThinnedSamples)
		}
		t.Row(c.Recording, c.Kernel, rateName(c.Hertz), fmt.Sprintf("%d; %d", c.Windows, c.Empty), interval(c.Error), fmt.Sprintf("%.0f", c.Samples), thinned, samples)
	}
	return t.Write(w)
}

func (r *result) table(w io.Writer) error {
	var t harness.Table
	head := []string{"rate or policy", "estimate", "mean Hz", "error, points", fmt.Sprintf("less that of %d Hz", r.Par.Reference), "on a par",
		"error after a change", "less that of 99 Hz", "not worse", "less that of 500 Hz"}
	costs := len(r.Rows) > 0 && r.Rows[0].Cost > 0
	if costs {
		head = append(head, "cost, of a core", fmt.Sprintf("of that at %d Hz", r.Par.Reference), "by accounts", fmt.Sprintf("of that at %d Hz", r.Par.Reference))
	}
	t.Row(head...)
	for _, f := range r.Rows {
		cells := []string{f.Stream, f.Estimate, fmt.Sprintf("%.0f", f.Hertz), interval(f.Error)}
		cells = append(cells, f.Reference.cells()...)
		cells = append(cells, fmt.Sprintf("%.3f", 100*f.After))
		cells = append(cells, f.AfterAt99.cells()...)
		cells = append(cells, f.AfterAt500.cells()[0])
		if costs {
			cells = append(cells, fmt.Sprintf("%.2f%%", 100*f.Cost), fmt.Sprintf("%.1f%%", 100*f.CostPart),
				fmt.Sprintf("%.2f%%", 100*f.Accounts), fmt.Sprintf("%.1f%%", 100*f.AccountsPart))
		}
		t.Row(cells...)
	}
	return t.Write(w)
}

// cells are the difference and whether it holds.
func (v *verdict) cells() []string {
	if v == nil {
		return []string{"", ""}
	}
	holds := "no"
	if v.Holds {
		holds = "yes"
	}
	return []string{interval(v.Difference), holds}
}

func interval(i stats.Interval) string {
	return fmt.Sprintf("%.3f (%.3f to %.3f)", 100*i.Value, 100*i.Low, 100*i.High)
}

// divergences tells what Figure 5 of the paper shows: how much hot functions differ from
// window to window, where phases change and where they do not.
func (r *result) divergences() string {
	var within, across []float64
	for i, w := range r.Windows {
		switch {
		case i == 0:
		case w.Changed || r.Windows[i-1].Changed:
			across = append(across, w.Divergence)
		default:
			within = append(within, w.Divergence)
		}
	}
	return fmt.Sprintf("Jensen-Shannon divergence of the window before, by the truth, in the median: %.2g nats where phases change, %.2g elsewhere",
		stats.Median(across), stats.Median(within))
}
