package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/render"
)

type flameFlags struct {
	selectionFlags
	displayFlags
	drawingFlags
	processes, threads bool
	nodes              int
}

// drawingFlags say how a drawing looks and where it goes.
type drawingFlags struct {
	output, format  string
	title           string
	minWidth, width float64
	flame, icicle   bool
	colorBy         string
}

func (d *drawingFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&d.output, "output", "o", "", "file to draw to, .html or .svg, - for standard output; without it the terminal")
	f.StringVar(&d.format, "format", "", "html or svg, if the file's extension does not tell")
	f.StringVar(&d.title, "title", "", "title of the drawing")
	f.Float64Var(&d.minWidth, "minwidth", 0, "pixels of an SVG below which a box is left out (default 0.3)")
	f.Float64Var(&d.width, "width", 0, "pixels of an SVG (default 1200), columns of a terminal (default: as wide as it is)")
	f.BoolVar(&d.flame, "flame", false, "the root at the bottom")
	f.BoolVar(&d.icicle, "icicle", false, "the root on top (default)")
	f.StringVar(&d.colorBy, "color-by", string(render.ByKind), "what colours stand for: kind, class or package")
	_ = c.MarkFlagFilename("output", "html", "svg")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"html", "svg"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("color-by", cobra.FixedCompletions([]string{"kind", "class", "package"}, cobra.ShellCompDirectiveNoFileComp))
}

func flameCommand() *cobra.Command {
	var f flameFlags
	c := &cobra.Command{
		Use:   "flame [flags] [file...]",
		Short: "Draw profiles as a flame graph: in the terminal, as HTML or SVG",
		Long: `flame draws a profile as a flame graph; several files are added up. Widths are
shares of what is selected. The HTML is one file that needs nothing else. What has so
few samples that its share could be noise, an interval wider than itself, is drawn
pale or, in the terminal, has a "?".`,
		Example: `  atys flame atys.pb.gz
  atys flame --focus 'http\.' -o http.html atys.pb.gz
  atys flame --reverse --flame -o callers.svg atys.pb.gz`,
		PreRun:            endOnSignal,
		ValidArgsFunction: completeProfiles(0),
		RunE: func(c *cobra.Command, args []string) error {
			return flame(c.OutOrStdout(), c.ErrOrStderr(), f, args)
		},
	}
	f.selectionFlags.add(c)
	f.displayFlags.add(c)
	f.drawingFlags.add(c)
	flags := c.Flags()
	flags.IntVarP(&f.nodes, "nodecount", "n", 0, "at most so many boxes, the largest; 0 is all")
	flags.BoolVarP(&f.threads, "threads", "t", false, "lead each stack with its thread")
	flags.BoolVar(&f.processes, "processes", false, "lead each stack with its process")
	return c
}

func flame(out, log io.Writer, f flameFlags, paths []string) error {
	if f.nodes < 0 {
		return &usageError{fmt.Errorf("--nodecount %d: want 0 or more", f.nodes)}
	}
	d, err := f.drawing(f.displayFlags)
	if err != nil {
		return &usageError{err}
	}
	s, err := f.readFiles(log, paths)
	if err != nil {
		return err
	}
	window, o := led(s.window, f.processes, f.threads)
	tree, err := profile.NewTree(profile.TreeOptions{Process: o.processes, Thread: o.threads}, window)
	if err != nil {
		return err
	}
	selection.Bound(tree, f.nodes)
	d.options.Lead = lead(o)
	if d.options.Title == "" {
		d.options.Title = s.title()
	}
	return d.write(out, tree)
}

// led prepares stacks to be led by their process and thread, as far as they
// are asked for and the profile knows any.
func led(w *profile.Window, processes, threads bool) (*profile.Window, outputOptions) {
	o := outputOptions{
		processes: processes && slices.ContainsFunc(w.Threads, func(t profile.Thread) bool { return t.Process != "" }),
		threads:   threads && slices.ContainsFunc(w.Threads, func(t profile.Thread) bool { return t.Name != "" }),
	}
	if o.processes || o.threads {
		w = selection.NameThreads(selection.TellApart(w, processes, threads))
	}
	return w, o
}

// drawing is how and where to draw, checked before anything is read.
type drawing struct {
	path    string
	format  format.Format // empty: text for a terminal
	options render.Options
}

func (d *drawingFlags) drawing(display displayFlags) (*drawing, error) {
	options, err := display.options(screenOf(os.Stdout))
	if err != nil {
		return nil, err
	}
	out := &drawing{path: d.output, options: options}
	if out.format, err = d.drawn(); err != nil {
		return nil, err
	}
	if d.flame && d.icicle {
		return nil, errors.New("--flame has the root at the bottom, --icicle on top: give one of them")
	}
	switch render.ColorBy(d.colorBy) {
	case render.ByKind, render.ByClass, render.ByPackage:
	default:
		return nil, fmt.Errorf("--color-by %q: want kind, class or package", d.colorBy)
	}
	if !(d.width >= 0 && d.width <= maxWidth) {
		return nil, fmt.Errorf("--width %v: want 0 to %d", d.width, maxWidth)
	}
	if !(d.minWidth >= 0 && d.minWidth <= maxWidth) {
		return nil, fmt.Errorf("--minwidth %v: want 0 to %d", d.minWidth, maxWidth)
	}
	if d.width > 0 || out.format != "" {
		out.options.Width = int(d.width)
	}
	out.options.Title, out.options.MinWidth = d.title, d.minWidth
	out.options.Flame, out.options.ColorBy = d.flame, render.ColorBy(d.colorBy)
	return out, nil
}

// maxWidth is more than any screen has, and keeps a slip of the finger from
// filling a disk.
const maxWidth = 100_000

// drawn tells what to draw as.
func (d *drawingFlags) drawn() (format.Format, error) {
	lower := strings.ToLower(d.output)
	switch f := format.Format(d.format); {
	case f == formatHTML || f == formatSVG:
		if d.output == "" {
			return "", fmt.Errorf("--format %s is for a file: add -o FILE, or -o - for standard output", f)
		}
		return f, nil
	case f != "":
		return "", fmt.Errorf("unknown format %q: drawings are html or svg", d.format)
	case d.output == "":
		return "", nil
	case strings.HasSuffix(lower, ".html"), strings.HasSuffix(lower, ".htm"), d.output == "-":
		return formatHTML, nil
	case strings.HasSuffix(lower, ".svg"):
		return formatSVG, nil
	}
	if _, err := format.ByExtension(d.output); err == nil {
		return "", fmt.Errorf("%q is no drawing: drawings are .html or .svg; \"atys convert\" writes the other formats", d.output)
	}
	return "", fmt.Errorf("cannot tell by the extension of %q what to draw: use .html or .svg, or --format", d.output)
}

func (d *drawing) write(stdout io.Writer, tree *profile.Tree) error {
	return writeWhole(cmp.Or(d.path, "-"), stdout, func(w io.Writer) error { return d.draw(w, tree) })
}

func (d *drawing) draw(w io.Writer, tree *profile.Tree) error {
	switch d.format {
	case formatHTML:
		return render.HTML(w, tree, d.options)
	case formatSVG:
		return render.SVG(w, tree, d.options)
	case "":
		return render.Terminal(w, tree, d.options)
	}
	return errors.New("no way to draw " + string(d.format))
}
