package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

type diffFlags struct {
	selectionFlags
	displayFlags
	drawingFlags
	out       answerOutput // for programs; what is compared with it: see answer
	normalize bool
	json      bool
	rows      int
}

func diffCommand() *cobra.Command {
	var f diffFlags
	c := &cobra.Command{
		Use:   "diff [flags] before after",
		Short: "Show what changed between two profiles, and what could be chance",
		Long: `diff compares two profiles function by function: their values, their shares of
the profile they stand in, and the difference of the shares with its 95%
interval. A difference that may be nothing but the chance of sampling, which finds
something among so many functions, is marked by "?"; "few" are those with too few
samples for any change to be found. Of what is not marked 5% are chance in the mean
(Benjamini and Hochberg). Below the table stand the least changes that would have
been found, and what the largest that is not sure needs. Drawings (-o) and JSON
compare shares.`,
		Example: `  atys diff before.pb.gz after.pb.gz
  atys diff --focus '^main' -o diff.html monday.pb.gz tuesday.pb.gz`,
		PreRun:            endOnSignal,
		Args:              two("before and after"),
		ValidArgsFunction: completeProfiles(2),
		RunE: func(c *cobra.Command, args []string) error {
			return diff(c.OutOrStdout(), c.ErrOrStderr(), f, readProfile, args)
		},
	}
	f.selectionFlags.add(c)
	f.displayFlags.add(c)
	f.drawingFlags.add(c)
	flags := c.Flags()
	flags.BoolVar(&f.normalize, "normalize", false, "scale the values before to the total after, so that values compare although one profile is longer")
	flags.IntVarP(&f.rows, "nodecount", "n", 0, "at most so many functions, or boxes of a drawing; 0 is all, but on a terminal what it holds")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// diff compares two profiles, each read by its name.
func diff(out, log io.Writer, f diffFlags, read func(name string) (*profile.Window, error), profiles []string) error {
	if f.rows < 0 {
		return &usageError{fmt.Errorf("--nodecount %d: want 0 or more", f.rows)}
	}
	if f.json && f.output != "" {
		return &usageError{errors.New("--json writes to standard output, -o draws: give one of them")}
	}
	d, err := f.drawing(f.displayFlags)
	if err != nil {
		return &usageError{err}
	}
	before, err := f.read(read, profiles[0])
	if err != nil {
		return err
	}
	after, err := f.read(read, profiles[1])
	if err != nil {
		return err
	}
	warn(log, names(profiles), before, after)
	if a, b := before.whole.Types[0], after.whole.Types[0]; a.Kind != b.Kind || a.Unit != b.Unit {
		return &usageError{fmt.Errorf("%q measures %s, %q measures %s: these cannot be compared; name a type they share by --type",
			profiles[0], typeList(before.whole), profiles[1], typeList(after.whole))}
	}
	tree, err := profile.NewTree(profile.TreeOptions{}, before.window, after.window)
	if err != nil {
		return err
	}
	if d.format != "" {
		selection.Bound(tree, f.rows)
		return d.write(out, tree)
	}
	ofWhole(tree, 0, before.whole)
	ofWhole(tree, 1, after.whole)
	if f.out.form != "" {
		return writeWhole(f.out.path, out, func(w io.Writer) error { return f.writeForm(w, tree, d.options) })
	}
	w := bufio.NewWriter(out)
	if f.json {
		d.options.Limit = f.rows
		err = render.TopJSON(w, tree, d.options)
	} else {
		d.options.Limit = rowLimit(f.rows, screenOf(os.Stdout))
		f.writeTable(w, tree, before, after, d.options)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// change is one function's row.
type change struct {
	profile.Function
	stats.Comparison // of the total's shares
}

// mark is what stands beside a change that is not significant.
func (c *change) mark() string {
	switch {
	case c.Significant():
		return ""
	case !c.Tested && c.Difference.Value != 0:
		return "few"
	}
	return "?"
}

func (f *diffFlags) writeTable(w io.Writer, tree *profile.Tree, before, after *selected, o render.Options) {
	title := o.Title
	if title == "" {
		title = tree.Columns[0].Type.Kind + " profiles compared"
		for _, words := range []string{before.folded, before.words} {
			if words != "" {
				title += ", " + words
			}
		}
	}
	writeTitle(w, title, o)
	writeFacts(w, "before: ", before.whole, false)
	writeFacts(w, "after:  ", after.whole, false)
	fmt.Fprintln(w)
	scale := 1.0
	if base := tree.Root.Total[0].Value; f.normalize && base != 0 {
		scale = float64(tree.Root.Total[1].Value) / float64(base)
	}
	changes, family := changesOf(tree)
	unit := tree.Columns[0].Type.Unit
	t := table{heads: []string{"before", "after", "change", "before%", "after%", "points", "95% interval", ""}}
	for i, c := range changes {
		if o.Limit > 0 && i == o.Limit {
			break
		}
		was, is := scale*float64(c.Total[0].Value), float64(c.Total[1].Value)
		t.add(c.Frame, render.Value(was, unit), render.Value(is, unit), signed(is-was, unit), render.Share(c.Before.Value), render.Share(c.After.Value),
			point(c.Difference.Value), points(c.Difference.Low, c.Difference.High), c.mark())
	}
	t.write(w, len(changes), o)
	writeCertainty(w, tree, changes, family)
}

// changesOf lists functions, those whose share changed most first, and judges
// them together.
func changesOf(tree *profile.Tree) ([]change, stats.Family) {
	functions := tree.Functions()
	changes, compared := make([]change, len(functions)), make([]*stats.Comparison, len(functions))
	for i, fn := range functions {
		changes[i] = change{fn, stats.Compare(sideOf(tree, 0, fn.Total[0]), sideOf(tree, 1, fn.Total[1]))}
		compared[i] = &changes[i].Comparison
	}
	family := stats.Judge(compared)
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Compare(math.Abs(b.Difference.Value), math.Abs(a.Difference.Value))
	})
	return changes, family
}

// sideOf is a part of a tree's column, to be compared.
func sideOf(tree *profile.Tree, column int, part profile.Sum) stats.Side {
	whole := tree.Root.Total[column]
	return stats.Side{Part: sums(part), Whole: sums(whole), Counted: whole.Value > 0 && !estimated(whole, tree.Columns[column].Head.Design)}
}

func signed(v float64, unit string) string {
	if v > 0 {
		return "+" + render.Value(v, unit)
	}
	return render.Value(v, unit)
}

// point writes a difference of shares in percentage points.
func point(d float64) string {
	return fmt.Sprintf("%+.*f", digits(math.Abs(d)), d*100)
}
