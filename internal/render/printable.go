package render

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes a foreign name safe to show on a terminal and in a page:
// control characters, terminal escapes, bidirectional and zero-width marks
// and bytes that are not UTF-8 are written as \x1b or \u202e. Text without
// any of them is returned as it is. What unicode.IsPrint allows has none of the format
// characters that reorder or hide text.
func Printable(s string) string {
	clean := true
	for i, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteString(s[i : i+size])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

// cells is the number of terminal cells a printable string takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// wide lists the ranges terminals draw two cells wide (East Asian Wide and
// Fullwidth of Unicode's EastAsianWidth.txt, and emoji), joined where only
// unassigned runes lie between.
var wide = [...][2]rune{{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
	{0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f680, 0x1faff}, {0x20000, 0x3fffd}}

func runeCells(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}

// Fit cuts a printable string to at most n cells, with an ellipsis where
// something was cut.
func Fit(s string, n int) string {
	if cells(s) <= n {
		return s
	}
	if n <= 0 {
		return ""
	}
	used := 0
	for i, r := range s {
		if used += runeCells(r); used > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// Pad fills a printable string with spaces to exactly n cells, cutting it if need be.
func Pad(s string, n int) string {
	s = Fit(s, n)
	return s + strings.Repeat(" ", max(0, n-cells(s)))
}
