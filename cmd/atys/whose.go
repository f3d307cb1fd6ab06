package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/profile/whose"
	"atys.dev/atys/internal/query"
)

// codeFlags choose frames by whose code they are and in which language;
// commands on files and top share them.
type codeFlags struct {
	own, hideRuntime bool
	languages        kinds
	rules            string
}

func (w *codeFlags) add(c *cobra.Command) {
	w.addFolding(c)
	c.Flags().Var(&w.languages, "lang", "only frames in these languages, with commas between: python, java, javascript, native, kernel ...")
	_ = c.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions(selection.LanguageNames(), cobra.ShellCompDirectiveNoFileComp))
}

func (w *codeFlags) addFolding(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&w.own, "own", false, "only the application's own functions, each with the time of what it called in other code")
	f.BoolVar(&w.hideRuntime, "hide-runtime", false, "not the frames of language runtimes, system libraries and the kernel; their time goes to those who called them")
	f.StringVar(&w.rules, "rules", "", "file of rules that tell whose code is what; without it atys/rules in the folder of your configuration, if it is there")
	_ = c.MarkFlagFilename("rules")
}

// classifier classes frames by the user's rules and ours.
func (w *codeFlags) classifier() (*whose.Classifier, error) {
	_, rules, err := w.usersRules()
	if err != nil {
		return nil, err
	}
	return whose.New(rules), nil
}

// usersRules reads the user's rules; nil if there are none.
func (w *codeFlags) usersRules() (text string, rules *whose.Rules, err error) {
	if w.own && w.hideRuntime {
		return "", nil, &usageError{errors.New("--own hides what --hide-runtime does, and libraries: give one of them")}
	}
	path, wanted := w.rules, w.rules != ""
	if !wanted {
		if path = rulesFile(); path == "" {
			return "", nil, nil
		}
	}
	text, err = readRules(path)
	if !wanted && errors.Is(err, os.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	if rules, err = whose.Parse(text); err != nil {
		return "", nil, fmt.Errorf("rules in %q: %w", path, err)
	}
	return text, rules, nil
}

// classed classes the frames of what was just measured. Rules that cannot be
// read must not cost the measurement: they are said, and done without.
func classed(w *profile.Window) *profile.Window {
	var none codeFlags
	c, err := none.classifier()
	if err != nil {
		fmt.Fprintln(os.Stderr, "atys: "+legible(err))
		c = whose.New(nil)
	}
	return c.Window(w)
}

// rulesFile is where a user's rules are looked for; empty if there is no such place.
func rulesFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "atys", "rules")
}

// maxRules is more than anybody writes; what is longer is another file.
const maxRules = 1 << 20

func readRules(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read rules: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRules+1))
	if err != nil {
		return "", fmt.Errorf("read rules: %w", err)
	}
	if len(text) > maxRules {
		return "", fmt.Errorf("read rules: %q is longer than %d bytes", path, maxRules)
	}
	return string(text), nil
}

// fold is what a server is asked to fold.
func (w *codeFlags) fold() string {
	switch {
	case w.own:
		return string(query.FoldOwn)
	case w.hideRuntime:
		return string(query.FoldHideRuntime)
	}
	return ""
}

// folding folds code of others into the frames that called it, as asked.
func (w *codeFlags) folding(win *profile.Window) *profile.Window {
	switch {
	case w.own:
		return selection.Own(win)
	case w.hideRuntime:
		return selection.HideRuntime(win)
	}
	return win
}

// choose gives the frames of a stack that are to be shown, as asked.
func (w *codeFlags) choose(stack []profile.Frame, c *whose.Classifier) []profile.Frame {
	return slices.DeleteFunc(stack, func(f profile.Frame) bool {
		f.Class = c.Class(f)
		return w.own && !f.Class.Own() || w.hideRuntime && !selection.WithoutRuntime(f) ||
			w.languages.Kinds != 0 && !w.languages.Has(f.Kind)
	})
}

// folded says in a title what folding does.
func (w *codeFlags) folded() string {
	switch {
	case w.own:
		return "own code"
	case w.hideRuntime:
		return "without runtimes"
	}
	return ""
}

// kinds is languages given as a flag.
type kinds struct {
	selection.Kinds
	text string
}

func (k *kinds) String() string { return k.text }

func (k *kinds) Set(text string) (err error) {
	k.text, k.Kinds = text, 0
	if text != "" {
		k.Kinds, err = selection.Languages(text)
	}
	return err
}

func (k *kinds) Type() string { return "names" }
