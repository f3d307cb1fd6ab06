package render

// Printable makes a foreign name safe to show: what could steer a terminal or
// mislead a reader is written as \x1b or \u202e.
func Printable(s string) string { return printable(s) }

// Fit cuts a printable string to at most n terminal cells.
func Fit(s string, n int) string { return fit(s, n) }

// Pad makes a printable string exactly n terminal cells wide.
func Pad(s string, n int) string { return pad(s, n) }
