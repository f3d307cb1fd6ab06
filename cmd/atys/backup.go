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

	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
)

func backupCommand() *cobra.Command {
	var f storeFlags
	var damaged bool
	c := &cobra.Command{Use: "backup DIR", Short: "Copy what is kept to a directory that is not there yet, and check the copy",
		Long: `backup copies the windows of all tenants with their stacks and names, and the
profiles that they ordered, to a directory that is not there yet, and checks the
copy. All that a server has acknowledged before is in it, once. Not in it are
debug files (what they named is), tokens and certificates.`,
		Args: cobra.ExactArgs(1),
		Example: `  atys store backup /backup/atys-2026-11-23 --server http://127.0.0.1:4300
  atys store backup /backup/atys-2026-11-23 --data /var/lib/atys`,
		RunE: func(c *cobra.Command, args []string) error {
			fetch := func(dir string) (*backup.Contents, error) { return backUpClosed(f.data, dir) }
			if f.asks(c) {
				fetch = func(dir string) (*backup.Contents, error) { return f.backUpOpen(c.Context(), dir) }
			}
			return backUp(c.Context(), args[0], damaged, fetch)
		}}
	f.add(c)
	c.Flags().BoolVar(&damaged, "damaged", false, "keep the copy also if something in it is damaged")
	return c
}

// backUp has a backup made under another name, checks it, and gives it its own:
// what is interrupted is removed, and has not the name.
func backUp(ctx context.Context, dir string, damaged bool, fetch func(dir string) (*backup.Contents, error)) (err error) {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("back up to %s: it is there already", dir)
	}
	own, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".unfinished-")
	if err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("there is no backup: %w", errors.Join(err, os.RemoveAll(own)))
		}
	}()
	contents, err := fetch(own)
	if err != nil {
		return err
	}
	if err := checkCopy(ctx, filepath.Join(own, backup.Store), damaged); err != nil {
		return err
	}
	if err := backup.Finish(own, contents); err != nil {
		return err
	}
	if err := os.Rename(own, dir); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "atys: %s has %d files, %s\n", dir, len(contents.Files), bytesText(contents.Bytes()))
	return nil
}

// backUpOpen has a server send its backup.
func (f *clientFlags) backUpOpen(ctx context.Context, dir string) (*backup.Contents, error) {
	answer, err := f.askStore(ctx, server.BackupPath)
	if err != nil {
		return nil, err
	}
	defer answer.Close() // it was only read
	return backup.Unpack(answer, dir)
}

// backUpClosed copies what nobody has open. On the same disk it shares files.
func backUpClosed(data, dir string) (contents *backup.Contents, err error) {
	err = withStore(data, disk.Options{}, func(s *disk.Store) (err error) {
		if err = s.Backup(filepath.Join(dir, backup.Store)); err != nil {
			return err
		}
		contents, err = backup.Copy(dir, backup.Source{Store: filepath.Join(dir, backup.Store), Profiles: filepath.Join(data, profilesDir), Made: time.Now()}, true)
		return err
	})
	return contents, err
}

// checkCopy reads all of a store that nobody has open, and changes nothing of it.
func checkCopy(ctx context.Context, dir string, damaged bool) error {
	s, err := disk.Open(disk.Options{Dir: dir, ReadOnly: true, Log: logger(false)})
	if err != nil {
		return err
	}
	var said strings.Builder
	err = errors.Join(checkStore(ctx, s, &said), s.Close())
	if err == nil {
		return nil
	}
	_, _ = io.WriteString(os.Stderr, said.String())
	if damaged && errors.Is(err, errDamagedStore) {
		fmt.Fprintf(os.Stderr, "atys: %v\n", err)
		return nil
	}
	if errors.Is(err, errDamagedStore) {
		err = fmt.Errorf("%w (--damaged takes it all the same)", err)
	}
	return err
}

func restoreCommand() *cobra.Command {
	var data string
	var damaged bool
	c := &cobra.Command{Use: "restore DIR", Short: "Put a backup where no store is yet, once it has been checked", Args: cobra.ExactArgs(1),
		Example: "  atys store restore /backup/atys-2026-11-23 --data /srv/atys",
		RunE: func(c *cobra.Command, args []string) error {
			return restoreStore(c.Context(), args[0], data, damaged)
		}}
	c.Flags().StringVar(&data, "data", defaultData(), "directory that a server is to keep profiles in")
	c.Flags().BoolVar(&damaged, "damaged", false, "put it there also if something in it is damaged")
	_ = c.MarkFlagDirname("data")
	return c
}

// restoreStore copies a backup beside where it is to be, checks the copy, and
// puts it there.
func restoreStore(ctx context.Context, from, data string, damaged bool) error {
	for _, name := range []string{storeIn(data), filepath.Join(data, profilesDir)} {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("restore to %s: there is something already; move it away first", name)
		}
	}
	contents, err := backup.Read(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	own, err := os.MkdirTemp(data, "restoring-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own) // what is to stay has been moved away
	source := backup.Source{Store: filepath.Join(from, backup.Store), Profiles: filepath.Join(from, backup.Profiles), Made: contents.Made}
	if _, err := backup.Copy(own, source, false); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if err := checkCopy(ctx, filepath.Join(own, backup.Store), damaged); err != nil {
		return fmt.Errorf("the backup is not restored: %w", err)
	}
	profiles := filepath.Join(own, backup.Profiles)
	if _, err := os.Stat(profiles); err == nil {
		if err := os.Rename(profiles, filepath.Join(data, profilesDir)); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(own, backup.Store), storeIn(data))
}
