package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/sampler/dump"
)

func dumpCommand() *cobra.Command {
	var pid int
	var asJSON, verbose bool
	var flags codeFlags
	var cache cacheFlags
	c := &cobra.Command{
		Use:   "dump -p PID",
		Short: "Show where every thread of a process stands now",
		Long: `dump shows the state, the system call and the stack of every thread of a process,
sleeping ones too: the kernel's functions first, marked _[k], then the program's,
in whatever languages it is written. The process is not stopped, and does not notice.`,
		Example: `  atys dump -p 1234
  atys dump -p 1234 --hide-runtime
  atys dump -p 1234 --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("pid") {
				return &usageError{errors.New("which process? give its number: atys dump -p PID")}
			}
			if pid <= 0 {
				return &usageError{fmt.Errorf("-p %d is no process: give the number that ps shows", pid)}
			}
			classes, err := flags.classifier()
			if err != nil {
				return err
			}
			dir, limit, err := cache.place()
			if err != nil {
				return err
			}
			s, err := dump.Take(c.Context(), dump.Options{PID: pid, CacheDir: dir, CacheMax: limit,
				Debuginfod: strings.Fields(os.Getenv("DEBUGINFOD_URLS")), Log: logger(verbose)})
			if err != nil {
				return err
			}
			for i := range s.Threads {
				t := &s.Threads[i]
				t.Frames = flags.choose(t.Frames, classes)
			}
			if asJSON {
				return dumpJSON(os.Stdout, s)
			}
			return dumpText(os.Stdout, s)
		},
	}
	flags.add(c)
	cache.add(c)
	c.Flags().IntVarP(&pid, "pid", "p", 0, "the process")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "verbose output")
	return c
}

func dumpText(w io.Writer, s *dump.Snapshot) error {
	var b strings.Builder
	fmt.Fprintf(&b, "process %d (%s), %d threads\n", s.PID, render.Printable(s.Name), len(s.Threads))
	for _, t := range s.Threads {
		fmt.Fprintf(&b, "\nthread %d \"%s\" %s\n", t.TID, render.Printable(t.Name), threadLine(t))
		for _, f := range t.Frames {
			fmt.Fprintf(&b, "    %s\n", frameLine(f))
		}
		switch {
		case t.End == profile.EndUnknown && t.State == dump.Running:
			b.WriteString("    (running, not caught: its stack cannot be read from outside)\n")
		case t.End.Truncated():
			fmt.Fprintf(&b, "    (frames are missing here: %s)\n", t.End)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// threadLine says what a thread does.
func threadLine(t dump.Thread) string {
	line := string(t.State)
	if t.Syscall != "" {
		line += " in " + t.Syscall
	}
	if t.Wait != "" {
		line += ", waits in " + render.Printable(t.Wait)
	}
	return fmt.Sprintf("%s, %s of CPU used", line, render.Value(float64(t.CPU), "nanoseconds"))
}

// frameLine is a frame as folded output names it, with its place.
func frameLine(f profile.Frame) string {
	line := render.Printable(f.Function)
	if f.Kind == profile.KindKernel {
		return line + "_[k]"
	}
	switch {
	case f.File != "" && f.Line > 0:
		line += fmt.Sprintf(" (%s:%d)", render.Printable(f.File), f.Line)
	case f.File != "":
		line += fmt.Sprintf(" (%s)", render.Printable(f.File))
	case f.Mapping != "":
		line += fmt.Sprintf(" (%s)", render.Printable(path.Base(f.Mapping)))
	}
	if f.Inlined {
		line += " [inlined]"
	}
	return line
}

// What --json prints; its field names are stable.
type (
	snapshotJSON struct {
		PID     int          `json:"pid"`
		Name    string       `json:"name"`
		Taken   time.Time    `json:"taken"`
		Threads []threadJSON `json:"threads"`
	}
	threadJSON struct {
		TID      int         `json:"tid"`
		Name     string      `json:"name"`
		State    dump.State  `json:"state"`
		Syscall  string      `json:"syscall,omitempty"`
		Wait     string      `json:"wait,omitempty"`
		CPU      int64       `json:"cpu_ns"`
		Complete bool        `json:"complete"` // the user stack reaches its outermost frame
		End      string      `json:"end"`
		Frames   []frameJSON `json:"frames"` // innermost first
	}
	frameJSON struct {
		Function string `json:"function"`
		Kind     string `json:"kind"`
		File     string `json:"file,omitempty"`
		Line     int    `json:"line,omitempty"`
		Binary   string `json:"binary,omitempty"`
		Inlined  bool   `json:"inlined,omitempty"`
	}
)

func dumpJSON(w io.Writer, s *dump.Snapshot) error {
	out := snapshotJSON{PID: s.PID, Name: s.Name, Taken: s.Taken, Threads: []threadJSON{}}
	for _, t := range s.Threads {
		one := threadJSON{TID: t.TID, Name: t.Name, State: t.State, Syscall: t.Syscall, Wait: t.Wait, CPU: int64(t.CPU),
			Complete: t.End == profile.EndComplete, End: t.End.String(), Frames: []frameJSON{}}
		for _, f := range t.Frames {
			one.Frames = append(one.Frames, frameJSON{f.Function, f.Kind.String(), f.File, f.Line, f.Mapping, f.Inlined})
		}
		out.Threads = append(out.Threads, one)
	}
	return printLegibleJSON(w, out)
}
