package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/store"
)

// Backup makes a copy of the store as it is now, in a directory that must not be
// there yet. On the same disk it shares files with the store, and takes no room
// until these are replaced.
func (s *Store) Backup(dir string) error {
	db, err := s.acquire()
	if err != nil {
		return err
	}
	defer db.release()
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("back up to %q: it is there already", dir)
	}
	if err := db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("back up to %q: %w", dir, err)
	}
	return nil
}

// Snapshot makes a copy of the store as it is now, beside it, where it shares its
// files. All that Put has returned for is in it. done removes it; one that a
// crash has left is removed when the store is opened.
func (s *Store) Snapshot() (dir string, done func() error, err error) {
	if err := s.room(s.options.Reserve); err != nil { // files are shared, logs copied
		return "", nil, err
	}
	own, err := os.MkdirTemp(filepath.Dir(s.options.Dir), filepath.Base(s.options.Dir)+snapshotMark)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	done = func() error { return os.RemoveAll(own) }
	dir = filepath.Join(own, "store")
	if err := s.Backup(dir); err != nil {
		return "", nil, errors.Join(fmt.Errorf("%w: %w", store.ErrFull, err), done())
	}
	return dir, done, nil
}

// snapshotMark is in the names of copies, behind that of the store.
const snapshotMark = ".snapshot-"

// removeSnapshots removes what a crash has left: as long as it is there no file of
// the store is ever given back to the disk. The store is open, by nobody else.
func (s *connection) removeSnapshots() {
	beside := filepath.Dir(s.options.Dir)
	entries, err := os.ReadDir(beside)
	if err != nil {
		s.log.Error("look for snapshots that a crash has left", "error", err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filepath.Base(s.options.Dir)+snapshotMark) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(beside, e.Name())); err != nil {
			s.log.Error("remove a snapshot that a crash has left", "error", err)
		}
	}
}
