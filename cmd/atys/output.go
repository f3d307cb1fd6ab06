package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/render"
)

// Formats that are drawn, beside the file formats of package format.
const (
	formatHTML format.Format = "html"
	formatSVG  format.Format = "svg"
)

func outputExtensions() []string { return append(format.Extensions(), ".html", ".svg") }

type outputOptions struct {
	threads, processes bool
	tree               profile.TreeOptions // for what is drawn
	title              string
}

// output is where a profile goes, checked before anything is measured.
type output struct {
	path   string
	format format.Format
	outputOptions
}

func newOutput(path, name string, o outputOptions) (*output, error) {
	out := &output{path: path, outputOptions: o}
	switch {
	case name != "":
		switch f := format.Format(name); f {
		case format.PProf, format.Folded, format.Speedscope, format.CPUProfile, formatHTML, formatSVG:
			out.format = f
		default:
			return nil, fmt.Errorf("unknown format %q: use pprof, folded, html, svg, speedscope or cpuprofile", name)
		}
	case path == "-":
		out.format = format.Folded
	case strings.HasSuffix(path, ".html"):
		out.format = formatHTML
	case strings.HasSuffix(path, ".svg"):
		out.format = formatSVG
	default:
		f, err := format.ByExtension(path)
		if err != nil {
			return nil, fmt.Errorf("cannot tell the format of %q by its extension: use one of %s, or --format", path, strings.Join(outputExtensions(), " "))
		}
		if f == format.PerfScript {
			return nil, fmt.Errorf("%q: perf script text is read, not written: use one of %s", path, strings.Join(outputExtensions(), " "))
		}
		out.format = f
	}
	return out, nil
}

// write writes the window, whole or not at all.
func (o *output) write(w *profile.Window) error {
	if o.path == "-" {
		return o.encode(os.Stdout, w)
	}
	return format.Replace(o.path, func(file io.Writer) error { return o.encode(file, w) })
}

func (o *output) encode(to io.Writer, w *profile.Window) error {
	if o.format != formatHTML && o.format != formatSVG {
		return format.Write(to, o.format, w, format.Options{Thread: o.threads, Process: o.processes, Title: o.title})
	}
	if o.threads || o.processes {
		w = selection.NameThreads(w)
	}
	options := o.tree
	options.Thread, options.Process = o.threads, o.processes
	tree, err := profile.NewTree(options, w)
	if err != nil {
		return err
	}
	drawn := render.Options{Title: o.title, Lead: lead(o.outputOptions)}
	if o.format == formatSVG {
		return render.SVG(to, tree, drawn)
	}
	return render.HTML(to, tree, drawn)
}

// lead counts the levels that are processes and threads.
func lead(o outputOptions) (n int) {
	if o.processes {
		n++
	}
	if o.threads {
		n++
	}
	return n
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func logger(verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
