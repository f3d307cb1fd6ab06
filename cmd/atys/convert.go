package main

import (
	"io"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
)

type convertFlags struct {
	selectionFlags
	format             string
	processes, threads bool
	title              string
}

func convertCommand() *cobra.Command {
	var f convertFlags
	c := &cobra.Command{
		Use:   "convert [flags] in out",
		Short: "Write a profile in another format, or a part of it",
		Long: `convert reads a profile of any format (pprof, folded stacks, perf script) and
writes it in the format that the second file's extension names. What a format
cannot hold is lost; pprof holds everything.`,
		Example: `  perf script | atys convert - perf.pb.gz
  atys convert atys.pb.gz atys.speedscope.json
  atys convert --focus '^main\.' atys.pb.gz main.folded`,
		PreRun: endOnSignal,
		Args:   two("one to read and one to write"),
		ValidArgsFunction: func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return completeProfiles(1)(c, args, text)
			}
			return bare(outputExtensions()), cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error { return convert(c.OutOrStdout(), c.ErrOrStderr(), f, args) },
	}
	f.selectionFlags.add(c)
	flags := c.Flags()
	flags.StringVar(&f.format, "format", "", "format to write, if the file's extension does not tell: pprof, folded, html, svg, speedscope, cpuprofile")
	flags.BoolVarP(&f.threads, "threads", "t", false, "keep threads apart in formats that show one tree")
	flags.BoolVar(&f.processes, "processes", false, "keep processes apart in formats that show one tree")
	flags.StringVar(&f.title, "title", "", "title, in formats that show one")
	_ = c.RegisterFlagCompletionFunc("format", completeFormats)
	return c
}

func convert(stdout, log io.Writer, f convertFlags, paths []string) error {
	path := paths[1]
	out, err := newOutput(path, f.format, outputOptions{threads: f.threads, processes: f.processes, apart: f.processes, title: f.title, classed: true})
	if err != nil {
		return &usageError{err}
	}
	s, err := f.read(readProfile, paths[0])
	if err != nil {
		return err
	}
	warn(log, names(paths[:1]), s)
	w := s.window
	if s.words != "" {
		w = commented(w, "selected by atys: "+s.words)
	}
	if s.folded != "" {
		w = commented(w, "folded by atys: "+s.folded)
	}
	if out.format != format.PProf { // which has a place for threads, and for their lack
		var o outputOptions
		w, o = led(w, f.processes, f.threads)
		out.processes, out.threads = o.processes, o.threads
	}
	return writeWhole(path, stdout, func(to io.Writer) error { return f.encode(to, out, w) })
}

// encode writes as output does, but for profiles that count no samples: the
// formats of one number per stack take the first value then.
func (f *convertFlags) encode(to io.Writer, out *output, w *profile.Window) error {
	if out.format != format.Folded || f.kind == "" && w.N() > 0 {
		return out.encode(to, w)
	}
	return format.Write(to, out.format, w, format.Options{Type: w.Types[0].Kind, Thread: out.threads, Process: out.processes})
}

// commented adds a comment to a window.
func commented(w *profile.Window, text string) *profile.Window {
	out := *w
	out.Comments = append(append([]string(nil), w.Comments...), text)
	return &out
}
