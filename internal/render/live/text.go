package live

import (
	"fmt"
	"io"
	"strings"
)

// Text writes a table for a pipe or a log: at most limit functions.
func Text(w io.Writer, t Table, limit int) error {
	s := Screen{table: t, Own: t.OwnCode}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s\n", s.titleLine(), headLine(t.Head), s.functionHead())
	functions := s.functions()
	for i, f := range functions {
		if i == limit {
			fmt.Fprintf(&b, "%d more functions\n", len(functions)-limit)
			break
		}
		b.WriteString(strings.TrimRight(functionRow(f, 120), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
