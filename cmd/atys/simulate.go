package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats/simulation"
)

type simulateFlags struct {
	seed        uint64
	repetitions int
	json        bool
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate [flags] [recording]",
		Short: "Show why samples can be trusted: simulated profiles beside what theory expects of them",
		Long: `simulate runs the simulation of a paper that explains why sampled profiles are
unbiased: tasks that run for so long at a time, a sampling interval, and a
thousand profiles of each setting. Beside each result stands what the model
expects, and the paper's own figure where our copy of it has one. The same seed
prints the same figures on any machine.

With a recording made with record --timed it shows instead what the paper's
parameters are on the machine that was recorded: the interval between samples,
how long a module runs at a time, and how much a second event varies.`,
		Example: `  atys simulate
  atys simulate --json --seed 7 > simulated.json
  atys record -a -d 10s -e cpu-clock+page-faults --timed -o timed.pb.gz && atys simulate timed.pb.gz`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{fmt.Errorf("%d recordings given, want one at most", len(args))}
			}
			return nil
		},
		ValidArgsFunction: completeProfiles(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				for _, flag := range []string{"seed", "repetitions"} {
					if c.Flags().Changed(flag) {
						return &usageError{fmt.Errorf("--%s goes without a recording, of which nothing is drawn at random", flag)}
					}
				}
				return observe(c.OutOrStdout(), args[0], f.json)
			}
			return simulate(c, f)
		},
	}
	flags := c.Flags()
	flags.Uint64Var(&f.seed, "seed", 1, "where randomness begins")
	flags.IntVar(&f.repetitions, "repetitions", simulation.Repetitions, "profiles of each setting, 2 to 1000000; the paper's are the default")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// maxRepetitions take hours.
const maxRepetitions = 1_000_000

func simulate(c *cobra.Command, f simulateFlags) error {
	if f.repetitions < 2 || f.repetitions > maxRepetitions {
		return &usageError{fmt.Errorf("--repetitions %d: want 2 to %d", f.repetitions, maxRepetitions)}
	}
	r, err := simulation.Run(c.Context(), simulation.Options{Seed: f.seed, Repetitions: f.repetitions})
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	if f.json {
		return printJSON(c.OutOrStdout(), r)
	}
	w := bufio.NewWriter(c.OutOrStdout())
	writeSimulated(w, r)
	return w.Flush()
}

// simulateHead explains the tables.
const simulateHead = `R is running granularity (g) over the sampling interval, 100 units here; n is how
many samples a profile has, v the variance of noise on the events each counts.
"one state" is the paper's design: a running state is drawn once and profiled
from random starts. "jitter" also varies each interval by N(0, 1). "new states"
draws one for each profile: over these the model's variance is exact, while a
single state has its own. s.e. is the standard error of the mean, off by how many
of them the mean is from the real share, which is what the model expects of it;
variance is that of a profile around the real share.
`

// settingsOf says what is special about the settings of a place of the paper.
func settingsOf(place string) string {
	switch place {
	case "Table 2", "Table 3":
		return "one task, 1,000,000 units"
	case simulation.SingleSample:
		return "one task, around the share it is set to"
	case simulation.EffectOfN:
		return "one task, around the share it is set to; samples of one stretch say the same, so g 280 gains less"
	case "Table 4":
		return "four tasks at once, 1,000,000 units"
	case "Table 5":
		return "the same, with noise N(0, v) on the events that each sample counts"
	case "Table 6":
		return "the same, with fewer samples"
	}
	return ""
}

func writeSimulated(w io.Writer, r *simulation.Report) {
	fmt.Fprintf(w, "%s profiles of each setting, seed %d\n\n%s", render.Count(int64(r.Repetitions)), r.Seed, simulateHead)
	writeStretches(w, r.Stretches)
	for rest := r.Rows; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Place == rest[0].Place {
			n++
		}
		fmt.Fprintf(w, "\n%s: %s\n", rest[0].Place, settingsOf(rest[0].Place))
		writeResults(w, rest[:n])
		rest = rest[n:]
	}
	writeFigure10(w, &r.Intervals)
	writeFigure11(w, r.Rows)
	fmt.Fprintln(w, "\nFigures of the paper's text")
	for _, claim := range r.Claims {
		fmt.Fprintln(w)
		writeWrapped(w, claim.Where+": ", claim.Paper)
		writeWrapped(w, "  here: ", claim.Ours)
	}
}

// writeStretches writes the model's three classes.
func writeStretches(w io.Writer, stretches []simulation.Stretch) {
	fmt.Fprintln(w, "\nThe model: how many samples hit a stretch")
	t := newColumns("g", "R", "class", "samples", "mean", "variance")
	for _, s := range stretches {
		samples := fmt.Sprint(s.Fewer)
		if s.OneMore > 0 {
			samples += fmt.Sprintf(", or %d with probability %.1f", s.Fewer+1, s.OneMore)
		}
		t.row(s.Granularity, fmt.Sprintf("%.1f", s.R), s.Class, samples, fmt.Sprintf("%.1f", s.Mean), fmt.Sprintf("%.2f", s.Variance))
	}
	t.write(w)
}

func writeResults(w io.Writer, rows []simulation.Row) {
	t := newColumns("share", "g", "R", "v", "n", "design", "real", "mean", "s.e.", "off", "variance", "model", "deviation", "paper")
	for _, r := range rows {
		t.row(wholePercent(r.Share), r.Granularity, fmt.Sprintf("%.1f", r.R), r.Noise, render.Count(int64(r.Samples+0.5)), r.Design,
			fmt.Sprintf("%.5f", r.Real), fmt.Sprintf("%.5f", r.Mean), fmt.Sprintf("%.2g", r.StandardError), fmt.Sprintf("%+.1f", r.Bias()),
			fmt.Sprintf("%.3g", r.Variance), fmt.Sprintf("%.3g", r.ModelVariance), fmt.Sprintf("%.3g", r.Deviation()), r.Paper)
	}
	t.write(w)
}

func wholePercent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

func writeFigure10(w io.Writer, i *simulation.Intervals) {
	fmt.Fprintf(w, "\nFigure 10: the real share of each of %s intervals, one task at 80%%, g 30: mean %.4f, s.e. %.2g, variance %.4f, model %.4f; paper: %s\n",
		render.Count(int64(i.N)), i.Mean, i.StandardError, i.Variance, i.ModelVariance, i.Paper)
	var b bars
	for tenth, n := range i.Counts {
		b.add(wholePercent(float64(tenth)/10), n)
	}
	b.write(w)
}

func writeFigure11(w io.Writer, rows []simulation.Row) {
	fmt.Fprintln(w, "\nFigure 11: what the profiles found of one task at 80%, g 30: the least, each tenth, and the greatest")
	t := newColumns("design", "least", "10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "greatest")
	for _, r := range rows {
		if len(r.Deciles) == 0 {
			continue
		}
		cells := []any{r.Design}
		for _, v := range r.Deciles {
			cells = append(cells, fmt.Sprintf("%.4f", v))
		}
		t.row(cells...)
	}
	t.row("paper", fmt.Sprintf("%.4f", simulation.PaperLeast), "", "", "", "", "", "", "", "", "", fmt.Sprintf("%.4f", simulation.PaperGreatest))
	t.write(w)
	fmt.Fprintf(w, "what lies between the paper's: %s\n", simulation.NotInOurCopy)
}

// columns gathers a table of text.
type columns [][]string

func newColumns(heads ...string) columns { return columns{heads} }

func (c *columns) row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	*c = append(*c, row)
}

// write writes it as wide as it is: figures that are cut short say nothing.
func (c columns) write(w io.Writer) {
	_ = writeRows(w, c, render.Options{NoColor: true}) // w keeps its error
}

// bars are counts, drawn.
type bars []bar

type bar struct {
	label string
	n     int
}

func (b *bars) add(label string, n int) { *b = append(*b, bar{label, n}) }

// barWidth is that of the longest.
const barWidth = 50

func (b bars) write(w io.Writer) {
	most := 1
	for _, one := range b {
		most = max(most, one.n)
	}
	for _, one := range b {
		drawn := strings.Repeat("#", (one.n*barWidth+most-1)/most) // what is there is seen
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%9s  %9s  %s", one.label, render.Count(int64(one.n)), drawn), " "))
	}
}

// proseWidth is how wide a line of prose is at most.
const proseWidth = 100

// writeWrapped writes text after a lead, on lines that begin below it.
func writeWrapped(w io.Writer, lead, text string) {
	indent := strings.Repeat(" ", min(len(lead), 8))
	line := lead
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > proseWidth {
			fmt.Fprintln(w, line)
			line = indent + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(w, line)
}
