package diskcache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openDirectory opens a directory that is ours alone, and creates it if it is missing.
func openDirectory(path string) (*os.File, error) {
	path = filepath.Clean(path)
	if err := create(path); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("cache directory %q: it is a link or a file, not a directory: remove it, or name another with XDG_CACHE_HOME", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cache directory %q: %w", path, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = own(&st, unix.S_IFDIR)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cache directory %q: %w: make it yours alone (chown, chmod 700), or name another with XDG_CACHE_HOME", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// create makes a missing directory, unless where it would be is somebody else's:
// they could lead us anywhere.
func create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return nil // openDirectory says what is wrong with it
	}
	above := filepath.Dir(path)
	var st unix.Stat_t
	for ; unix.Stat(above, &st) != nil && above != filepath.Dir(above); above = filepath.Dir(above) {
	}
	others := uint32(0o002)
	if os.Geteuid() == 0 {
		others = 0o022
	}
	open := st.Mode&others != 0 && st.Mode&unix.S_ISVTX == 0
	if open || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("cache directory %q: %q is of user %d, or others may write to it: name another with XDG_CACHE_HOME", path, above, st.Uid)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("cache directory %q: %w", path, err)
	}
	return nil
}

// own tells what keeps a file from being ours alone.
func own(st *unix.Stat_t, kind uint32) error {
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return errors.New("it is of another type")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d, not to %d", st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return fmt.Errorf("others may write to it (mode %#o)", st.Mode&0o7777)
	}
	return nil
}
