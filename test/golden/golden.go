// Package golden has data that earlier versions of atys have stored and sent, and tests that this one reads and serves all of it.
//
//	make/ -> testdata/VERSION/*.tar.gz   written once, by the version that it names
//	   -> a copy of each -> opened, served, drained, restored, replayed (the tests)
//	   -> testdata/VERSION/*.golden      what it holds; written once too, then only compared
package golden

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The archives of a version.
const (
	Store    = "store"    // the directory of a store
	Backup   = "backup"   // a backup of it, and of its profiles
	Spool    = "spool"    // of an agent, with windows that wait
	Requests = "requests" // as agents and relays have made them; see Exchange
	Profiles = "profiles" // files of "atys record" and "atys convert"
)

// Epoch is when the data of every version begins: three days follow.
func Epoch() time.Time { return time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC) }

// Now is when it is looked at.
func Now() time.Time { return Epoch().Add(3*24*time.Hour + time.Hour) }

// Pack writes a directory as an archive whose bytes depend on its files alone.
func Pack(archive, dir string) (err error) {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600, ModTime: Epoch()}); err != nil {
			return err
		}
		_, err = t.Write(data)
		return err
	})
	return errors.Join(err, t.Close(), zip.Close())
}

// Unpack writes the files of an archive to a directory.
func Unpack(archive, dir string) (err error) {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	zip, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("unpack %q: %w", archive, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for t := tar.NewReader(zip); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack %q: %w", archive, err)
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return fmt.Errorf("unpack %q of %q: %w", h.Name, archive, err)
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o700); err != nil {
			return err
		}
		if err := root.WriteFile(h.Name, data, 0o600); err != nil {
			return err
		}
	}
}
