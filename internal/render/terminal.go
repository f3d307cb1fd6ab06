package render

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
)

const terminalWidth = 100

// Terminal writes a flame graph as lines of text. With colours a box is a
// stretch of background; without them it stands in brackets.
func Terminal(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render terminal: %w", err)
	}
	if o.Width <= 0 {
		o.Width = terminalWidth
	}
	d := draw(t, o, 0.5/float64(o.Width))
	out := bufio.NewWriter(w)
	writeFacts(out, t, o)
	if len(t.Columns) == 2 {
		fmt.Fprintln(out, "change: "+d.words())
	}
	lines := make([]string, 0, len(d.levels))
	for _, level := range d.levels {
		lines = append(lines, d.line(level))
	}
	if o.Flame {
		slices.Reverse(lines)
	}
	for _, line := range lines {
		out.WriteString(line + "\n")
	}
	if len(d.levels) == 0 {
		fmt.Fprintln(out, "no samples")
	}
	if note := d.omitted(); note != "" {
		fmt.Fprintln(out, note)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("render terminal: %w", err)
	}
	return nil
}

// writeFacts writes the title and what each column measured.
func writeFacts(out io.Writer, t *profile.Tree, o Options) {
	title := o.title(t)
	if o.Width > 0 {
		title = Fit(title, o.Width)
	}
	if !o.NoColor {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintln(out, title)
	for i, c := range t.Columns {
		for _, line := range wrap(columnName(len(t.Columns), i), facts(c, t.Root.Total[i]), o.Width) {
			fmt.Fprintln(out, line)
		}
	}
}

// wrap puts facts into as many lines as a width asks for; 0 is no limit.
func wrap(name string, facts []string, width int) (lines []string) {
	line := name + facts[0]
	for _, fact := range facts[1:] {
		if longer := line + " · " + fact; width <= 0 || cells(longer) <= width {
			line = longer
			continue
		}
		lines = append(lines, line)
		line = strings.Repeat(" ", cells(name)) + fact
	}
	return append(lines, line)
}

// line draws the boxes of one level, each over the cells its edges round to.
func (d *drawing) line(level []box) string {
	var line strings.Builder
	at := 0
	before := ""
	width := float64(d.options.Width)
	for _, b := range level {
		start, end := int(math.Round(b.x*width)), int(math.Round((b.x+b.width)*width))
		if end <= start {
			continue
		}
		if start > at {
			line.WriteString(strings.Repeat(" ", start-at))
			before = ""
		}
		shade := shadeOf(b.node.Frame.Function)
		fill := d.fill(b, shade, false)
		if fill == before {
			fill = d.fill(b, shade+1, false) // an edge between two boxes of one colour
		}
		before = fill
		line.WriteString(d.cell(b, fill, end-start))
		at = end
	}
	return line.String()
}

func (d *drawing) cell(b box, fill string, width int) string {
	room := width - 1
	if d.options.NoColor {
		room = width - 2
	}
	label := d.label(b, room)
	if d.options.NoColor {
		if width < 2 {
			return "|"
		}
		return "[" + Pad(label, width-2) + "]"
	}
	return d.background(fill) + Pad(" "+label, width) + "\x1b[0m"
}

// label is a box's name, with its change in a comparison, or a mark where its
// share could be noise.
func (d *drawing) label(b box, room int) string {
	name, mark := b.name(), ""
	switch {
	case len(d.columns) == 2 && d.of[b.node].Significant():
		mark = changeText(d.of[b.node].Difference.Value)
	case len(d.columns) == 1 && d.noisy(0, b.node.Total[0]):
		mark = "?"
	}
	if long := name + " " + mark; mark != "" && cells(long) <= room {
		return long
	}
	name = Fit(shorten(name, func(s string) bool { return cells(s) <= room }), room)
	if cells(name) < 3 && name != b.name() {
		return "" // too little to recognise
	}
	return name
}

// background sets a background colour and dark letters on it.
func (d *drawing) background(fill string) string {
	var r, g, b int
	if _, err := fmt.Sscanf(fill, "#%02x%02x%02x", &r, &g, &b); err != nil {
		return ""
	}
	if d.options.RGB {
		return fmt.Sprintf("\x1b[48;2;%d;%d;%dm\x1b[38;2;28;28;33m", r, g, b)
	}
	cube := func(v int) int { return max(0, (v-35)/40) } // xterm's levels: 0, 95, 135 ... 255
	return fmt.Sprintf("\x1b[48;5;%dm\x1b[38;5;234m", 16+36*cube(r)+6*cube(g)+cube(b))
}
