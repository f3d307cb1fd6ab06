package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

// table is text in columns, each as wide as it needs to be and aligned right.
// A function comes last, with the file it belongs to as far as there is room.
type table struct {
	heads []string
	rows  []tableRow
}

type tableRow struct {
	cells    []string
	function profile.Frame
}

func (t *table) add(function profile.Frame, cells ...string) {
	t.rows = append(t.rows, tableRow{cells, function})
}

// write writes the table and says how many rows of all are not in it.
func (t *table) write(w io.Writer, all int, o render.Options) {
	if all == 0 {
		fmt.Fprintln(w, "no samples")
		return
	}
	widths := make([]int, len(t.heads))
	for i, head := range t.heads {
		widths[i] = utf8.RuneCountInString(head)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row.cells[i]))
		}
	}
	head, _ := aligned(t.heads, widths)
	head += "function"
	if !o.NoColor {
		head = "\x1b[2m" + head + "\x1b[0m"
	}
	fmt.Fprintln(w, head)
	for _, row := range t.rows {
		line, used := aligned(row.cells, widths)
		room := 0
		if o.Width > 0 {
			room = max(o.Width-used, minName)
		}
		fmt.Fprintln(w, line+functionName(row.function, room))
	}
	switch rest := all - len(t.rows); {
	case rest == 1:
		fmt.Fprintln(w, "and 1 more function")
	case rest > 1:
		fmt.Fprintf(w, "and %s more functions\n", render.Count(int64(rest)))
	}
}

// aligned puts cells right in their columns.
func aligned(cells []string, widths []int) (line string, used int) {
	for i, width := range widths {
		line += fmt.Sprintf("%*s  ", width, cells[i])
		used += width + 2
	}
	return line, used
}

// minName is what is left of a name on the narrowest terminal: lines then wrap.
const minName = 16

// functionName names a function and, if there is room for it, the file it
// belongs to; room 0 is any.
func functionName(f profile.Frame, room int) string {
	name := render.Printable(f.Function)
	full := name
	if where := cmp.Or(f.Mapping, f.File); where != "" {
		full += "  (" + render.Printable(path.Base(where)) + ")"
	}
	if room == 0 || render.Fit(full, room) == full {
		return full
	}
	return render.Fit(name, room)
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

// titleOf names a profile by what it measured, and of what.
func titleOf(w *profile.Window) string {
	title := w.Types[0].Kind + " profile"
	if len(w.Target) > 0 {
		title += " of " + strings.Trim(w.Target.String(), "{}")
	}
	return title
}

// writeFacts says what a profile measured, how, and what is missing from it: in one
// line, and all of it by itself where that is asked for.
func writeFacts(w io.Writer, lead string, win *profile.Window, all bool) {
	whole := selection.Whole(win)
	t := win.Types[0]
	var facts []string
	if t.Kind != "samples" { // they come below
		facts = append(facts, render.Totals(whole.Value, t, win.Exact.CPU))
	} else if win.Exact.CPU > 0 {
		facts = append(facts, render.Value(float64(win.Exact.CPU), "nanoseconds")+" of CPU time used")
	}
	if whole.N > 0 || t.Kind == "samples" {
		facts = append(facts, render.Count(whole.N)+" samples")
	}
	if win.Duration > 0 {
		facts = append(facts, "in "+render.Value(float64(win.Duration), "nanoseconds"))
	}
	if win.Design != profile.DesignUnknown {
		facts = append(facts, render.Printable(string(win.Design))+" sampling")
	}
	fmt.Fprintln(w, lead+strings.Join(facts, ", "))
	writeMissing(w, win, all)
}

// writeMissing summarizes the losses of a profile in a line; with all, it lists each. Then it says
// why the sampled CPU time could not be checked, and by how much pruning may have changed shares.
func writeMissing(w io.Writer, win *profile.Window, all bool) {
	lacks := render.Losses(lossesOf(win), win.N(), win.Exact.CPU)
	if lacks.Line != "" {
		fmt.Fprintln(w, "  "+lacks.Line)
	}
	if all {
		for _, item := range lacks.Items {
			fmt.Fprintln(w, "    "+item)
		}
	}
	if b := win.Balance(); b.Unknown != "" && b.Missing() == 0 && b.String() != "" {
		fmt.Fprintf(w, "  %s\n", render.Printable(b.String()))
	}
	if len(win.Types) == 0 {
		return
	}
	if off := prune.Share(win, 0); off > 0 {
		fmt.Fprintln(w, "  "+render.Pruned(off))
	}
}

// lossesOf are a profile's losses, with CPU time that was certainly not sampled: what
// older versions and other profilers have written does not say that.
func lossesOf(win *profile.Window) []profile.Loss {
	missing := win.Balance().Loss()
	if missing.Value == 0 {
		return win.Losses
	}
	return append(slices.Clone(win.Losses), missing)
}

// writeTypes says what else a profile holds than what is shown.
func writeTypes(w io.Writer, win *profile.Window) {
	var kinds []string
	for _, t := range win.Types[1:] {
		kinds = append(kinds, render.Printable(t.Kind))
	}
	if len(kinds) > 0 {
		fmt.Fprintln(w, "with --type it shows "+strings.Join(kinds, ", "))
	}
}

// shareOf gives a share with its interval; sampled tells whether it has one:
// neither a census nor a profile that counts no samples does.
func shareOf(part, whole profile.Sum, d profile.Design) (i stats.Interval, sampled bool) {
	if !estimated(whole, d) {
		share := 0.0
		if whole.Value != 0 {
			share = float64(part.Value) / float64(whole.Value)
		}
		return stats.Interval{Value: share, Low: share, High: share}, false
	}
	return stats.Share(sums(part), sums(whole)), true
}

// estimated tells whether shares of a whole have a sampling error that is known.
func estimated(whole profile.Sum, d profile.Design) bool {
	return d != profile.DesignCensus && whole.N > 0 && whole.Value > 0
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
	case share < 0.00995:
		return 3
	case share < 0.0995:
		return 2
	}
	return 1
}
