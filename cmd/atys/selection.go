package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/render"
)

// selectionFlags choose what of a profile is shown; commands on files share them.
type selectionFlags struct {
	codeFlags
	focus, ignore, show, hide expression
	reverse                   bool
	kind                      string
}

func (s *selectionFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.Var(&s.focus, "focus", "only stacks with a frame that matches: its function, file or binary")
	f.Var(&s.ignore, "ignore", "no stacks with a frame that matches")
	f.Var(&s.show, "show", "of each stack, only the frames that match")
	f.Var(&s.hide, "hide", "of each stack, not the frames that match")
	f.BoolVar(&s.reverse, "reverse", false, "turn stacks round: callers below what they call")
	f.StringVar(&s.kind, "type", "", "which of the profile's value types, by name; without it the first")
	_ = c.RegisterFlagCompletionFunc("type", completeTypes)
	s.codeFlags.add(c)
}

func (s *selectionFlags) selection() selection.Selection {
	return selection.Selection{Focus: s.focus.Regexp, Ignore: s.ignore.Regexp, Show: s.show.Regexp, Hide: s.hide.Regexp, Kinds: s.languages.Kinds}
}

// expression is a regular expression given as a flag.
type expression struct{ *regexp.Regexp }

func (e *expression) String() string {
	if e.Regexp == nil {
		return ""
	}
	return e.Regexp.String()
}

func (e *expression) Set(text string) (err error) {
	if text == "" {
		e.Regexp = nil // pprof, too, takes an empty expression for none
		return nil
	}
	e.Regexp, err = regexp.Compile(text)
	return err
}

func (e *expression) Type() string { return "regexp" }

// selected is what was read and what of it is to be shown.
type selected struct {
	whole, window *profile.Window
	words         string   // of the selection, for a title; empty if there is none
	folded        string   // what was folded into its callers; empty if nothing was
	unmatched     []string // flags whose expression matches no frame: likely mistyped
}

// warn says which expressions match nothing in any of what was read.
func warn(log io.Writer, name string, read ...*selected) {
	for _, flag := range read[0].unmatched {
		everywhere := !slices.ContainsFunc(read, func(s *selected) bool { return !slices.Contains(s.unmatched, flag) })
		if everywhere {
			fmt.Fprintf(log, "atys: %s matches no frame of %s\n", flag, name)
		}
	}
}

// readFiles selects from files, or from what record writes if none is named, and warns of
// expressions that match nothing.
func (s *selectionFlags) readFiles(log io.Writer, paths []string) (*selected, error) {
	paths, err := orRecorded(paths, log)
	if err != nil {
		return nil, err
	}
	read, err := s.read(readProfile, paths...)
	if err == nil {
		warn(log, names(paths), read)
	}
	return read, err
}

// read merges profiles and selects from them. one reads a profile: readProfile does
// from files.
func (s *selectionFlags) read(one func(name string) (*profile.Window, error), names ...string) (*selected, error) {
	classifier, err := s.classifier()
	if err != nil {
		return nil, err
	}
	windows := make([]*profile.Window, len(names))
	for i, name := range names {
		w, err := one(name)
		if err != nil {
			return nil, err
		}
		if s.kind != "" {
			if w, err = selection.Only(w, s.kind); err != nil {
				return nil, &usageError{fmt.Errorf("%q: %w", name, err)}
			}
		}
		if len(w.Types) == 0 {
			return nil, fmt.Errorf("%q: the profile has no values", name)
		}
		windows[i] = w
	}
	whole, err := merge(names, windows)
	if err != nil {
		return nil, err
	}
	return s.from(classifier.Window(whole)), nil
}

func (s *selectionFlags) from(whole *profile.Window) *selected {
	out := &selected{whole: whole}
	var unmatched selection.Unmatched
	out.window, unmatched = s.selection().Apply(whole)
	var words []string
	for _, u := range [...]struct {
		flag string
		expression
		unmatched bool
	}{{"focus", s.focus, unmatched.Focus}, {"ignore", s.ignore, unmatched.Ignore}, {"show", s.show, unmatched.Show}, {"hide", s.hide, unmatched.Hide}} {
		if u.Regexp == nil {
			continue
		}
		words = append(words, u.flag+" "+u.expression.String())
		if u.unmatched {
			out.unmatched = append(out.unmatched, fmt.Sprintf("--%s %q", u.flag, u.expression.String()))
		}
	}
	if s.languages.Kinds != 0 {
		words = append(words, "lang "+s.languages.text)
		if unmatched.Kinds {
			out.unmatched = append(out.unmatched, fmt.Sprintf("--lang %q", s.languages.text))
		}
	}
	out.words = strings.Join(words, ", ")
	out.window, out.folded = s.folding(out.window), s.codeFlags.folded()
	if s.reverse {
		out.window = selection.Reverse(out.window)
	}
	return out
}

// title names a selection and its share; empty, which leaves the title to
// renderings, if all is selected.
func (s *selected) title() string {
	title := titleOf(s.whole)
	if s.folded != "" {
		title += ", " + s.folded
	}
	if s.words != "" {
		title += ", " + s.words + ": " + share(selection.Whole(s.window), selection.Whole(s.whole))
	}
	if s.words == "" && s.folded == "" {
		return ""
	}
	return title
}

// share says which part of a whole something is, and how sure that is.
func share(part, whole profile.Sum) string {
	if whole.Value <= 0 {
		return "nothing"
	}
	text := render.Share(float64(part.Value)/float64(whole.Value)) + " of the whole"
	if whole.N <= 0 {
		return text
	}
	return text + fmt.Sprintf(", %s of %s samples", render.Count(part.N), render.Count(whole.N))
}

// ofWhole makes shares in a tree of a selection those of the whole profile,
// as pprof has them: what was not selected is the root's own.
func ofWhole(t *profile.Tree, column int, whole *profile.Window) {
	t.Columns[column].Head = whole.Head
	extend(t, column, selection.Whole(whole))
}

// extend gives the root a larger total.
func extend(t *profile.Tree, column int, total profile.Sum) {
	root := t.Root
	had := root.Total[column]
	root.Total[column] = total
	root.Self[column].N += total.N - had.N
	root.Self[column].Value += total.Value - had.Value
	root.Self[column].Squares += total.Squares - had.Squares
}

// merge adds files up that measure the same.
func merge(paths []string, windows []*profile.Window) (*profile.Window, error) {
	if len(windows) == 1 {
		return windows[0], nil
	}
	whole, err := profile.Merge(windows...)
	if !errors.Is(err, profile.ErrDifferentTypes) {
		return whole, err
	}
	for i, w := range windows[1:] {
		if before, now := typeList(windows[0]), typeList(w); now != before {
			return nil, &usageError{fmt.Errorf("%q measures %s, %q measures %s: these cannot be added up; name a type they share by --type, or give one file at a time",
				paths[0], before, paths[i+1], now)}
		}
	}
	return nil, err
}

// typeList names value types in a message: quoted, since a file may name them anything.
func typeList(w *profile.Window) string {
	list := make([]string, len(w.Types))
	for i, t := range w.Types {
		list[i] = fmt.Sprintf("%q in %q", t.Kind, t.Unit)
	}
	return strings.Join(list, ", ")
}

// readProfile reads a file of any format, or standard input for -.
func readProfile(path string) (*profile.Window, error) {
	switch lower := strings.ToLower(path); {
	case strings.HasSuffix(lower, ".html"), strings.HasSuffix(lower, ".svg"):
		return nil, &usageError{fmt.Errorf("%q is a drawing, which cannot be read back: give the .pb.gz it was drawn from", path)}
	case path != "-":
		return format.Read(path)
	}
	w, err := format.Decode(os.Stdin)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return w, nil
}

func names(paths []string) string {
	if len(paths) == 1 {
		return fmt.Sprintf("%q", paths[0])
	}
	return fmt.Sprintf("the %d profiles", len(paths))
}

// two wants two files.
func two(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 2 {
			return &usageError{fmt.Errorf("%d files given, want two, %s: %s", len(args), what, c.UseLine())}
		}
		return nil
	}
}

// orRecorded is the files given, or what record writes if it is not told where.
func orRecorded(paths []string, log io.Writer) ([]string, error) {
	if len(paths) > 0 {
		return paths, nil
	}
	if _, err := os.Stat(recorded); err != nil {
		return nil, &usageError{fmt.Errorf("no file given, and there is no %s here, which record writes: name a file, or - for standard input", recorded)}
	}
	fmt.Fprintf(log, "atys: reading %s\n", recorded)
	return []string{recorded}, nil
}

// recorded is where record writes without -o.
const recorded = "atys.pb.gz"

// endOnSignal lets signals end a command at once. A recording takes the first
// one as the word to write what it has; work on files has nothing to save.
func endOnSignal(*cobra.Command, []string) { signal.Reset(os.Interrupt, unix.SIGTERM, unix.SIGHUP) }

// writeWhole writes a file once all of it is there, so that a signal while it
// is made leaves nothing behind.
func writeWhole(path string, stdout io.Writer, encode func(io.Writer) error) error {
	if path == "-" {
		return encode(stdout)
	}
	var content bytes.Buffer
	if err := encode(&content); err != nil {
		return err
	}
	return format.Replace(path, func(w io.Writer) error {
		_, err := content.WriteTo(w)
		return err
	})
}

// completeProfiles offers files whose names are those of profiles that can be
// read, as long as a command takes at most so many (0: any number).
func completeProfiles(most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"pb.gz", "pprof", "prof", "folded", "collapsed", "txt"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// completeFormats offers the formats that newOutput knows.
func completeFormats(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"pprof", "folded", "html", "svg", "speedscope", "cpuprofile"}, cobra.ShellCompDirectiveNoFileComp
}

// bare drops the dots that extensions begin with, as completion wants them.
func bare(extensions []string) []string {
	out := make([]string, len(extensions))
	for i, x := range extensions {
		out[i] = strings.TrimPrefix(x, ".")
	}
	return out
}

// completeTypes offers the value types of the files typed so far.
func completeTypes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var kinds []string
	for _, path := range args {
		w, err := format.Read(path)
		if err != nil {
			continue
		}
		for _, t := range w.Types {
			if !strings.ContainsFunc(t.Kind, func(r rune) bool { return r < ' ' }) {
				kinds = append(kinds, t.Kind)
			}
		}
	}
	return kinds, cobra.ShellCompDirectiveNoFileComp
}
