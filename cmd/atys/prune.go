package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/prune/cost"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

func pruneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "prune",
		Short: "Show what pruning threads saves and distorts",
		Args:  knownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(pruneReportCommand())
	return c
}

type pruneFlags struct {
	rounds, rows int
	total, json  bool
}

func pruneReportCommand() *cobra.Command {
	var f pruneFlags
	c := &cobra.Command{
		Use:   "report [flags] FILE",
		Short: "How unevenly threads share a recording's samples, and what pruning saves and costs",
		Long: `report shows how many samples each thread of a recording has, and how many threads
make up 90 or 99 percent of them; then, for several levels of pruning, by how much
the shares of the largest functions are off, and how much time is saved.

CPU time is measured here and now, with the recording as if it were one window of an
agent: to prune it; to name its code, from symbols that are in a cache on disk; to
encode it as it is spooled, threads of one pattern as one; and to make of that the
bytes that are sent. Names that only the program itself knew, such as those of
Java's methods, are read when a window is cut, before it is pruned: no time is
saved for them.`,
		Example: `  atys record -p 1234 -F 999 -d 30s -o busy.pb.gz
  atys prune report busy.pb.gz
  atys prune report --rounds 0 --json busy.pb.gz`,
		PreRun:            endOnSignal,
		ValidArgsFunction: completeProfiles(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{fmt.Errorf("%d files: give one recording", len(args))}
			}
			if f.rounds < 0 || f.rows < 0 {
				return &usageError{fmt.Errorf("--rounds %d, --nodecount %d: want 0 or more", f.rounds, f.rows)}
			}
			return pruneReport(c, f, args)
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.rounds, "rounds", 9, "measure times so often; 0 measures none")
	flags.IntVarP(&f.rows, "nodecount", "n", 10, "show so many threads one by one; JSON has all")
	flags.BoolVar(&f.total, "total", false, "the largest functions with all they called, not by what they used themselves")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

func pruneReport(c *cobra.Command, f pruneFlags, args []string) error {
	paths, err := orRecorded(args, c.ErrOrStderr())
	if err != nil {
		return err
	}
	w, err := format.Read(paths[0])
	if err != nil {
		return err
	}
	r, err := cost.Of(c.Context(), w, f.rounds, f.total)
	if errors.Is(err, cost.ErrNoThreads) {
		return fmt.Errorf("%q: %w, so no thread can be left out: recordings of atys in .pb.gz tell it, if they were made on the machine itself: what servers add up does not", paths[0], err)
	}
	if err != nil {
		return err
	}
	if f.json {
		return writePruneJSON(c.OutOrStdout(), r)
	}
	return writePruneReport(c.OutOrStdout(), r, f)
}

// rightward writes a table whose cells are set to the right.
func rightward(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprint(t, cell, "\t")
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func writePruneReport(w io.Writer, r *cost.Report, f pruneFlags) error {
	fmt.Fprintf(w, "%s samples of %d threads; %d more used CPU time and were not sampled\n", render.Count(r.Skew.N), r.Skew.Sampled, len(r.Skew.Threads)-r.Skew.Sampled)
	if r.Pruned > 0 {
		fmt.Fprintln(w, "it was pruned when it was recorded: what was left out then is not counted as a thread")
	}
	fmt.Fprintln(w)
	if err := rightward(w, skewRows(r.Skew)); err != nil {
		return err
	}
	if n := min(f.rows, len(r.Skew.Threads)); n > 0 {
		fmt.Fprintln(w)
		if err := rightward(w, skewedThreads(r.Skew, n)); err != nil {
			return err
		}
	}
	by := "by themselves"
	if f.total {
		by = "with all they called"
	}
	fmt.Fprintf(w, "\nfunctions, %s, and by how many percent the shares of the largest are off, in the mean (MAPE); no share of all is off by more than \"at most\"\n\n", by)
	if err := rightward(w, errorRows(r)); err != nil {
		return err
	}
	if r.Rounds > 0 {
		return writeSaved(w, r)
	}
	return nil
}

// skewRows says how many threads make up how much.
func skewRows(s *prune.Skew) [][]string {
	rows := [][]string{{"of the samples", "threads", "of all threads"}}
	for _, percent := range []float64{50, 80, 90, 95, 99, 99.9, 100} {
		n := s.Making(percent)
		rows = append(rows, []string{prune.Level(percent)[1:] + "%", strconv.Itoa(n), render.Share(prune.Part(int64(n), int64(len(s.Threads))))})
	}
	return rows
}

func skewedThreads(s *prune.Skew, n int) [][]string {
	rows := [][]string{{"rank", "samples", "share", "up to here", "thread"}}
	for i, t := range s.Threads[:n] {
		rows = append(rows, []string{strconv.Itoa(i + 1), render.Count(t.N), render.Share(t.Share), render.Share(t.UpToHere), render.Printable(threadName(t.Thread))})
	}
	return rows
}

func errorRows(r *cost.Report) [][]string {
	head := []string{"level", "threads stay", "samples cut", "at most"}
	for _, n := range cost.Tops() {
		head = append(head, fmt.Sprintf("top %d", min(n, r.Functions)))
	}
	rows := [][]string{head}
	for _, l := range r.Levels {
		row := []string{prune.Level(l.Percent), strconv.Itoa(l.Threads), render.Count(l.Samples), render.Share(l.MostOff)}
		for _, mape := range l.MAPE {
			row = append(row, offBy(mape))
		}
		rows = append(rows, row)
	}
	return rows
}

// offBy writes an error as a percentage; without functions there is none.
func offBy(part float64) string {
	if math.IsNaN(part) {
		return "-"
	}
	return strconv.FormatFloat(100*part, 'f', 2, 64) + "%"
}

func writeSaved(w io.Writer, r *cost.Report) error {
	m, t := r.Measured, r.Unpruned
	fmt.Fprintf(w, "\nCPU time saved, medians of %d rounds: naming of %d places in code", r.Rounds, m.Nameable)
	if m.Unnamed > 0 {
		fmt.Fprintf(w, " (of %d more the files are not on this machine)", m.Unnamed)
	}
	fmt.Fprintf(w, ", encoding for the spool, packing %s to be sent; all of it counts the time to prune\n\n", render.Value(float64(t.Bytes), "bytes"))
	rows := [][]string{{"level", "to prune", "naming", "encoding", "shipping", "all", "95% interval", "bytes"},
		{"none", "-", took(t.Took[cost.Naming]), took(t.Took[cost.Encoding]), took(t.Took[cost.Shipping]), took(t.All), "", render.Value(float64(t.Bytes), "bytes")}}
	for _, l := range r.Levels {
		rows = append(rows, []string{prune.Level(l.Percent), took(l.Took[cost.Pruning]), offBy(l.Saved[cost.Naming].Value), offBy(l.Saved[cost.Encoding].Value),
			offBy(l.Saved[cost.Shipping].Value), offBy(l.SavedAll.Value), offBy(l.SavedAll.Low) + " to " + offBy(l.SavedAll.High), offBy(l.SavedBytes)})
	}
	return rightward(w, rows)
}

func took[D ~int64](d D) string { return render.Value(float64(d), "nanoseconds") }

// pruneJSON is a report as it is written: shares are of 1, times are nanoseconds.
type pruneJSON struct {
	Samples   int64            `json:"samples"`
	Sampled   int              `json:"sampledThreads"`
	Threads   []prunedThread   `json:"threads"`
	Functions int              `json:"functions"`
	Unpruned  *prunedTimes     `json:"unpruned,omitempty"`
	Levels    []prunedLevel    `json:"levels"`
	Measured  *prunedHowNaming `json:"measured,omitempty"`
}

type prunedThread struct {
	Thread   string  `json:"thread"`
	TID      int     `json:"tid"`
	Process  string  `json:"process"`
	Samples  int64   `json:"samples"`
	Share    float64 `json:"share"`
	UpToHere float64 `json:"upToHere"`
}

type prunedLevel struct {
	Percent float64             `json:"percent"`
	Threads int                 `json:"threads"`
	Samples int64               `json:"samplesCut"`
	MostOff float64             `json:"mostOff"`
	MAPE    map[string]*float64 `json:"mape"` // null: there are no functions
	Times   *prunedTimes        `json:"times,omitempty"`
	Saved   *prunedSaved        `json:"saved,omitempty"`
}

type prunedTimes struct {
	Pruning  int64 `json:"pruningNs"`
	Naming   int64 `json:"namingNs"`
	Encoding int64 `json:"encodingNs"`
	Shipping int64 `json:"shippingNs"`
	All      int64 `json:"allNs"`
	Bytes    int   `json:"bytes"`
}

type prunedSaved struct {
	Naming   float64    `json:"naming"`
	Encoding float64    `json:"encoding"`
	Shipping float64    `json:"shipping"`
	All      float64    `json:"all"`
	Interval [2]float64 `json:"interval"`
	Bytes    float64    `json:"bytes"`
}

type prunedHowNaming struct {
	Rounds   int `json:"rounds"`
	Nameable int `json:"namedPlaces"`
	Unnamed  int `json:"placesOfMissingFiles"`
}

func writePruneJSON(w io.Writer, r *cost.Report) error {
	out := pruneJSON{Samples: r.Skew.N, Sampled: r.Skew.Sampled, Functions: r.Functions, Threads: []prunedThread{}}
	for _, t := range r.Skew.Threads {
		out.Threads = append(out.Threads, prunedThread{t.Thread.Name, t.Thread.TID, t.Thread.Process, t.N, t.Share, t.UpToHere})
	}
	timed := r.Rounds > 0
	if timed {
		out.Unpruned = timesJSON(r.Unpruned)
		out.Measured = &prunedHowNaming{r.Rounds, r.Measured.Nameable, r.Measured.Unnamed}
	}
	for _, l := range r.Levels {
		one := prunedLevel{Percent: l.Percent, Threads: l.Threads, Samples: l.Samples, MostOff: l.MostOff, MAPE: map[string]*float64{}}
		for i, n := range cost.Tops() {
			one.MAPE[strconv.Itoa(n)] = number(l.MAPE[i])
		}
		if timed {
			one.Times = timesJSON(l.Times)
			saved := func(s stats.Interval) float64 { return s.Value }
			one.Saved = &prunedSaved{saved(l.Saved[cost.Naming]), saved(l.Saved[cost.Encoding]), saved(l.Saved[cost.Shipping]), l.SavedAll.Value,
				[2]float64{l.SavedAll.Low, l.SavedAll.High}, l.SavedBytes}
		}
		out.Levels = append(out.Levels, one)
	}
	return printJSON(w, out)
}

// number is one that JSON can hold; NaN it cannot.
func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func timesJSON(t cost.Times) *prunedTimes {
	return &prunedTimes{int64(t.Took[cost.Pruning]), int64(t.Took[cost.Naming]), int64(t.Took[cost.Encoding]), int64(t.Took[cost.Shipping]), int64(t.All), t.Bytes}
}
