package main

import (
	"io"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/render"
)

// writeRows prints a table whose first row is its head; of a width only if there
// is one. Columns give way before the last one does, the widest first.
func writeRows(w io.Writer, rows [][]string, o render.Options) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = render.Printable(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	if o.Width > 0 {
		narrow(widths, o.Width)
	}
	var b strings.Builder
	for i, row := range rows {
		line := ""
		for j, cell := range row {
			if j > 0 {
				line += "  "
			}
			line += render.Pad(render.Fit(cell, widths[j]), widths[j])
		}
		line = strings.TrimRight(line, " ")
		if i == 0 && !o.NoColor {
			line = "\x1b[2m" + line + "\x1b[0m"
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// narrow shrinks columns until they fit, the first (the number) never.
func narrow(widths []int, width int) {
	const least = 7 // of a column: its head
	total := 2 * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := 1
		for i := 2; i < len(widths); i++ {
			if widths[i] >= widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= least {
			return
		}
		widths[widest]--
	}
}
