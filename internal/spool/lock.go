package spool

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another process has the spool open.
var ErrInUse = errors.New("another process uses it")

// lock takes a file's lock, which ends with the process however that ends.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
