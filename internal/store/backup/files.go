package backup

import (
	"archive/tar"
	"bytes"
	"context"
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
)

// Source is where what is to be backed up lies: a store that nobody changes, and
// profiles, which change by being replaced; "": there are none.
type Source struct {
	Store, Profiles string
	Made            time.Time
}

// each gives the files of a source, by their names in a backup, until the context ends.
func (s Source) each(ctx context.Context, give func(name string, f *os.File, size int64) error) error {
	err := eachIn(ctx, s.Store, Store, give)
	if err != nil || s.Profiles == "" {
		return err
	}
	tenants, err := os.ReadDir(s.Profiles)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if tenant.IsDir() {
			if err := eachIn(ctx, filepath.Join(s.Profiles, tenant.Name()), path.Join(Profiles, tenant.Name()), give); err != nil {
				return err
			}
		}
	}
	return nil
}

func eachIn(ctx context.Context, dir, as string, give func(name string, f *os.File, size int64) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(as, entry.Name())
		if !entry.Type().IsRegular() || entry.Name() == "LOCK" || checkName(name) != nil { // of who has it open, or half written
			continue
		}
		f, err := os.Open(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) && as != Store { // it was deleted meanwhile
			continue
		}
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			err = give(name, f, info.Size())
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Write writes a backup as a tar. Where it fails, or the context ends, the tar lacks
// its end.
func Write(ctx context.Context, w io.Writer, s Source) error {
	t := tar.NewWriter(w)
	c := &Contents{Format: format, Made: s.Made.UTC(), Files: map[string]int64{}}
	header := func(name string, size int64) error {
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: c.Made, Format: tar.FormatPAX})
	}
	err := s.each(ctx, func(name string, f *os.File, size int64) error {
		c.Files[name] = size
		if err := header(name, size); err != nil {
			return err
		}
		_, err := io.CopyN(t, f, size)
		return err
	})
	if err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := header(contentsFile, int64(len(data))); err != nil {
		return err
	}
	if _, err := t.Write(data); err != nil {
		return err
	}
	return t.Close()
}

// Unpack writes the files of a tar to a directory that is empty. It is a backup
// once Finish has been called with what this gives.
func Unpack(r io.Reader, dir string) (*Contents, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // it was only written through
	t, got := tar.NewReader(r), map[string]int64{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the backup ends before it is whole: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, fmt.Errorf("read the backup: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%q in the backup is no file", h.Name)
		}
		if h.Name == contentsFile {
			return last(r, t, got)
		}
		if err := checkName(h.Name); err != nil {
			return nil, err
		}
		if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
			return nil, err
		}
		if err := writeFile(root, h.Name, t, h.Size); err != nil {
			return nil, fmt.Errorf("unpack the backup: %w", err)
		}
		got[h.Name] = h.Size
	}
}

// last reads what comes last, and holds what came before against it.
func last(r io.Reader, t *tar.Reader, got map[string]int64) (*Contents, error) {
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(t, mostContents)); err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	c, err := parse(data.Bytes())
	if err != nil {
		return nil, err
	}
	for name, size := range c.Files {
		if n, ok := got[name]; !ok || n != size {
			return nil, fmt.Errorf("%s in the backup has %d bytes of %d", name, n, size)
		}
	}
	if len(got) != len(c.Files) {
		return nil, fmt.Errorf("the backup has %d files, and names %d", len(got), len(c.Files))
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the backup goes on behind its end: %w", err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // who sends it may find out only now that it failed
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	return c, nil
}

// Copy copies files to a directory that is empty; those of the store are there
// already if stored. It is a backup once Finish has been called. When the context
// ends, so does the copy, within a file too.
func Copy(ctx context.Context, dir string, s Source, stored bool) (*Contents, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // it was only written through
	c := &Contents{Format: format, Made: s.Made.UTC(), Files: map[string]int64{}}
	err = s.each(ctx, func(name string, f *os.File, size int64) error {
		c.Files[name] = size
		if stored && strings.HasPrefix(name, Store+"/") {
			return nil
		}
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		return writeFile(root, name, interruptible{ctx, f}, size)
	})
	if err == nil {
		err = syncDirs(dir, c)
	}
	return c, err
}

// interruptible reads until its context ends.
type interruptible struct {
	ctx  context.Context
	from io.Reader
}

func (r interruptible) Read(to []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(to)
}
