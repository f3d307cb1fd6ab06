package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
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

// printLegibleJSON prints a value for people, too: with <, > and & as they are.
func printLegibleJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// printJSON prints a value for programs.
func printJSON(w io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(harmless(text), '\n'))
	return err
}

// harmless is text of lines with all that could steer a terminal written as
// \u001b: names in it are what agents say. Strings of JSON, and those that YAML has
// in double quotes, mean the same then.
func harmless(text []byte) []byte {
	clean := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			clean = utf8.AppendRune(clean, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			clean = fmt.Appendf(clean, `\u%04x`, unit)
		}
	}
	return clean
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
