package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	apart              bool                // processes of one name too
	tree               profile.TreeOptions // for what is drawn
	title              string
	classed            bool // frames have their classes, for drawings to colour by
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

// check finds out before anything is measured what would keep it from being
// written. A disk may still be full in the end: see rescue.
func (o *output) check() error {
	if o.path == "-" {
		return nil
	}
	path := o.path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %q: it is a folder", o.path)
	case err == nil && !info.Mode().IsRegular():
		err = unix.Access(path, unix.W_OK)
	default:
		err = unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", o.path, err)
	}
	return nil
}

// rescue keeps a window that could not be written where it should go: in the
// folder for temporary files, else in memory, which no full disk touches. The
// name is drawn: others may write there too.
func rescue(w *profile.Window, cause error) error {
	for _, folder := range []string{os.TempDir(), "/dev/shm"} {
		f, err := os.CreateTemp(folder, "atys-*.pb.gz")
		if err != nil {
			continue
		}
		err = errors.Join(format.Write(f, format.PProf, w, format.Options{}), f.Close())
		if err == nil {
			return fmt.Errorf("%w\nwhat was measured is kept in %s: see \"atys convert --help\"", cause, f.Name())
		}
		os.Remove(f.Name())
	}
	return fmt.Errorf("%w\nwhat was measured is lost: there was no room for it in %s nor /dev/shm", cause, os.TempDir())
}

// write writes the window, whole or not at all.
func (o *output) write(w *profile.Window) error {
	if o.path == "-" {
		return o.encode(os.Stdout, w)
	}
	return format.Replace(o.path, func(file io.Writer) error { return o.encode(file, w) })
}

func (o *output) encode(to io.Writer, w *profile.Window) error {
	w = selection.TellApart(w, o.apart, o.threads)
	if o.format != formatHTML && o.format != formatSVG {
		return format.Write(to, o.format, w, format.Options{Thread: o.threads, Process: o.processes, Title: o.title})
	}
	if !o.classed {
		w = classed(w)
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
