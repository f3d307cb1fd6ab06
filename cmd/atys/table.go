package main

import (
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

// table is text in columns, each as wide as it needs to be and aligned right,
// but for the last, a function's name, which is cut to what room is left.
type table struct {
	heads []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer, o render.Options) {
	widths := make([]int, len(t.heads)-1)
	for _, row := range append([][]string{t.heads}, t.rows...) {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	head := t.line(t.heads, widths, o.Width)
	if !o.NoColor {
		head = "\x1b[2m" + head + "\x1b[0m"
	}
	fmt.Fprintln(w, head)
	for _, row := range t.rows {
		fmt.Fprintln(w, t.line(row, widths, o.Width))
	}
}

// more says how many rows of all are not in the table.
func (t *table) more(w io.Writer, all int) {
	switch rest := all - len(t.rows); {
	case all == 0:
		fmt.Fprintln(w, "no samples")
	case rest == 1:
		fmt.Fprintln(w, "and 1 more function")
	case rest > 1:
		fmt.Fprintf(w, "and %s more functions\n", render.Count(int64(rest)))
	}
}

func (t *table) line(row []string, widths []int, room int) string {
	var line strings.Builder
	limited := room > 0
	for i, width := range widths {
		fmt.Fprintf(&line, "%*s  ", width, row[i])
		room -= width + 2
	}
	name := row[len(row)-1]
	if limited {
		name = render.Fit(name, max(room, minName))
	}
	return strings.TrimRight(line.String()+name, " ")
}

// minName is what is left of a name on the narrowest terminal: lines then wrap.
const minName = 16

// functionName names a function and the file it belongs to.
func functionName(f profile.Frame) string {
	name := render.Printable(f.Function)
	where := f.Mapping
	if where == "" {
		where = f.File
	}
	if where != "" {
		name += "  (" + render.Printable(path.Base(where)) + ")"
	}
	return name
}

// writeTitle writes a line that stands out.
func writeTitle(w io.Writer, title string, o render.Options) {
	title = render.Printable(title)
	if o.Width > 0 {
		title = render.Fit(title, o.Width)
	}
	if !o.NoColor {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintln(w, title)
}

// writeFacts says what a profile measured, how, and what is missing from it.
func writeFacts(w io.Writer, lead string, win *profile.Window) {
	whole := selection.Whole(win)
	t := win.Types[0]
	facts := []string{render.Value(float64(whole.Value), t.Unit) + " of " + render.Printable(t.Kind)}
	if win.Exact.CPU > 0 {
		facts = append(facts, "exactly "+render.Value(float64(win.Exact.CPU), "nanoseconds")+" of CPU used")
	}
	if whole.N > 0 {
		facts = append(facts, render.Count(whole.N)+" samples")
	}
	if win.Duration > 0 {
		facts = append(facts, "in "+render.Value(float64(win.Duration), "nanoseconds"))
	}
	if win.Design != profile.DesignUnknown {
		facts = append(facts, render.Printable(string(win.Design))+" sampling")
	}
	fmt.Fprintln(w, lead+strings.Join(facts, ", "))
	for _, l := range win.Losses {
		detail := ""
		if l.Detail != "" {
			detail = " (" + render.Printable(l.Detail) + ")"
		}
		fmt.Fprintf(w, "  %s%s: %s samples\n", render.Printable(string(l.Reason)), detail, render.Count(l.N))
	}
}

// shareOf gives a share with its interval; sampled tells whether it has one:
// neither a census nor a profile that counts no samples does.
func shareOf(part, whole profile.Sum, d profile.Design) (i stats.Interval, sampled bool) {
	if d == profile.DesignCensus || whole.N <= 0 || whole.Value <= 0 {
		share := 0.0
		if whole.Value != 0 {
			share = float64(part.Value) / float64(whole.Value)
		}
		return stats.Interval{Value: share, Low: share, High: share}, false
	}
	return stats.Share(sums(part), sums(whole)), true
}

func sums(s profile.Sum) stats.Sums {
	return stats.Sums{N: s.N, Weight: float64(s.Value), Squares: s.Squares}
}

// percents writes an interval of shares: 10.1–14.6%.
func percents(low, high float64) string {
	d := digits(high)
	return fmt.Sprintf("%.*f–%.*f%%", d, low*100, d, high*100)
}

// points writes an interval of differences, in percentage points.
func points(low, high float64) string {
	d := digits(max(math.Abs(low), math.Abs(high)))
	return fmt.Sprintf("%+.*f to %+.*f", d, low*100, d, high*100)
}

// digits after the point are more the smaller a share is.
func digits(share float64) int {
	switch {
	case share < 0.01:
		return 3
	case share < 0.1:
		return 2
	}
	return 1
}
