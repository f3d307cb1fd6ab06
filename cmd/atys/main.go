// Command atys finds where programs spend their time, in any of them that run on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/render"
)

func main() { os.Exit(run(os.Args[1:])) }

// These trade CPU for memory: tables are built and thrown away, and a profiler's
// memory is felt by whoever shares the machine. A server keeps most of what it has.
const (
	gcPercent       = 50
	serverGCPercent = 40
)

func collectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// run is main without its exit, for tests.
func run(args []string) int {
	collectAt(gcPercent)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		fmt.Fprintf(os.Stderr, "atys: this is %s/%s, and atys runs on linux/amd64 only\n", runtime.GOOS, runtime.GOARCH)
		return exitUsage
	}
	// The first signal ends a recording, which is then written; a second kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	fmt.Fprintln(os.Stderr, "atys: "+legible(err))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// version is what this program was built from, as far as its build told.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return info.Main.Version + " " + s.Value[:min(len(s.Value), 12)]
		}
	}
	return info.Main.Version
}

// legible is an error that may repeat what a file or a process holds, with
// its lines kept and all else that steers a terminal shown as text.
func legible(err error) string {
	lines := strings.Split(strings.ReplaceAll(err.Error(), "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = render.Printable(line)
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Exit codes: stable, for scripts.
const (
	exitFailure = 1
	exitUsage   = 2
)

// exitStatus passes a status on without a message of our own.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a command line that cannot be meant.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "atys",
		Short: "Find where programs spend their time, at almost no cost",
		Long: `atys samples where the threads of this machine are, walks their stacks in the
kernel without help from the programs, and shows what it finds: how much time
went where, and how sure that is.`,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
		DisableFlagsInUseLine:      true,

		Args: knownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w (\"%s --help\" lists the flags)", err, c.CommandPath())}
	})
	root.AddCommand(upCommand(), serverCommand(), agentCommand(), relayCommand(), tokenCommand(), debugCommand())
	root.AddCommand(objectCommands()...)
	root.AddCommand(queryCommand(), storeCommand())
	root.AddCommand(recordCommand())
	root.AddCommand(reportCommand(), flameCommand(), diffCommand(), convertCommand(), pruneCommand())
	root.AddCommand(planCommand(), calibrateCommand())
	root.AddCommand(doctorCommand())
	root.AddCommand(dumpCommand())
	root.AddCommand(topCommand())
	root.AddCommand(targetsCommand())
	root.AddCommand(simulateCommand())
	return root
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
	hint := fmt.Sprintf("\"%s --help\" lists them", c.Name())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "do you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{fmt.Errorf("unknown command %q (%s)", args[0], hint)}
}
