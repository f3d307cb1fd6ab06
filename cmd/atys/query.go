package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// queryFlags say which server is asked about what.
type queryFlags struct {
	clientFlags
	displayFlags
	task, kind, from, to string
	output               string
	forms                []string     // that -o may name
	out                  answerOutput // what it names, once a question is asked
}

func (f *queryFlags) add(c *cobra.Command) {
	f.clientFlags.add(c)
	flags := c.Flags()
	flags.StringVar(&f.task, "task", "", "of this profile's windows alone, such as builtin, or of one of its events: NAME/EVENT")
	flags.StringVar(&f.kind, "kind", "cpu", "what was measured: cpu, or an event's name")
	flags.StringVar(&f.from, "from", "-1h", "windows that begin then or later: -1h, -3d, -2w, now, 2026-11-23, \"2026-11-23 09:00\" (of this machine's time zone), 2026-11-23T09:00:00Z or seconds since 1970")
	flags.StringVar(&f.to, "to", "now", "and before then")
}

// ask gives whom to ask, and what about.
func (f *queryFlags) ask(args []string) (client atysv1connect.QueryClient, address string, about *atysv1.Selection, err error) {
	if f.forms != nil {
		if f.out, err = newAnswerOutput(f.output, f.forms); err != nil {
			return nil, "", nil, &usageError{err}
		}
	}
	now := time.Now()
	from, err := spec.ParseMoment(f.from, now)
	if err != nil {
		return nil, "", nil, &usageError{fmt.Errorf("--from: %w", err)}
	}
	to, err := spec.ParseMoment(f.to, now)
	if err != nil {
		return nil, "", nil, &usageError{fmt.Errorf("--to: %w", err)}
	}
	if !from.Before(to) {
		return nil, "", nil, &usageError{fmt.Errorf("--from %s must be before --to %s", f.from, f.to)}
	}
	about = &atysv1.Selection{Task: f.task, Kind: f.kind, FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano()}
	if len(args) > 0 {
		about.Select = args[0]
	}
	asks, address, err := f.client()
	if err != nil {
		return nil, "", nil, err
	}
	return atysv1connect.NewQueryClient(asks, address), address, about, nil
}

func queryCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "query",
		Short: "Ask a server about what it keeps",
		Long: `query asks about the windows that a selector of labels chooses, written as in
PromQL: {service="checkout",node=~"web-.*"}; all of them without one. Each
answer says on standard error how much of what was asked for it holds.`,
		Args: knownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(queryTopCommand(), queryMergeCommand(), querySeriesCommand(), queryByCommand(), queryDiffCommand(), queryLabelsCommand(), queryWindowsCommand(), queryRatesCommand())
	return c
}

// oneSelector takes a selector, or none.
func oneSelector(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return &usageError{fmt.Errorf("%d arguments: give one selector, in quotes, such as '{service=\"checkout\"}'", len(args))}
	}
	return nil
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" }

func bounds(i *atysv1.Interval) string {
	return strconv.FormatFloat(100*i.GetLow(), 'f', 2, 64) + "-" + percent(i.GetHigh())
}

// serviceBounds are those of the service, where they are known.
func serviceBounds(i *atysv1.Interval) string {
	if i == nil {
		return "-"
	}
	return bounds(i)
}

// warnCoverage says how much of what was asked for an answer holds.
func warnCoverage(w io.Writer, c *atysv1.Coverage, about *atysv1.Selection) error {
	fmt.Fprintf(w, "atys: %d windows, %d samples\n", c.GetWindows(), c.GetN())
	if c.GetWindows() == 0 {
		fmt.Fprintln(w, "  nothing is kept of it in that time (\"atys query labels\" shows what there is)")
	}
	return warnGaps(w, c, about)
}

// warnGaps is the same, of an answer that counts no windows.
func warnGaps(w io.Writer, c *atysv1.Coverage, about *atysv1.Selection) error {
	lacks := remote.Coverage(c, about).Words(time.Local)
	if len(lacks.Items) > 1 && lacks.Line != "" {
		fmt.Fprintln(w, "  "+lacks.Line)
	}
	for i, item := range lacks.Items {
		if i == mostItems {
			fmt.Fprintf(w, "  and %d more (-o json has all)\n", len(lacks.Items)-i)
			break
		}
		fmt.Fprintln(w, "  "+item)
	}
	return nil
}

// mostItems is how many of what an answer lacks are printed.
const mostItems = 12

func querySeriesCommand() *cobra.Command {
	var f queryFlags
	var step time.Duration
	var by, function string
	var pooled bool
	c := &cobra.Command{
		Use:   "series [SELECTOR]",
		Short: "What was used, step by step: of all, or of a function and what it called",
		Long: `What was used, step by step: of all, or of a function and what it called. CORES is
the CPU time by how long the step lasted. A step that began before --from, or is not
over yet, is shorter than the others: LASTS says so ("23s of 1m0s").

With --pooled, steps say what they know of each other: as long as a service does the
same, and each time that it does so again, all samples tell of the same shares. Each
step keeps as much of its own as steps are found to differ, and its interval takes in
what could have changed without being found. A step that is not final may be seen in
another light once more is known.`,
		Example: `  atys query series '{service="checkout"}' --step 1m --function json.Marshal
  atys query series '{service="checkout"}' --step 10s --function json.Marshal --pooled`,
		Args: oneSelector,
		RunE: func(c *cobra.Command, args []string) error {
			if step <= 0 {
				return &usageError{fmt.Errorf("--step %v: want more than 0s", step)}
			}
			return f.split(c, args, &atysv1.SplitRequest{StepNs: int64(step), By: by, Function: function, Pooled: pooled})
		},
	}
	f.addTable(c)
	c.Flags().BoolVar(&pooled, "pooled", false, "have steps of --function say what they know of each other")
	c.Flags().DurationVar(&step, "step", time.Minute, "length of a step; no shorter than windows are")
	c.Flags().StringVar(&by, "by", "", "a row for each value of this label too, or of threads' names: thread")
	c.Flags().StringVar(&function, "function", "", "of what is in functions of this name, or was called by them")
	return c
}

func queryByCommand() *cobra.Command {
	var f queryFlags
	var function string
	c := &cobra.Command{
		Use:     "by LABEL [SELECTOR]",
		Short:   "What was used by each value of a label, or by each pattern of threads' names",
		Example: "  atys query by node '{service=\"checkout\"}'\n  atys query by thread '{service=\"checkout\"}'",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return &usageError{errors.New("say by what: a label, such as node, or thread; then a selector")}
			}
			return f.split(c, args[1:], &atysv1.SplitRequest{By: args[0], Function: function})
		},
	}
	f.addTable(c)
	c.Flags().StringVar(&function, "function", "", "of what is in functions of this name, or was called by them")
	return c
}

// split asks for parts of a selection and prints them.
func (f *queryFlags) split(c *cobra.Command, args []string, request *atysv1.SplitRequest) error {
	client, address, about, err := f.ask(args)
	if err != nil {
		return err
	}
	request.Selection = about
	response, err := client.Split(c.Context(), request)
	if err != nil {
		return explain(address, err)
	}
	if err := unknownLabel(c.Context(), client, address, request, response); err != nil {
		return err
	}
	if err := f.print(response, partRows(response, request, f.out.form == "")); err != nil {
		return err
	}
	warnService(os.Stderr, len(response.GetParts()), slices.ContainsFunc(response.GetParts(), func(p *atysv1.Part) bool { return p.GetService() != nil }))
	return warnCoverage(os.Stderr, response.GetCoverage(), about)
}

// unknownLabel refuses a label that no series of an answer has: it is misspelt.
func unknownLabel(ctx context.Context, client atysv1connect.QueryClient, address string, request *atysv1.SplitRequest, r *atysv1.SplitResponse) error {
	label := request.GetBy()
	if label == "" || label == query.ByThread || len(r.GetParts()) == 0 || slices.ContainsFunc(r.GetParts(), func(p *atysv1.Part) bool { return p.GetBy() != "" }) {
		return nil
	}
	labels, err := client.Labels(ctx, &atysv1.LabelsRequest{Selection: request.GetSelection()})
	if err != nil {
		return explain(address, err)
	}
	names := slices.Sorted(maps.Keys(labels.GetLabels()))
	if slices.Contains(names, label) {
		return nil
	}
	hint := "there are " + strings.Join(names, ", ")
	if near := similar(label, names); len(near) > 0 {
		hint = didYouMean(near)
	}
	return &usageError{fmt.Errorf("nothing in this selection has the label %q (%s)", label, hint)}
}

// warnService says why no row has an interval of the service.
func warnService(w io.Writer, rows int, known bool) {
	if rows > 0 && !known {
		fmt.Fprintln(w, "atys: no interval of the service: how instances differ is known where 3 of them, or of their groups, have samples")
	}
}

func queryLabelsCommand() *cobra.Command {
	var f queryFlags
	c := &cobra.Command{
		Use:     "labels [SELECTOR]",
		Short:   "The labels that there are, and their values",
		Example: `  atys query labels --from -24h`,
		Args:    oneSelector,
		RunE: func(c *cobra.Command, args []string) error {
			client, address, about, err := f.ask(args)
			if err != nil {
				return err
			}
			response, err := client.Labels(c.Context(), &atysv1.LabelsRequest{Selection: about})
			if err != nil {
				return explain(address, err)
			}
			rows := [][]string{{"LABEL", "VALUE"}}
			for _, name := range slices.Sorted(maps.Keys(response.GetLabels())) {
				for _, value := range response.GetLabels()[name].GetValues() {
					rows = append(rows, []string{name, value})
				}
			}
			if err := f.print(response, rows); err != nil {
				return err
			}
			return warnGaps(os.Stderr, response.GetCoverage(), about)
		},
	}
	f.addTable(c)
	return c
}

func queryWindowsCommand() *cobra.Command {
	var f queryFlags
	var limit uint32
	c := &cobra.Command{
		Use:     "windows [SELECTOR]",
		Short:   "The windows that there are, as they were cut",
		Example: `  atys query windows '{service="checkout"}' --from -10m -o json`,
		Args:    oneSelector,
		RunE: func(c *cobra.Command, args []string) error {
			client, address, about, err := f.ask(args)
			if err != nil {
				return err
			}
			response, err := client.Windows(c.Context(), &atysv1.WindowsRequest{Selection: about, Limit: limit})
			if err != nil {
				return explain(address, err)
			}
			if err := f.print(response, windowRows(response)); err != nil {
				return err
			}
			if err := warnCoverage(os.Stderr, response.GetCoverage(), about); err != nil {
				return err
			}
			if response.GetMore() {
				fmt.Fprintln(os.Stderr, "atys: there are more: a selector, --from and --to choose among them, -n lists more at once")
			}
			return nil
		},
	}
	f.addTable(c)
	c.Flags().Uint32VarP(&limit, "limit", "n", 1000, "list at most so many")
	return c
}

func windowRows(r *atysv1.WindowsResponse) [][]string {
	rows := [][]string{{"START", "LASTS", "TASK", "HZ", "REASON", "SAMPLES", "CPU SECONDS", "COST", "STACKS", "INCOMPLETE", "SERIES"}}
	for _, w := range r.GetWindows() {
		var incomplete int64
		for _, l := range w.GetLosses() {
			if profile.LossReason(l.GetReason()).OfSamples() {
				incomplete += l.GetN()
			}
		}
		rows = append(rows, []string{time.Unix(0, w.GetStartUnixNano()).UTC().Format(time.RFC3339), time.Duration(w.GetDurationNs()).Round(time.Millisecond).String(), w.GetTask(),
			hertz(w), reasonCell(w.GetRate()), strconv.FormatInt(w.GetN(), 10), strconv.FormatFloat(time.Duration(w.GetExact().GetCpuNs()).Seconds(), 'f', 3, 64),
			shareOfCore(remote.Cost(w.GetCost()), time.Duration(w.GetDurationNs())), strconv.Itoa(int(w.GetStacks())), strconv.FormatInt(incomplete, 10), profile.Labels(w.GetLabels()).String()})
	}
	return rows
}

// hertz is how often a window's clock sampled; "-" of what is no clock.
func hertz(w *atysv1.KeptWindow) string {
	if w.GetPeriodNs() <= 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(time.Second)/float64(w.GetPeriodNs()), 'g', 4, 64)
}

// shareOfCore is how much of a core some time is, over a longer one.
func shareOfCore(took, over time.Duration) string {
	if took <= 0 || over <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f%%", 100*took.Seconds()/over.Seconds())
}
