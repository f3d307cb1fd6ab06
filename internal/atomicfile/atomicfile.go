// Package atomicfile replaces files atomically: a reader sees the whole new file or the old one.
package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write replaces a file, which its owner alone may read, by what it is given. After
// a crash the file may be empty: WriteDurably is for what must not be lost.
func Write(path string, from io.Reader) error { return write(path, from, false) }

// WriteDurably is Write, and returns once all of it, and its name, is on disk.
func WriteDurably(path string, from io.Reader) error {
	if err := write(path, from, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func write(path string, from io.Reader, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}

// SyncDir has the names in a directory be on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
