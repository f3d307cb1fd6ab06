package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/render"
)

// displayFlags say how text is shown.
type displayFlags struct{ color string }

func (d *displayFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&d.color, "color", "auto", "colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	_ = c.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
}

// screen is where text goes, as far as it matters to it.
type screen struct {
	terminal      bool
	width, height int // in cells, 0 if unknown
	getenv        func(string) string
}

func screenOf(f *os.File) screen {
	s := screen{getenv: os.Getenv}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		s.terminal, s.width, s.height = true, int(size.Col), int(size.Row)
		return s
	}
	s.width, _ = strconv.Atoi(s.getenv("COLUMNS"))
	return s
}

// options gives what renderings in text need to know.
func (d *displayFlags) options(s screen) (render.Options, error) {
	o := render.Options{Width: max(0, s.width), RGB: s.getenv("COLORTERM") == "truecolor" || s.getenv("COLORTERM") == "24bit"}
	switch d.color {
	case "auto":
		o.NoColor = !s.terminal || s.getenv("NO_COLOR") != "" || s.getenv("TERM") == "dumb"
	case "always":
	case "never":
		o.NoColor = true
	default:
		return o, fmt.Errorf("--color %q: want auto, always or never", d.color)
	}
	return o, nil
}

// tableOptions are those of a table on standard output.
func (d *displayFlags) tableOptions() (render.Options, error) {
	screen := screenOf(os.Stdout)
	o, err := d.options(screen)
	if err != nil {
		return o, &usageError{err}
	}
	if !screen.terminal {
		o.Width = 0 // who reads a pipe wants all of it
	}
	return o, nil
}
