package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/atomicfile"
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
			fetch := func(dir string) (*backup.Contents, error) { return backUpClosed(c.Context(), f.data, dir) }
			if f.asks(c) {
				fetch = func(dir string) (*backup.Contents, error) { return f.backUpOpen(c.Context(), dir) }
			}
			return backUp(c.Context(), args[0], damaged, fetch)
		}}
	f.add(c)
	c.Flags().BoolVar(&damaged, "damaged", false, "keep the copy also if something in it is damaged")
	return c
}

// backUp makes a backup under a temporary name, checks it, and renames it: a backup
// that is interrupted is removed, and never has the name.
func backUp(ctx context.Context, dir string, damaged bool, fetch func(dir string) (*backup.Contents, error)) (err error) {
	if dir == "" {
		return &usageError{errors.New("the directory to back up to has no name")}
	}
	dir = filepath.Clean(dir) // shells complete a slash, behind which nothing can be made
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("back up to %s: it exists already; name a new directory", dir)
	}
	above := filepath.Dir(dir)
	if info, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return fmt.Errorf("back up to %s: there is no directory %s: create it first", dir, above)
	}
	own, err := os.MkdirTemp(above, "."+filepath.Base(dir)+".unfinished-")
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
	own = dir // what has its name only until a crash is no backup either
	if err := atomicfile.SyncDir(filepath.Dir(dir)); err != nil {
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
func backUpClosed(ctx context.Context, data, dir string) (contents *backup.Contents, err error) {
	err = withStore(data, disk.Options{}, func(s *disk.Store) (err error) {
		if err = errors.Join(ctx.Err(), s.Backup(filepath.Join(dir, backup.Store))); err != nil {
			return err
		}
		contents, err = backup.Copy(ctx, dir, backup.Source{Store: filepath.Join(dir, backup.Store), Profiles: filepath.Join(data, profilesDir), Made: time.Now()}, true)
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
	if from == "" || data == "" {
		return &usageError{errors.New("name the directory of the backup, and with --data where to restore it")}
	}
	if err := refuseOver(data, from); err != nil {
		return err
	}
	contents, err := backup.Read(from)
	if err != nil {
		return err
	}
	if err := makeDurably(data); err != nil {
		return err
	}
	own, err := os.MkdirTemp(data, "restoring-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own) // what is to stay has been moved away
	source := backup.Source{Store: filepath.Join(from, backup.Store), Profiles: filepath.Join(from, backup.Profiles), Made: contents.Made}
	if _, err := backup.Copy(ctx, own, source, false); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if err := checkCopy(ctx, filepath.Join(own, backup.Store), damaged); err != nil {
		return fmt.Errorf("the backup is not restored: %w", err)
	}
	if err := putInPlace(own, data); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "atys: the backup of %s is restored in %s\n", contents.Made.Format(time.DateTime), data)
	return nil
}

// putInPlace has data be what was copied. The store comes last: where it is, all is.
func putInPlace(own, data string) error {
	to := filepath.Join(data, profilesDir)
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) { // else they are of another try; see refuseOver
		if err := os.Rename(filepath.Join(own, backup.Profiles), to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := atomicfile.SyncDir(data); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(own, backup.Store), storeIn(data)); err != nil {
		return err
	}
	return atomicfile.SyncDir(data)
}

// refuseOver refuses to restore where something is. Profiles that are those of the
// backup are nothing: a machine that crashed may have been about to restore it.
func refuseOver(data, from string) error {
	refused := func(name string) error {
		return fmt.Errorf("restore to %s: there is something already; move it away first", name)
	}
	if _, err := os.Lstat(storeIn(data)); err == nil {
		return refused(storeIn(data))
	}
	there := filepath.Join(data, profilesDir)
	if _, err := os.Lstat(there); err != nil {
		return nil
	}
	have, err := contentsOf(there)
	if err != nil {
		return err
	}
	want, err := contentsOf(filepath.Join(from, backup.Profiles))
	if err != nil || !maps.Equal(have, want) {
		return refused(there)
	}
	return nil
}

// contentsOf reads all files below a directory that may be none, which are small.
func contentsOf(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if name == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		all[strings.TrimPrefix(name, dir)] = string(content)
		return err
	})
	return all, err
}

// makeDurably makes a directory, and those above it, and has their names on disk.
func makeDurably(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	above := filepath.Dir(filepath.Clean(dir))
	if err := makeDurably(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.SyncDir(above)
}
