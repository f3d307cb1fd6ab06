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
	"sync/atomic"

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
	ctx, signalled, stop := untilSignal()
	defer stop()
	root := rootCommand()
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	said := legible(err)
	interrupted := signalled() != 0 && errors.Is(err, context.Canceled)
	if interrupted { // by whom, the context does not know
		said = strings.TrimSuffix(said, context.Canceled.Error()) + "interrupted"
	}
	fmt.Fprintln(os.Stderr, "atys: "+said)
	var usage *usageError
	switch {
	case interrupted:
		return 128 + int(signalled())
	case startsCommand(c, args):
		return ownFailure(err)
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailure
}

// untilSignal returns a context that the first SIGINT, SIGTERM or SIGHUP ends, so that a
// recording is written; a second signal kills. SIGHUP, which a closed terminal sends, stays
// ignored where nohup has it ignored. signalled returns the signal that came, or 0.
func untilSignal() (ctx context.Context, signalled func() unix.Signal, stop func()) {
	ctx, end := context.WithCancel(context.Background())
	came, first := make(chan os.Signal, 1), new(atomic.Int32)
	ends := []os.Signal{os.Interrupt, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		ends = append(ends, unix.SIGHUP)
	}
	signal.Notify(came, ends...)
	go func() {
		select {
		case s := <-came:
			signal.Stop(came)
			number, _ := s.(unix.Signal) // on Linux all are
			first.Store(int32(number))
			end()
		case <-ctx.Done():
			signal.Stop(came)
		}
	}()
	return ctx, func() unix.Signal { return unix.Signal(first.Load()) }, end
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

// Exit codes: stable, for scripts; docs/guide/recording.md lists them. Where atys
// starts a command its own failures have codes that env, timeout and docker use too.
const (
	exitFailure = 1
	exitUsage   = 2

	exitSelf     = 125 // atys failed, not the command
	exitNotRun   = 126 // the command is there, and cannot be run
	exitNotFound = 127 // there is no such command
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

		DisableFlagsInUseLine: true,

		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },

		Version: build().String(),
	}
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "print which atys this is")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
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
	root.AddCommand(simulateCommand(), versionCommand())
	checkArguments(root)
	return root
}
