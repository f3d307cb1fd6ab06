package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

func queryMergeCommand() *cobra.Command {
	var f queryFlags
	c := &cobra.Command{
		Use:   "merge [SELECTOR] [-o FORM|FILE]",
		Short: "All that is selected as one profile, in any format that record writes",
		Long: `merge adds up all that is selected. -o names a form, which goes to standard
output, or a file, whose name ends with it: folded stacks (without -o), pb.gz for
"go tool pprof" and "atys report", html and svg, which are flame graphs, and json
and csv, which list the stacks for programs.`,
		Example: `  atys query merge '{service="checkout"}' --from -1h -o checkout.html
  atys query merge '{service="checkout"}' -o checkout.pb.gz && go tool pprof checkout.pb.gz`,
		Args: oneSelector,
		RunE: func(c *cobra.Command, args []string) error {
			if f.output == "" || f.output == "-" {
				f.output = "folded"
			}
			return f.merge(c, args, func(w *profile.Window) *profile.Window { return w })
		},
	}
	f.add(c)
	f.addOutput(c, append(slices.Clone(tableForms), profileForms()...), "else as folded stacks")
	return c
}

// merge writes all that is selected as one profile, after something was done to it.
func (f *queryFlags) merge(c *cobra.Command, args []string, do func(*profile.Window) *profile.Window) error {
	var profiled *output
	out, err := newAnswerOutput(f.output, f.forms)
	if err == nil && !out.table() {
		profiled, err = out.profile()
	}
	if err != nil {
		return &usageError{err}
	}
	window, coverage, err := f.fetch(c, args)
	switch {
	case err != nil:
		return err
	case window == nil && profiled != nil && out.path != "-":
		return fmt.Errorf("nothing is kept of it in that time: %s was not written", out.path)
	case window == nil && profiled != nil:
		return nil
	case window == nil:
		window = &profile.Window{Head: profile.Head{Types: []profile.ValueType{{Kind: f.kind}}}}
	}
	window = do(window)
	if profiled != nil {
		return profiled.write(window)
	}
	tree, err := profile.NewTree(profile.TreeOptions{}, window)
	if err != nil {
		return err
	}
	merged := mergedOf(window, tree)
	if merged.Coverage, err = plain(coverage); err != nil {
		return err
	}
	return writeWhole(out.path, os.Stdout, func(w io.Writer) error {
		if out.form == "csv" {
			return writeCSV(w, stackRows(tree, "VALUE"))
		}
		return printJSON(w, merged)
	})
}

// fetch gets all that is selected as one window; nil, with a word about it, if
// there is nothing. What the answer lacks is said in the window's comments too, so
// that it is in whatever is made of it.
func (f *queryFlags) fetch(c *cobra.Command, args []string) (*profile.Window, *atysv1.Coverage, error) {
	client, address, about, err := f.ask(args)
	if err != nil {
		return nil, nil, err
	}
	response, err := client.Merge(c.Context(), &atysv1.MergeRequest{Selection: about})
	if err != nil {
		return nil, nil, explain(address, err)
	}
	coverage := response.GetCoverage()
	if err := warnCoverage(os.Stderr, coverage, about); err != nil || response.GetWindow() == nil {
		return nil, coverage, err
	}
	window, _, err := wire.Open(response.GetWindow())
	if err != nil {
		return nil, nil, err
	}
	for _, line := range remote.Gaps(coverage, about) {
		window.AddComment(line)
	}
	return window, coverage, nil
}

// What merge prints as JSON; its field names are stable.
type (
	mergedJSON struct {
		Kind       string       `json:"kind"`
		Unit       string       `json:"unit"`
		Value      int64        `json:"value"`
		Samples    int64        `json:"samples"`
		ExactCPUNs int64        `json:"exact_cpu_ns"`
		Losses     []lossJSON   `json:"losses"`
		Coverage   any          `json:"coverage"` // as of all answers
		Stacks     []stackValue `json:"stacks"`
	}
	lossJSON struct {
		Reason  string `json:"reason"`
		Detail  string `json:"detail,omitempty"`
		Samples int64  `json:"samples"`
		Value   int64  `json:"value"`
	}
	stackValue struct {
		Frames  []string `json:"frames"` // outermost first
		Value   int64    `json:"value"`
		Samples int64    `json:"samples"`
	}
)

func mergedOf(w *profile.Window, tree *profile.Tree) mergedJSON {
	t, whole := tree.Columns[0].Type, tree.Root.Total[0]
	m := mergedJSON{Kind: t.Kind, Unit: t.Unit, Value: whole.Value, Samples: whole.N, ExactCPUNs: int64(w.Exact.CPU), Losses: []lossJSON{}, Stacks: []stackValue{}}
	for _, l := range w.Losses {
		m.Losses = append(m.Losses, lossJSON{string(l.Reason), l.Detail, l.N, l.Value})
	}
	eachStack(tree, func(stack []string, self []profile.Sum) {
		m.Stacks = append(m.Stacks, stackValue{slices.Clone(stack), self[0].Value, self[0].N})
	})
	return m
}

// eachStack gives the stacks of a tree on which anything was sampled, outermost
// first, with what was of each column.
func eachStack(tree *profile.Tree, each func(stack []string, self []profile.Sum)) {
	var visit func(n *profile.Node, stack []string)
	visit = func(n *profile.Node, stack []string) {
		if slices.ContainsFunc(n.Self, func(s profile.Sum) bool { return s.N != 0 || s.Value != 0 }) {
			each(stack, n.Self)
		}
		for _, child := range n.Children {
			visit(child, append(stack[:len(stack):len(stack)], render.Printable(child.Frame.Function)))
		}
	}
	visit(tree.Root, []string{})
}

// inOneLine is a stack as folded text has it; a semicolon in a name would end it.
func inOneLine(stack []string) string {
	names := make([]string, len(stack))
	for i, name := range stack {
		names[i] = strings.ReplaceAll(name, ";", ":")
	}
	return strings.Join(names, ";")
}

// stackRows lists stacks as folded text, with two figures of each column.
func stackRows(tree *profile.Tree, values ...string) [][]string {
	head := []string{"STACK"}
	for _, name := range values {
		head = append(head, name, strings.TrimSuffix(name, "VALUE")+"SAMPLES")
	}
	rows := [][]string{head}
	eachStack(tree, func(stack []string, self []profile.Sum) {
		row := []string{inOneLine(stack)}
		for _, s := range self {
			row = append(row, strconv.FormatInt(s.Value, 10), strconv.FormatInt(s.N, 10))
		}
		rows = append(rows, row)
	})
	return rows
}

func queryDiffCommand() *cobra.Command {
	var before, after queryFlags
	var d diffFlags
	c := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "What changed between two selections, or of one between two times, and what could be chance",
		Long: `diff compares two selections, or one at two times, by functions: a table, or with
-o json or csv the same for programs. -o html and svg draw it, folded writes each
stack with its values before and after. For pb.gz, write both with "atys query merge":
"go tool pprof -diff_base before.pb.gz after.pb.gz" compares them.`,
		Example: `  atys query diff '{version="1"}' '{version="2"}'
  atys query diff '{service="checkout"}' --from -25h --to -24h --from2 -1h --to2 now`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return &usageError{errors.New("give two selectors, or one and two times (--from2, --to2)")}
			}
			after.clientFlags, after.task, after.kind = before.clientFlags, before.task, before.kind
			after.from, after.to = cmp.Or(after.from, before.from), cmp.Or(after.to, before.to)
			if err := d.answer(); err != nil {
				return &usageError{err}
			}
			return queryDiff(c, &before, &after, d, args)
		},
	}
	before.add(c)
	d.displayFlags.add(c)
	d.selectionFlags.add(c)
	d.drawingFlags.add(c)
	flags := c.Flags()
	flags.Lookup("output").Usage = "how to print: " + strings.Join(diffForms, ", ") + ", or a file whose name ends with one of these; else as a table"
	flags.StringVar(&after.from, "from2", "", "as --from, for what comes after; else the same")
	flags.StringVar(&after.to, "to2", "", "as --to, likewise")
	flags.BoolVar(&d.normalize, "normalize", false, "scale the values before to the total after, so that values compare although one used more")
	flags.IntVarP(&d.rows, "nodecount", "n", 0, "at most so many functions, or boxes of a drawing; 0 is all, but on a terminal what it holds")
	flags.BoolVar(&d.json, "json", false, "write JSON")
	return c
}

// diffForms are the forms of what compares two selections.
var diffForms = []string{"json", "csv", "html", "svg", "folded"}

// answer reads -o as answers of a server have it.
func (f *diffFlags) answer() error {
	if f.output == "" || f.output == "-" || f.drawingFlags.format != "" {
		return nil // drawn, as atys diff does
	}
	out, err := newAnswerOutput(f.output, diffForms)
	if err != nil {
		if slices.Contains(profileForms(), out.form) {
			return fmt.Errorf("-o %q holds one profile: write both with \"atys query merge\", and compare them with \"go tool pprof -diff_base\"", f.output)
		}
		return err
	}
	switch out.form {
	case "html", "svg":
		f.drawingFlags.format, f.output = out.form, out.path
	default:
		if f.json {
			return fmt.Errorf("--json is -o json: it does not go with -o %s", f.output)
		}
		f.out, f.output = out, ""
	}
	return nil
}

// queryDiff compares what a server merges of two selections.
func queryDiff(c *cobra.Command, before, after *queryFlags, d diffFlags, args []string) error {
	read := func(name string) (*profile.Window, error) {
		f, about := before, args[:1]
		if name == "after" {
			f, about = after, args[len(args)-1:]
		}
		window, _, err := f.fetch(c, about)
		if err == nil && window == nil {
			err = errors.New("there is nothing to compare")
		}
		return window, err
	}
	return diff(c.OutOrStdout(), c.ErrOrStderr(), d, read, []string{"before", "after"})
}

// writeForm writes a comparison for programs.
func (f *diffFlags) writeForm(w io.Writer, tree *profile.Tree, o render.Options) error {
	switch f.out.form {
	case "json":
		o.Limit = f.rows
		return render.TopJSON(w, tree, o)
	case "csv":
		return writeCSV(w, changeRows(tree, f.rows))
	}
	var err error
	eachStack(tree, func(stack []string, self []profile.Sum) {
		if err == nil && len(stack) > 0 {
			_, err = fmt.Fprintf(w, "%s %d %d\n", inOneLine(stack), self[0].Value, self[1].Value)
		}
	})
	return err
}

// changeRows lists what changed, as the table does, in plain numbers: shares are of
// one, not of a hundred.
func changeRows(tree *profile.Tree, limit int) [][]string {
	rows := [][]string{{"FUNCTION", "FILE", "BEFORE", "AFTER", "SHARE BEFORE", "SHARE AFTER", "DIFFERENCE", "LOW", "HIGH", "P", "ADJUSTED", "SIGNIFICANT"}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	changes, _ := changesOf(tree)
	for i, c := range changes {
		if limit > 0 && i == limit {
			break
		}
		rows = append(rows, []string{c.Frame.Function, c.Frame.File, strconv.FormatInt(c.Total[0].Value, 10), strconv.FormatInt(c.Total[1].Value, 10),
			number(c.Before.Value), number(c.After.Value), number(c.Difference.Value), number(c.Difference.Low), number(c.Difference.High),
			number(c.P), number(c.Adjusted), strconv.FormatBool(c.Significant())})
	}
	return rows
}
