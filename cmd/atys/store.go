package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/store/disk"
)

// storeFlags say which store is meant: one that a server has open, or one that
// nobody has.
type storeFlags struct {
	clientFlags
	data string
}

func (f *storeFlags) add(c *cobra.Command) {
	f.clientFlags.add(c)
	c.Flags().StringVar(&f.data, "data", defaultData(), "directory of a server that has ended, where none is asked")
	_ = c.MarkFlagDirname("data")
}

// asks tells whether a server is asked: one is named, and no directory.
func (f *storeFlags) asks(c *cobra.Command) bool {
	return c.Flags().Changed("server") || os.Getenv(serverVariable) != "" && !c.Flags().Changed("data")
}

func storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "store",
		Short: "Look after the store of a server: count, check, back up, restore",
		Long: `store looks after the directory in which "atys up" keeps windows. A server holds
it for itself: it is asked (--server, as its operator), or has ended (--data).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(statCommand(), checkCommand(), backupCommand(), restoreCommand())
	return c
}

func statCommand() *cobra.Command {
	var f storeFlags
	c := &cobra.Command{Use: "stat", Short: "Count what is kept, and what of the disk it takes", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var all *disk.Statistics
			if f.asks(c) {
				answer, err := f.askStore(c.Context(), server.StatPath)
				if err != nil {
					return err
				}
				defer answer.Close() // it was only read
				if err := json.NewDecoder(answer).Decode(&all); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
			} else if err := readStore(f.data, func(s *disk.Store) (err error) {
				all, err = s.Stat(c.Context())
				return err
			}); err != nil {
				return err
			}
			return writeStat(os.Stdout, all)
		}}
	f.add(c)
	return c
}

func checkCommand() *cobra.Command {
	var f storeFlags
	c := &cobra.Command{Use: "check", Short: "Read all that is kept, and say what is damaged",
		Long: `check reads all that is kept, and says what is not as it was written. It changes
nothing: a server leaves damaged windows out of its answers, says so, and serves
the rest; they are gone with their day, or with a backup that is put in place.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.asks(c) {
				return checked(os.Stdout, func(tell func(string)) error { return f.checkOpen(c.Context(), tell) })
			}
			return readStore(f.data, func(s *disk.Store) error { return checkStore(c.Context(), s, os.Stdout) })
		}}
	f.add(c)
	return c
}

// askStore asks a server about its store. What it gives is to be closed.
func (f *clientFlags) askStore(ctx context.Context, path string) (io.ReadCloser, error) {
	client, address, err := f.client()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w (--server or $%s names another)", address, err, serverVariable)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close() // it was only read
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	var said struct{ Message string } // as those are told who may not
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		text = []byte(said.Message)
	}
	refusal := render.Printable(strings.TrimSpace(string(text)))
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s refuses: %s (this takes an operator of the server's own tenant: --token-file or $%s says who you are)", address, refusal, tokenVariable)
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s is no server of atys, or one of another version", address)
	}
	return nil, fmt.Errorf("%s refuses: %s", address, refusal)
}

// checkOpen has a server check its store.
func (f *clientFlags) checkOpen(ctx context.Context, tell func(problem string)) error {
	answer, err := f.askStore(ctx, server.CheckPath)
	if err != nil {
		return err
	}
	defer answer.Close() // it was only read
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line server.Checked
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		switch {
		case line.Done:
			return nil
		case line.Error != "":
			return fmt.Errorf("the server could not read all: %s", render.Printable(line.Error))
		}
		tell(line.Problem)
	}
	return fmt.Errorf("the server was interrupted, and has not read all: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// storeIn is where a server has its store.
func storeIn(data string) string { return filepath.Join(data, "store") }

// isStore tells whether a directory has the files of one: opening would make it.
func isStore(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	return err == nil && len(names) > 0
}

// readStore opens a store that is there to be read, and closes it. It may be a
// backup's: opened to be written its files would be others than were counted.
func readStore(data string, do func(*disk.Store) error) error {
	return withStore(data, disk.Options{ReadOnly: true}, do)
}

// withStore opens a store that is there, and closes it.
func withStore(data string, o disk.Options, do func(*disk.Store) error) error {
	dir := storeIn(data)
	if !isStore(dir) {
		return fmt.Errorf("there is no store in %s (--data names the directory of a server that has ended, --server one that runs)", dir)
	}
	o.Dir, o.Log = dir, logger(false)
	s, err := disk.Open(o)
	if err != nil {
		return fmt.Errorf("%w (--server asks a server that has it open)", err)
	}
	return errors.Join(do(s), s.Close())
}

func writeStat(w io.Writer, all *disk.Statistics) error {
	fmt.Fprintf(w, "%s of the disk\n", bytesText(int64(all.Bytes)))
	for _, t := range all.Tenants {
		quota := ""
		if t.Quota > 0 {
			quota = fmt.Sprintf(" of %s", bytesText(t.Quota))
		}
		fmt.Fprintf(w, "tenant %s: %s%s, %d series, %d steps to be added up\n", render.Printable(t.Name), bytesText(t.Bytes), quota, t.Series, t.Stale)
		for _, l := range t.Levels {
			dropped := ""
			if !l.Dropped.IsZero() {
				dropped = ", before " + l.Dropped.UTC().Format(time.DateOnly) + " dropped"
			}
			if l.Windows > 0 {
				fmt.Fprintf(w, "  %-14s %9s, %9d windows, from %s to %s%s\n", l.Level, bytesText(l.Bytes), l.Windows, l.First.UTC().Format(time.DateOnly), l.Last.UTC().Format(time.DateOnly), dropped)
			}
		}
		largest := ""
		if t.LargestDictionary != "" {
			largest = ", most of " + render.Printable(t.LargestDictionary)
		}
		fmt.Fprintf(w, "  %-14s %9s, %9d stacks of %d services, %d places%s\n", "stacks", bytesText(t.Stacks), t.Calls, t.Dictionaries, t.Places, largest)
		if t.Recent > 0 {
			fmt.Fprintf(w, "  %-14s %9s, in memory still\n", "of all", bytesText(t.Recent))
		}
	}
	return nil
}

// bytesText writes how many bytes there are, as people say it.
func bytesText(n int64) string {
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
	return checked(w, func(tell func(string)) error { return s.Check(ctx, tell) })
}

// errDamagedStore says that a check has found something.
var errDamagedStore = errors.New("damaged: nothing of it was changed, a server leaves it out of its answers and serves the rest; a backup that was made before has it whole")

// checked writes what a check tells.
func checked(w io.Writer, check func(tell func(problem string)) error) error {
	problems := 0
	err := check(func(problem string) {
		problems++
		fmt.Fprintln(w, render.Printable(problem))
	})
	switch {
	case err != nil:
		return err
	case problems > 0:
		return fmt.Errorf("%d things in the store are %w", problems, errDamagedStore)
	}
	fmt.Fprintln(w, "all that is kept can be read")
	return nil
}
