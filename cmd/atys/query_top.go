package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/whose"
	"atys.dev/atys/internal/wire/atysv1"
)

func queryTopCommand() *cobra.Command {
	var f queryFlags
	var code codeFlags
	var rows uint32
	var callers string
	c := &cobra.Command{
		Use:   "top [SELECTOR]",
		Short: "The functions that use most, with intervals: of this selection, and of the service",
		Long: `top lists functions, those first that used most themselves. With --own it lists
the application's own, each with what it called in other code: who is behind what a
library uses. --callers tells who calls one function, and what share of all is
spent in these calls; with --own who of the application does. Forms of -o that are
profiles hold all stacks of the selection, with --own those of the application alone.`,
		Example: `  atys query top '{service="checkout"}' --from -6h
  atys query top '{service="checkout"}' --own
  atys query top '{service="checkout"}' --own --callers java.util.UUID.randomUUID`,
		Args: oneSelector,
		RunE: func(c *cobra.Command, args []string) error {
			rules, parsed, err := code.usersRules()
			if err != nil {
				return err
			}
			if out, err := newAnswerOutput(f.output, f.forms); err == nil && !out.table() {
				if callers != "" {
					return &usageError{fmt.Errorf("--callers is a table: want -o %s", strings.Join(tableForms, " or "))}
				}
				return f.merge(c, args, func(w *profile.Window) *profile.Window { return code.folding(whose.New(parsed).Window(w)) })
			}
			client, address, about, err := f.ask(args)
			if err != nil {
				return err
			}
			asked := &atysv1.TopRequest{Selection: about, Limit: rows, Callers: callers, Fold: code.fold(), Rules: rules}
			top, err := client.Top(c.Context(), asked)
			if err != nil {
				return explain(address, err)
			}
			if err := f.print(top, topRows(top, asked)); err != nil {
				return err
			}
			warnService(os.Stderr, len(top.GetFunctions()), slices.ContainsFunc(top.GetFunctions(), func(f *atysv1.FunctionAmount) bool { return f.GetSelf().GetService() != nil }))
			return warnCoverage(os.Stderr, top.GetCoverage(), about)
		},
	}
	f.addTable(c, profileForms()...)
	code.addFolding(c)
	flags := c.Flags()
	flags.Uint32VarP(&rows, "nodecount", "n", 20, "so many functions; 0: all")
	flags.StringVar(&callers, "callers", "", "of what is spent in the function of this name, and what it calls: who calls it")
	return c
}

func topRows(top *atysv1.TopResponse, asked *atysv1.TopRequest) [][]string {
	self := "SELF"
	switch {
	case asked.GetCallers() != "":
		self = "IN CALLS"
	case asked.GetFold() != "":
		self = "OWN"
	}
	rows := [][]string{{self, "95% OF THIS", "95% OF SERVICE", "TOTAL", "SECONDS", "SAMPLES", "FUNCTION", "FILE"}}
	for _, f := range top.GetFunctions() {
		self := f.GetSelf()
		rows = append(rows, []string{percent(self.GetShare().GetValue()), bounds(self.GetShare()), serviceBounds(self.GetService()), percent(f.GetTotal().GetShare().GetValue()),
			strconv.FormatFloat(self.GetSeconds(), 'f', 3, 64), strconv.FormatInt(self.GetN(), 10), f.GetFunction(), f.GetFile()})
	}
	return rows
}
