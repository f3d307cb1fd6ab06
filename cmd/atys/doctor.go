package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/doctor"
	"atys.dev/atys/internal/render"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	var pid int
	c := &cobra.Command{
		Use:   "doctor [-p PID]",
		Short: "Say what can be recorded here, what not, and which command mends it",
		Long: `doctor tries what a recording needs, looks at the limits this kernel and these
privileges set, and names for each gap what it costs and the command that mends
it. With -p it also looks at one process: whether its stacks can be walked and
its functions named. It exits with 0 if recording works, with 1 if not.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("pid") && pid <= 0 {
				return &usageError{fmt.Errorf("-p %d is no process: give the number that ps shows", pid)}
			}
			report := doctor.Evaluate(doctor.Gather(pid))
			if err := printReport(os.Stdout, report, asJSON); err != nil {
				return err
			}
			if !report.Works {
				return exitStatus(exitFailure)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().IntVarP(&pid, "pid", "p", 0, "also look at this process")
	return c
}

func printReport(w io.Writer, r doctor.Report, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	}
	group := ""
	for _, c := range r.Checks {
		if c.Group != group {
			if group != "" {
				fmt.Fprintln(w)
			}
			group = c.Group
			fmt.Fprintln(w, render.Printable(group))
		}
		fmt.Fprintf(w, "  %-8s %-30s %s\n", c.State, c.Name, render.Printable(c.Found))
		if c.Cost != "" {
			fmt.Fprintf(w, "  %-8s cost: %s\n", "", render.Printable(c.Cost))
		}
		if c.Mend != "" {
			fmt.Fprintf(w, "  %-8s mend: %s\n", "", render.Printable(c.Mend))
		}
	}
	verdict := "recording works here"
	if !r.Works {
		verdict = "recording does not work here: see the lines marked missing"
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}
