package main

import (
	"regexp"
	"strconv"
	"strings"
)

// figure identifies a number of a table.
type figure struct{ row, column, unit string }

func (f figure) String() string { return f.row + ": " + f.column }

// measured is a figure with its value.
type measured struct {
	figure
	value float64
}

// figures lists the numbers that cells of Markdown tables begin with. The first cell of a row
// names it, the first row of a table names its columns.
func figures(text string) (all []measured) {
	var header []string
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok {
			header = nil
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if header == nil {
			header = cells
			continue
		}
		for i, cell := range cells[1:] {
			if m := number.FindStringSubmatch(cell); m != nil && i+1 < len(header) {
				value, _ := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
				all = append(all, measured{figure{cells[0], header[i+1], m[2]}, value})
			}
		}
	}
	return all
}

// number is a number that a cell begins with, and its unit.
var number = regexp.MustCompile(`^(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?) ?(%(?: of a core)?|[a-zA-Z]*)`)
