package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/render"
)

type reportFlags struct {
	selectionFlags
	displayFlags
	rows     int
	threads  bool
	json     bool
	sort     string
	relative bool
	losses   bool
	all      bool
}

func reportCommand() *cobra.Command {
	var f reportFlags
	c := &cobra.Command{
		Use:   "report [flags] [file...]",
		Short: "Show the functions of profiles in a table",
		Long: `report shows the functions of a profile, what each used by itself and with all
it called, and how sure that is: where the interval of the total is wider than the
share itself, which could be noise, stands a "?". Several files are added up. Files of pprof,
folded stacks and perf script are read, whoever wrote them; - is standard input,
no file at all what "atys record" writes by default.`,
		Example: `  atys report atys.pb.gz
  atys report --focus json --hide '^runtime\.' monday.pb.gz tuesday.pb.gz
  perf script | atys report -`,
		PreRun:            endOnSignal,
		ValidArgsFunction: completeProfiles(0),
		RunE: func(c *cobra.Command, args []string) error {
			return report(c.OutOrStdout(), c.ErrOrStderr(), f, args)
		},
	}
	f.selectionFlags.add(c)
	f.displayFlags.add(c)
	flags := c.Flags()
	flags.StringVar(&f.sort, "sort", "self", "order of the table: self or total; JSON is by self")
	flags.IntVarP(&f.rows, "nodecount", "n", 0, "at most so many functions; 0 is all, but on a terminal what it holds")
	flags.IntVar(&f.rows, "top", 0, "the same as --nodecount")
	flags.BoolVarP(&f.threads, "threads", "t", false, "a table for each thread")
	flags.BoolVar(&f.all, "all", false, fmt.Sprintf("with --threads: a table for every thread, not for the first %d", mostThreads))
	flags.BoolVar(&f.json, "json", false, "write JSON")
	flags.BoolVar(&f.losses, "losses", false, "list each loss by itself below the line that sums them up")
	flags.BoolVar(&f.relative, "relative", false, "percentages of what is selected, not of the whole profile")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"self", "total"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func report(out, log io.Writer, f reportFlags, paths []string) error {
	if f.rows < 0 {
		return &usageError{fmt.Errorf("--nodecount %d: want 0 or more", f.rows)}
	}
	if f.sort != "self" && f.sort != "total" {
		return &usageError{fmt.Errorf("--sort %q: want self or total", f.sort)}
	}
	screen := screenOf(os.Stdout)
	options, err := f.options(screen)
	if err != nil {
		return &usageError{err}
	}
	s, err := f.readFiles(log, paths)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	switch {
	case f.threads:
		err = f.writeThreads(w, s, options)
	case f.json:
		options.Limit, options.Title = f.rows, s.title()
		err = writeJSON(w, s.window, f.base(s), options)
	default:
		options.Limit = rowLimit(f.rows, screen)
		writeTitle(w, cmp.Or(s.title(), titleOf(s.whole)), options)
		writeFacts(w, "", s.whole, f.losses)
		writeTypes(w, s.whole)
		fmt.Fprintln(w)
		err = f.writeTable(w, s.window, f.base(s), options)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// base is what percentages are of.
func (f *reportFlags) base(s *selected) *profile.Window {
	if f.relative {
		return s.window
	}
	return s.whole
}

// headLines is what a table takes beside its rows: title, facts, a blank, its
// head, what was left out, and the next prompt.
const headLines = 6

// rowLimit is how many rows to show: what was asked for, else what a terminal holds.
func rowLimit(asked int, s screen) int {
	if asked == 0 && s.terminal && s.height > 0 {
		return max(s.height-headLines, 10)
	}
	return asked
}

func (f *reportFlags) writeTable(w io.Writer, win, base *profile.Window, o render.Options) error {
	tree, err := profile.NewTree(profile.TreeOptions{}, win)
	if err != nil {
		return err
	}
	functions := tree.Functions()
	if f.sort == "total" {
		slices.SortStableFunc(functions, func(a, b profile.Function) int {
			return cmp.Compare(b.Total[0].Value, a.Total[0].Value)
		})
	}
	whole, unit := selection.Whole(base), win.Types[0].Unit
	self := "self"
	if f.own {
		self = "own"
	}
	t := table{heads: []string{self, self + "%", "total", "total%", "95% interval", "", "samples"}}
	for i, fn := range functions {
		if o.Limit > 0 && i == o.Limit {
			break
		}
		share, _ := shareOf(fn.Self[0], whole, base.Design)
		total, sampled := shareOf(fn.Total[0], whole, base.Design)
		interval, noise := "-", ""
		if sampled {
			interval = percents(total.Low, total.High)
		}
		if sampled && total.Width() > total.Value {
			noise = "?"
		}
		t.add(fn.Frame, render.Value(float64(fn.Self[0].Value), unit), render.Share(share.Value), render.Value(float64(fn.Total[0].Value), unit),
			render.Share(total.Value), interval, noise, render.Count(fn.Total[0].N))
	}
	t.write(w, len(functions), o)
	return nil
}

// writeJSON writes the same as one object.
func writeJSON(w io.Writer, win, base *profile.Window, o render.Options) error {
	tree, err := profile.NewTree(profile.TreeOptions{}, win)
	if err != nil {
		return err
	}
	ofWhole(tree, 0, base)
	return render.TopJSON(w, tree, o)
}

// threadRows is how many functions of each thread are shown where the user
// did not say: what a thread does is mostly told by its first few.
const threadRows = 10

// mostThreads is how many threads have a table where the user did not ask for all:
// a machine has thousands, and nobody reads as many tables.
const mostThreads = 20

// writeThreads writes a table for each thread. Percentages within are of the
// thread; its title says which part of the whole it is.
func (f *reportFlags) writeThreads(w io.Writer, s *selected, o render.Options) error {
	o.Limit = f.rows
	if o.Limit == 0 && !f.json {
		o.Limit = threadRows
	}
	whole := f.base(s)
	reports := []threadReport{}
	threads := selection.Threads(s.window)
	shown := threads
	if !f.all && !f.json {
		shown = threads[:min(len(threads), mostThreads)]
	}
	for i, t := range shown {
		o.Title = threadName(t.Thread) + ": " + share(selection.Whole(t.Window), selection.Whole(whole))
		if f.json {
			var text bytes.Buffer
			if err := writeJSON(&text, t.Window, t.Window, o); err != nil {
				return err
			}
			reports = append(reports, threadReport{t.Thread.PID, t.Thread.TID, render.Printable(t.Thread.Process), render.Printable(t.Thread.Name), text.Bytes()})
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeTitle(w, o.Title, o)
		writeFacts(w, "", t.Window, f.losses)
		if err := f.writeTable(w, t.Window, t.Window, o); err != nil {
			return err
		}
	}
	if f.json {
		return printJSON(w, reports)
	}
	if left := threads[len(shown):]; len(left) > 0 {
		rest := profile.Sum{}
		for _, t := range left {
			sum := selection.Whole(t.Window)
			rest.N, rest.Value, rest.Squares = rest.N+sum.N, rest.Value+sum.Value, rest.Squares+sum.Squares
		}
		fmt.Fprintf(w, "\n... and %s more, with %s: --all shows them\n", counted(len(left), "thread"), share(rest, selection.Whole(whole)))
	}
	if s.window.Rows.Len() == 0 {
		fmt.Fprintln(w, "no samples")
	}
	return nil
}

// threadReport is one thread in JSON.
type threadReport struct {
	PID     int             `json:"pid,omitempty"`
	TID     int             `json:"tid,omitempty"`
	Process string          `json:"process,omitempty"`
	Name    string          `json:"name,omitempty"`
	Report  json.RawMessage `json:"report"`
}

// threadName names a thread; one that ended before anyone asked for its name
// has its number only.
func threadName(t profile.Thread) string {
	name := "no thread known"
	switch {
	case t.Name != "" && t.TID != 0:
		name = fmt.Sprintf("thread %s (%d)", t.Name, t.TID)
	case t.Name != "":
		name = "thread " + t.Name
	case t.TID != 0:
		name = fmt.Sprintf("thread %d", t.TID)
	}
	if t.Process != "" && t.Process != t.Name {
		name += " of " + t.Process
	}
	return name
}
