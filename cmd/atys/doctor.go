package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/doctor"
	"atys.dev/atys/internal/render"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	var pid int
	var server clientFlags
	c := &cobra.Command{
		Use:   "doctor [-p PID | --server URL]",
		Short: "Check this machine, or a server and its agents, and print what to fix and how",
		Long: `doctor tries what a recording needs, looks at the limits this kernel and these
privileges set, and names for each gap what it costs and the command that fixes
it. With -p it also looks at one process: whether its stacks can be walked and
its functions named. It exits with 0 if recording works, with 1 if not.

With --server it looks at a server instead: whether it can be reached and asked,
its clock, its disk and quotas, which agents are silent, which windows were lost,
refused or are late, what is damaged, and relays. It exits with 0 if the server
can be asked, with 1 if not.`,
		Example: `  atys doctor
  atys doctor --server https://10.0.0.5:4300 --tls-ca ca.pem --token-file reader.token`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("pid") && pid <= 0 {
				return &usageError{fmt.Errorf("-p %d is no process: give the number that ps shows", pid)}
			}
			verdict := [2]string{"recording works here", "recording does not work here: see the lines marked missing"}
			var report doctor.Report
			var err error
			if c.Flags().Changed("server") {
				if pid != 0 {
					return &usageError{errors.New("-p goes without --server: it looks at a process of this machine")}
				}
				verdict = [2]string{"the server can be asked", "the server cannot be asked: see the lines marked missing"}
				report, err = examineServer(c.Context(), server)
			} else {
				endOnSignal(c, nil)
				report = doctor.Evaluate(doctor.Gather(pid))
			}
			if err != nil {
				return err
			}
			if err := printReport(os.Stdout, report, verdict, asJSON); err != nil {
				return err
			}
			if !report.Works {
				return exitStatus(exitFailure)
			}
			return nil
		},
	}
	server.add(c)
	c.Flags().Lookup("server").Usage = "look at the server at this address, such as http://127.0.0.1:4300, and not at this machine"
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().IntVarP(&pid, "pid", "p", 0, "also look at this process")
	return c
}

// examineServer looks at a server as commands do that ask it.
func examineServer(ctx context.Context, f clientFlags) (doctor.Report, error) {
	client, address, err := f.client()
	if err != nil {
		return doctor.Report{}, err
	}
	u, err := f.parse()
	if err != nil {
		return doctor.Report{}, err
	}
	local, err := isLocal(net.JoinHostPort(u.Hostname(), "0"))
	if err != nil {
		return doctor.Report{}, err
	}
	return doctor.EvaluateServer(doctor.GatherServer(ctx, client, address, local)), nil
}

// printReport prints what was found, and the verdict: the first if all is well.
func printReport(w io.Writer, r doctor.Report, verdict [2]string, asJSON bool) error {
	if asJSON {
		return printLegibleJSON(w, r)
	}
	group, mended := "", map[string]string{} // which check has shown a command first
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
			mend := render.Printable(c.Mend)
			if first, ok := mended[c.Mend]; ok && len(c.Mend) > 2*len(first) {
				mend = "the same command as for " + first
			} else if !ok {
				mended[c.Mend] = c.Name
			}
			fmt.Fprintf(w, "  %-8s fix: %s\n", "", mend)
		}
	}
	said := verdict[0]
	if !r.Works {
		said = verdict[1]
	}
	_, err := fmt.Fprintf(w, "\n%s\n", said)
	return err
}
