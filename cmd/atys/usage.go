package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearby is how many letters may differ between what was typed and what is suggested.
const nearby = 2

// checkArguments has every command refuse arguments that it does not take as the
// slip in a command line that they are, and suggest what may be meant.
func checkArguments(c *cobra.Command) {
	check := c.Args
	if c.HasSubCommands() {
		check = knownCommand
	}
	if check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var usage *usageError
			if err == nil || errors.As(err, &usage) {
				return err
			}
			return &usageError{fmt.Errorf("%d arguments given: want \"%s\"", len(args), c.UseLine())}
		}
	}
	for _, sub := range c.Commands() {
		checkArguments(sub)
	}
}

// noArgs refuses arguments of a command that takes flags alone.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{fmt.Errorf("%s takes no arguments, and %q is one (\"%s --help\" lists its flags)", c.CommandPath(), args[0], c.CommandPath())}
}

// knownCommand refuses what is no command as the slip it is.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("\"%s --help\" lists them", c.CommandPath())
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near := similar(args[0], names); len(near) > 0 {
		hint = didYouMean(near)
	}
	return &usageError{fmt.Errorf("unknown command %q (%s)", args[0], hint)}
}

func didYouMean(near []string) string { return "did you mean " + strings.Join(near, " or ") + "?" }

// helpCommand is cobra's, but fails where there is no such command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show what a command does, and its flags",
		ValidArgsFunction: func(c *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
			of, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, sub := range of.Commands() {
				if (sub.IsAvailableCommand() || sub.Name() == "help") && strings.HasPrefix(sub.Name(), begun) {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of := c.Root()
			for _, name := range args {
				i := slices.IndexFunc(of.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name || sub.HasAlias(name) })
				if i < 0 {
					return knownCommand(of, []string{name})
				}
				of = of.Commands()[i]
			}
			of.InitDefaultHelpFlag() // else it is missing among the flags
			return of.Help()
		},
	}
}

// flagError says what is wrong with a flag, and what is meant if that can be guessed.
func flagError(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 { // "atys recrod -a": -a is of no command, as recrod is none
		return knownCommand(c, args)
	}
	hint := fmt.Sprintf("\"%s --help\" lists the flags", c.CommandPath())
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		if near := similarFlags(c, unknown.GetSpecifiedName()); len(near) > 0 {
			hint = didYouMean(near)
		}
	case errors.As(err, &invalid):
		if want := wanted(invalid); want != "" {
			return &usageError{fmt.Errorf("--%s %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)}
		}
	}
	return &usageError{fmt.Errorf("%w (%s)", err, hint)}
}

// wanted says what a flag takes whose value does not parse, where the error of its
// type names a Go function instead.
func wanted(invalid *pflag.InvalidValueError) string {
	kind := invalid.GetFlag().Value.Type()
	var number *strconv.NumError
	if errors.As(invalid, &number) && errors.Is(number.Err, strconv.ErrRange) {
		return "a smaller number"
	}
	switch kind {
	case "int", "int64", "int32":
		return "a whole number"
	case "uint", "uint16", "uint32", "uint64":
		return "a whole number, 0 or more"
	case "intSlice":
		return "whole numbers with commas between them"
	case "float64":
		return "a number"
	case "duration":
		return "a duration, such as 500ms, 30s or 5m"
	case "bool":
		return "true or false"
	case "stringToString":
		return "name=value"
	}
	return ""
}

// similarFlags lists the flags of a command with a name like the one that was typed.
func similarFlags(c *cobra.Command, typed string) (near []string) {
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Deprecated == "" {
			names = append(names, f.Name)
		}
	})
	for _, name := range similar(typed, names) {
		near = append(near, "--"+name)
	}
	return near
}

// similar lists the names that are most like the one that was typed: those that begin with
// it or that it begins with, else those with the fewest different letters, of which at least
// half have to be the same.
func similar(typed string, names []string) (near []string) {
	best := nearby
	for _, name := range names {
		d := distance(typed, name)
		long := min(len(typed), len(name)) > nearby
		switch {
		case long && (strings.HasPrefix(name, typed) || strings.HasPrefix(typed, name)):
			d = 0
		case d > best || 2*d >= min(len(typed), len(name)):
			continue
		}
		if d < best {
			best, near = d, nil
		}
		near = append(near, name)
	}
	slices.SortFunc(near, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return near
}

// distance is how many bytes are inserted, deleted, replaced or swapped with their
// neighbour from one word to another (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
