package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/store"
)

// room refuses to write to a disk with less than some bytes left. A database that
// runs out of it in the middle of a write has to be opened again, or ends the process.
func (s *connection) room(reserve uint64) error {
	free, readOnly, err := free(s.options.Dir)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	if readOnly {
		return fmt.Errorf("%w: the disk of %q is mounted read-only", store.ErrFull, s.options.Dir)
	}
	if free < reserve {
		return fmt.Errorf("%w: %d MB are left on the disk of %q, and %d MB must stay free", store.ErrFull, free>>20, s.options.Dir, reserve>>20)
	}
	return nil
}

// forDrops is which part of the reserve is kept from those who give room back.
const forDrops = 4

// fit refuses commits that there is no room for, and gives the others. What drops
// days makes room, and takes next to none.
func (s *committer) fit(group []*commit) (may []*commit, err error) {
	reserve := s.connection.options.Reserve
	full := s.connection.room(reserve)
	if full == nil {
		return group, nil
	}
	for _, c := range group {
		if c.drop != nil {
			may = append(may, c)
		} else {
			c.failed = full
		}
	}
	if len(may) == 0 {
		return nil, nil
	}
	return may, s.connection.room(reserve / forDrops)
}

// openBytes is what opening a database writes besides what its logs hold.
const openBytes = 4 << 20

// roomToOpen refuses to open a database to be written on a disk that is read-only,
// or has no room for what its logs hold: Pebble writes that out first, and would
// try for ever.
func (s *connection) roomToOpen() error {
	names, err := s.options.fs.List(s.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made
	}
	if err != nil {
		return err
	}
	need := uint64(openBytes)
	for _, name := range names {
		if filepath.Ext(name) != ".log" {
			continue
		}
		info, err := s.options.fs.Stat(filepath.Join(s.options.Dir, name))
		if err != nil {
			return err
		}
		need += uint64(info.Size())
	}
	free, readOnly, err := free(s.options.Dir)
	switch {
	case err != nil:
	case readOnly:
		err = fmt.Errorf("the disk of %q is mounted read-only", s.options.Dir)
	case free < need:
		err = fmt.Errorf("%d MB are left on the disk of %q, and %d MB are needed to open the store: free space, or use a directory on another disk", free>>20, s.options.Dir, need>>20)
	}
	return err
}

// free is how many bytes may still be written to the disk of a directory.
func free(dir string) (bytes uint64, readOnly bool, err error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return 0, false, fmt.Errorf("look at the disk of %q: %w", dir, err)
	}
	return at.Bavail * uint64(at.Bsize), at.Flags&unix.ST_RDONLY != 0, nil
}
