// Package backup is a server's store, and what it was told to record, as a directory that can be put in place, or sent as a tar.
//
//	store/...            the files of a store that nobody has open
//	profiles/TENANT/...  what tenants ordered
//	backup.json          what this is, and how long each file is: written last
//
// Without backup.json, or with a file that is not as long as it says, a directory
// is no backup. In a tar it comes last too: what ends before it was interrupted.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"atys.dev/atys/internal/atomicfile"
)

// The names in a backup.
const (
	Store    = "store"
	Profiles = "profiles"

	contentsFile = "backup.json"
	format       = 1
	mostContents = 64 << 20 // bytes of backup.json
)

// Contents are what backup.json says.
type Contents struct {
	Format int              `json:"format"`
	Made   time.Time        `json:"made"`
	Files  map[string]int64 `json:"files"` // how long each is
}

// Bytes is how much there is of all files.
func (c *Contents) Bytes() (sum int64) {
	for _, n := range c.Files {
		sum += n
	}
	return sum
}

// Finish has a directory be a backup: from then on it passes as one, also after a
// crash.
func Finish(dir string, c *Contents) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // it was only written through
	if err := syncDirs(dir, c); err != nil {
		return err
	}
	if err := writeFile(root, contentsFile, strings.NewReader(string(data)), int64(len(data))); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}

// Read gives the contents of a backup, if its files are there and as long as they
// were.
func Read(dir string) (*Contents, error) {
	data, err := os.ReadFile(filepath.Join(dir, contentsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no backup, or one that was interrupted: it has no %s", dir, contentsFile)
	}
	if err != nil {
		return nil, err
	}
	c, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no backup: %w", dir, err)
	}
	for name, size := range c.Files {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("the backup is damaged: %w", err)
		}
		if !info.Mode().IsRegular() || info.Size() != size {
			return nil, fmt.Errorf("the backup is damaged: %s has %d bytes of %d", name, info.Size(), size)
		}
	}
	return c, nil
}

func parse(data []byte) (*Contents, error) {
	var c Contents
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", contentsFile, err)
	}
	if c.Format != format {
		return nil, fmt.Errorf("it is of format %d, and this atys reads %d: use the atys that made it", c.Format, format)
	}
	for name := range c.Files {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

// checkName refuses names that a backup does not have: whoever sends one chooses
// no place for its files.
func checkName(name string) error {
	parts := strings.Split(name, "/")
	ok := path.Clean(name) == name && filepath.IsLocal(name) && !strings.ContainsAny(name, "\\\x00")
	switch parts[0] {
	case Store:
		ok = ok && len(parts) == 2
	case Profiles:
		ok = ok && len(parts) == 3
	default:
		ok = false
	}
	for _, part := range parts {
		ok = ok && part != "" && part[0] != '.'
	}
	if !ok {
		return fmt.Errorf("a backup has no file %q", name)
	}
	return nil
}

// writeFile makes a file of so many bytes, which is on disk when it returns.
func writeFile(root *os.Root, name string, from io.Reader, size int64) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(from, size))
	if err == nil && n < size {
		err = fmt.Errorf("%s has %d bytes of %d: %w", name, n, size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDirs flushes the directories of a backup, and the one that it is in, to disk.
func syncDirs(dir string, c *Contents) error {
	dirs := map[string]bool{dir: true, filepath.Dir(filepath.Clean(dir)): true}
	for name := range c.Files {
		for at := path.Dir(name); at != "."; at = path.Dir(at) { // checkName lets no other path in
			dirs[filepath.Join(dir, at)] = true
		}
	}
	for name := range dirs {
		if err := atomicfile.SyncDir(name); err != nil {
			return err
		}
	}
	return nil
}
