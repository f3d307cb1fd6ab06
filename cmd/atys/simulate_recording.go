package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"atys.dev/atys/internal/profile/granularity"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats/simulation"
)

// observe shows the parameters of the paper in a recording.
func observe(out io.Writer, path string, asJSON bool) error {
	window, err := readProfile(path)
	if err != nil {
		return err
	}
	o, err := granularity.Observe(window)
	switch {
	case errors.Is(err, granularity.ErrNoTimes):
		return fmt.Errorf("%q: %w: record with --timed, into a .pb.gz", path, err)
	case errors.Is(err, granularity.ErrNoClock):
		return fmt.Errorf("%q: %w: record with -e cpu-clock, or cpu-clock+EVENT", path, err)
	case err != nil:
		return fmt.Errorf("%q: %w", path, err)
	}
	if asJSON {
		return printJSON(out, o)
	}
	w := bufio.NewWriter(out)
	writeObserved(w, o)
	return w.Flush()
}

// figure is one distribution that the paper draws.
type figure struct {
	place, what string // in the paper, empty: it does not draw this
	granularity.Distribution
	format func(float64) string
}

func figuresOf(o *granularity.Observed) []figure {
	duration := func(v float64) string { return render.Value(v, "nanoseconds") }
	number := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	all := []figure{
		{"Figure 6", "sampling interval", o.Intervals, duration},
		{"Figure 7", "running granularity", o.Runs, duration},
		{"", "R, of mean intervals", o.Rates, number},
	}
	if e := o.Events; e != nil {
		all = append(all,
			figure{"Figure 8", render.Printable(e.Kind) + " per ns", e.Values, number},
			figure{"Figure 9", "variance in a module", e.Variances, number})
	}
	return all
}

func writeObserved(w io.Writer, o *granularity.Observed) {
	writeWrapped(w, "", fmt.Sprintf("%s samples on %d CPUs. Samples with no predecessor (the CPU was idle before them, or ran something that was not recorded): %s",
		render.Count(int64(o.Samples)), o.CPUs, render.Count(int64(o.Breaks))))
	fmt.Fprintln(w)
	figures := figuresOf(o)
	t := newColumns("the paper's", "", "n", "mean", "deviation", "least", "10%", "median", "90%", "99%", "greatest")
	for _, f := range figures {
		cells := []any{f.place, f.what, render.Count(int64(f.N))}
		for _, v := range []float64{f.Mean, f.Deviation(), f.Min, f.P10, f.Median, f.P90, f.P99, f.Max} {
			if f.N == 0 {
				cells = append(cells, "-")
				continue
			}
			cells = append(cells, f.format(v))
		}
		t.row(cells...)
	}
	t.write(w)
	for _, f := range figures {
		f.draw(w)
	}
	fmt.Fprintln(w)
	writeWrapped(w, "", "Running granularity is how long consecutive samples of a CPU are of one module. What ran for less than an interval counts as one, so it is overstated, as in the paper.")
	writeWrapped(w, "", aboutEvents(o.Events))
}

// draw draws the paper's figure, if it has more than one value.
func (f *figure) draw(w io.Writer) {
	if f.place == "" || len(f.Bins) < 2 {
		return
	}
	fmt.Fprintf(w, "\n%s: %s, from\n", f.place, f.what)
	var b bars
	for _, bin := range f.Bins {
		b.add(f.format(bin.From), bin.N)
	}
	b.write(w)
}

func aboutEvents(e *granularity.Events) string {
	if e == nil {
		return "Figures 8 and 9 need a second event that happened: record with -e cpu-clock+EVENT."
	}
	return fmt.Sprintf("Of %s modules %s have more than 10 samples. The paper's mean of their variances is 0.3171, of cycles; its unit is %s.",
		render.Count(int64(e.Modules)), render.Count(int64(e.Variances.N)), simulation.NotInOurCopy)
}
