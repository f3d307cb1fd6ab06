package format

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file such that its path always holds either what was there
// before or all of what write writes: into a new file of the same folder,
// which then takes the name. On any error, a full disk say, nothing is left
// behind. What is no regular file (a device, a pipe) is written to directly.
func Replace(path string, write func(io.Writer) error) error {
	if err := replace(path, write); err != nil {
		return fmt.Errorf("write %q: %w", path, cause(err))
	}
	return nil
}

func replace(path string, write func(io.Writer) error) (err error) {
	mode := fs.FileMode(0)
	// A link stays one: what it points to is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return errors.New("it is a folder")
		}
		if !info.Mode().IsRegular() {
			return writeDirectly(path, write)
		}
		mode = info.Mode().Perm()
	}
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	out := bufio.NewWriterSize(f, 64<<10)
	if err = write(out); err != nil {
		return err
	}
	if err = out.Flush(); err != nil {
		return err
	}
	if mode != 0 {
		if err = f.Chmod(mode); err != nil {
			return err
		}
	}
	// Some file systems tell only now that they are full.
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// createBeside makes a file in the same folder under a name of its own. Not
// os.CreateTemp: its files are private, and the user's umask should decide.
func createBeside(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	const most = 100
	for i := range most {
		name := filepath.Join(dir, fmt.Sprintf(".%s.%d.%d.part", shorten(base), os.Getpid(), i))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("%d unfinished files are in its folder already", most)
}

// shorten keeps the temporary name within the 255 bytes a name may have.
func shorten(base string) string { return base[:min(len(base), 200)] }

func writeDirectly(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 64<<10)
	if err := write(out); err != nil {
		f.Close()
		return err
	}
	if err := out.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// cause drops the path from an error of package os: the user knows his own
// file, and need not see the temporary one.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
