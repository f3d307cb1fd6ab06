package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// logFlags say what a process that goes on tells of itself, and how.
type logFlags struct {
	format  string
	level   string
	verbose bool
}

// What --log-format and --log-level take.
var (
	logFormats = []string{"text", "json"}
	logLevels  = []string{"debug", "info", "warn", "error"}
)

func (f *logFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.format, "log-format", "", "log format on standard error: "+strings.Join(logFormats, " or ")+" (default: start and end as plain sentences)")
	flags.StringVar(&f.level, "log-level", "warn", "lowest level that is logged: "+strings.Join(logLevels, ", "))
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "verbose output: --log-level debug")
	_ = c.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions(logFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(logLevels, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses what is no format or level.
func (f *logFlags) check() error {
	if f.format != "" && !slices.Contains(logFormats, f.format) {
		return &usageError{fmt.Errorf("--log-format %q: want %s", f.format, strings.Join(logFormats, " or "))}
	}
	if f.level != "" && !slices.Contains(logLevels, f.level) {
		return &usageError{fmt.Errorf("--log-level %q: want %s", f.level, strings.Join(logLevels, ", "))}
	}
	return nil
}

// logger writes as the flags say, which have been checked.
func (f *logFlags) logger(to io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if f.level != "" {
		_ = level.UnmarshalText([]byte(f.level)) // one of logLevels
	}
	if f.verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}

// logger is that of commands that end by themselves.
func logger(verbose bool) *slog.Logger {
	return (&logFlags{verbose: verbose}).logger(os.Stderr)
}

// begun says that a process is at work: to people in words, else in the log.
func (f *logFlags) begun(log *slog.Logger, words string, about ...any) {
	if f.format == "" {
		fmt.Fprintln(os.Stderr, "atys: "+words+"; Ctrl-C ends it")
		return
	}
	log.Info("begun", append(about, "version", version())...)
}

// run runs what goes on until it is told to end, and logs how it ended where
// people are not told by what is printed: then only the status is left to tell.
func (f *logFlags) run(ctx context.Context, do func(context.Context, *slog.Logger) error) error {
	if err := f.check(); err != nil {
		return err
	}
	log := f.logger(os.Stderr)
	if f.format != "" {
		defer context.AfterFunc(ctx, func() { log.Info("ending: what is under way is finished, a second signal ends at once") })()
	}
	err := do(ctx, log)
	var usage *usageError
	switch {
	case f.format == "" || errors.As(err, &usage):
		return err
	case err != nil:
		log.Error("ended", "error", err)
		return exitStatus(exitFailure)
	}
	log.Info("ended")
	return nil
}
