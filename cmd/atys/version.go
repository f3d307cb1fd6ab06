package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// stamp is "VERSION COMMIT DATE clean|modified", which the Makefile has the linker set:
// go itself says so only of what it builds in a clone, and not in a worktree of one.
var stamp string

// built is what a program was built from, as far as its build told.
type built struct {
	Version  string `json:"version"`          // of the module; devel where no release was built
	Commit   string `json:"commit,omitempty"` // whole
	Date     string `json:"date,omitempty"`   // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

const devel = "devel" // what is no release

func build() built {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info, stamp)
}

func buildOf(info *debug.BuildInfo, stamp string) built {
	b := built{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if f := strings.Fields(stamp); len(f) == 4 && b.Commit == "" {
		b.Version, b.Commit, b.Date, b.Modified = f[0], f[1], f[2], f[3] == "modified"
	}
	if b.Version == "(devel)" {
		b.Version = ""
	}
	b.Version = cmp.Or(b.Version, devel)
	return b
}

// short is the commit as people write it.
func (b built) short() string { return b.Commit[:min(len(b.Commit), 12)] }

// String is all of it, a line each.
func (b built) String() string {
	var text strings.Builder
	line := func(name, value string) { fmt.Fprintf(&text, "%-8s %s\n", name, cmp.Or(value, "unknown")) }
	modified := ""
	if b.Modified {
		modified = " (modified)"
	}
	line("atys", b.Version)
	line("commit", b.Commit+modified)
	line("date", b.Date)
	line("go", b.Go)
	return text.String()
}

// version is what this program was built from, in a word or two: for logs, labels
// and other machines.
func version() string {
	b := build()
	text := b.Version
	if b.Commit != "" && !strings.Contains(b.Version, b.short()) { // that of what was released between two releases has it
		text += " " + b.short()
	}
	if b.Modified && !strings.HasSuffix(b.Version, "+dirty") {
		text += " modified"
	}
	return text
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print which atys this is: version, commit, date",
		Args:    noArgs,
		Example: "  atys version\n  atys version --json",
		RunE: func(*cobra.Command, []string) error {
			b := build()
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(b)
			}
			_, err := fmt.Print(b)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
