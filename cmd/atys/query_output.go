package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/render"
)

// Forms of answers, as -o names them: alone for standard output, or as what a
// file's name ends with.
var tableForms = []string{"json", "csv"}

// profileForms are those of what is a profile, or can be told as one.
func profileForms() []string {
	return append([]string{"folded", "pb.gz", "html"}, slices.DeleteFunc(bare(outputExtensions()), func(f string) bool {
		return f == "folded" || f == "pb.gz" || f == "html"
	})...)
}

// answerOutput is where an answer goes, and in which form.
type answerOutput struct {
	form string // "": a table
	path string // "-": standard output
}

// newAnswerOutput reads -o, for a command whose answers have some forms.
func newAnswerOutput(text string, forms []string) (answerOutput, error) {
	if text == "" {
		return answerOutput{path: "-"}, nil
	}
	found := answerOutput{}
	for _, form := range slices.Concat(tableForms, profileForms()) {
		switch {
		case text == form:
			found = answerOutput{form, "-"}
		case strings.HasSuffix(strings.ToLower(text), "."+form) && len(form) > len(found.form):
			found = answerOutput{form, text}
		}
	}
	switch {
	case slices.Contains(forms, found.form):
		return found, nil
	case found.form != "":
		return found, fmt.Errorf("-o %q: this answer is no profile: want %s; \"atys query merge -o %s\" writes the same selection as one", text, strings.Join(forms, " or "), text)
	}
	return found, fmt.Errorf("-o %q: want one of %s, or a file whose name ends with it", text, strings.Join(forms, " "))
}

// table tells whether the answer is rows, and not a profile.
func (o answerOutput) table() bool { return o.form == "" || slices.Contains(tableForms, o.form) }

// profile is the same, as profiles are written.
func (o answerOutput) profile() (*output, error) {
	out, err := newOutput("x."+o.form, "", outputOptions{})
	if err != nil {
		return nil, err
	}
	out.path = o.path
	if o.path == "-" && o.form != "folded" && isTerminal(os.Stdout) && (strings.HasSuffix(o.form, ".gz") || o.form == "pprof") {
		return nil, fmt.Errorf("-o %s: what it writes is not for a terminal: name a file, such as -o merged.%s", o.form, o.form)
	}
	return out, out.check()
}

// addTable adds the flags of a command whose answer is a table; others are the
// forms that it has besides.
func (f *queryFlags) addTable(c *cobra.Command, others ...string) {
	f.add(c)
	f.displayFlags.add(c)
	f.addOutput(c, append(slices.Clone(tableForms), others...), "else as a table")
}

func (f *queryFlags) addOutput(c *cobra.Command, forms []string, otherwise string) {
	f.forms = forms
	c.Flags().StringVarP(&f.output, "output", "o", "", "how to print: "+strings.Join(forms, ", ")+", or a file whose name ends with one of these; "+otherwise)
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveDefault))
}

// print prints an answer as it was asked for.
func (f *queryFlags) print(answer proto.Message, rows [][]string) error {
	switch f.out.form {
	case "json":
		indented, err := plain(answer)
		if err != nil {
			return err
		}
		return writeWhole(f.out.path, os.Stdout, func(w io.Writer) error { return printJSON(w, indented) })
	case "csv":
		return writeWhole(f.out.path, os.Stdout, func(w io.Writer) error { return writeCSV(w, rows) })
	case "":
	default:
		return errors.New("no way to print " + f.out.form)
	}
	o, err := f.tableOptions()
	if err != nil {
		return err
	}
	return writeRows(os.Stdout, rows, o)
}

// plain is a message as JSON has it, to be written as all our JSON is: protojson
// varies its spaces on purpose.
func plain(m proto.Message) (v any, err error) {
	text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

func writeCSV(to io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = render.Printable(row[i])
		}
	}
	w := csv.NewWriter(to)
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return w.Error()
}
