package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/store/disk"
)

func storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "store",
		Short: "Look after the store of a server: count, check, back up, restore",
		Long: `store looks after the directory in which "atys up" keeps windows. A server holds
it for itself: end the server first.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var data string
	c.PersistentFlags().StringVar(&data, "data", defaultData(), "directory that the server keeps profiles in")
	_ = c.MarkPersistentFlagDirname("data")
	c.AddCommand(
		&cobra.Command{Use: "stat", Short: "Count what is kept, and what of the disk it takes", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return withStore(data, func(s *disk.Store) error { return statStore(c.Context(), s, os.Stdout) })
			}},
		&cobra.Command{Use: "check", Short: "Read all that is kept, and say what is damaged", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return withStore(data, func(s *disk.Store) error { return checkStore(c.Context(), s, os.Stdout) })
			}},
		&cobra.Command{Use: "backup DIR", Short: "Copy what is kept to a directory that is not there yet", Args: cobra.ExactArgs(1),
			Example: "  atys store backup /backup/atys-2026-11-23",
			RunE: func(_ *cobra.Command, args []string) error {
				return withStore(data, func(s *disk.Store) error {
					if err := s.Backup(args[0]); err != nil {
						return err
					}
					return os.Chmod(args[0], 0o700) // as the store is
				})
			}},
		&cobra.Command{Use: "restore DIR", Short: "Put a backup where no store is yet, once it has been checked", Args: cobra.ExactArgs(1),
			Example: "  atys store restore /backup/atys-2026-11-23",
			RunE:    func(c *cobra.Command, args []string) error { return restoreStore(c.Context(), args[0], data) }},
	)
	return c
}

// storeIn is where a server has its store.
func storeIn(data string) string { return filepath.Join(data, "store") }

// isStore tells whether a directory has the files of one: opening would make it.
func isStore(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	return err == nil && len(names) > 0
}

// withStore opens a store that is there, and closes it.
func withStore(data string, do func(*disk.Store) error) error {
	dir := storeIn(data)
	if !isStore(dir) {
		return fmt.Errorf("there is no store in %s (--data names the server's directory)", dir)
	}
	s, err := disk.Open(disk.Options{Dir: dir, Log: logger(false)})
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

func statStore(ctx context.Context, s *disk.Store, w io.Writer) error {
	all, err := s.Stat(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s of the disk\n", bytesText(all.Bytes))
	for _, t := range all.Tenants {
		fmt.Fprintf(w, "tenant %s: %d series, %d places, %d stacks of %d services in %s", render.Printable(t.Name), t.Series, t.Places, t.Calls, t.Dictionaries, bytesText(uint64(t.Stacks)))
		if t.LargestDictionary != "" {
			fmt.Fprintf(w, ", most of %s", render.Printable(t.LargestDictionary))
		}
		fmt.Fprintf(w, "; %d steps to be added up\n", t.Stale)
		for _, l := range t.Levels {
			if l.Windows == 0 {
				continue
			}
			fmt.Fprintf(w, "  %-14s %9d windows, %9s, from %s to %s\n", l.Level, l.Windows, bytesText(uint64(l.Bytes)), l.First.Format(time.DateOnly), l.Last.Format(time.DateOnly))
		}
	}
	return nil
}

// bytesText writes how many bytes there are, as people say it.
func bytesText(n uint64) string {
	units, value := []string{"B", "kB", "MB", "GB", "TB"}, float64(n)
	for value >= 1000 && len(units) > 1 {
		value /= 1000
		units = units[1:]
	}
	text := fmt.Sprintf("%.1f", value)
	if units[0] == "B" || value >= 100 {
		text = fmt.Sprintf("%.0f", value)
	}
	return text + " " + units[0]
}

func checkStore(ctx context.Context, s *disk.Store, w io.Writer) error {
	problems, err := s.Check(ctx)
	for _, p := range problems {
		fmt.Fprintln(w, render.Printable(p))
	}
	switch {
	case err != nil:
		return err
	case len(problems) > 0:
		return fmt.Errorf("%d things in the store are damaged: a server serves the rest, a backup has what it had", len(problems))
	}
	fmt.Fprintln(w, "all that is kept can be read")
	return nil
}

// restoreStore copies a backup beside where it is to be, checks the copy, and
// puts it there.
func restoreStore(ctx context.Context, from, data string) error {
	to := storeIn(data)
	if _, err := os.Stat(to); err == nil {
		return fmt.Errorf("restore to %s: there is a store already; move it away first", to)
	}
	if !isStore(from) {
		return fmt.Errorf("%s is no backup of a store", from)
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	copied, err := os.MkdirTemp(data, "restoring-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(copied) // it is not there any more if all went well
	if err := os.CopyFS(copied, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	s, err := disk.Open(disk.Options{Dir: copied, Log: logger(false)})
	if err != nil {
		return err
	}
	var said strings.Builder
	if err := errors.Join(checkStore(ctx, s, &said), s.Close()); err != nil {
		return fmt.Errorf("the backup is not restored: %s%w", said.String(), err)
	}
	return os.Rename(copied, to)
}
