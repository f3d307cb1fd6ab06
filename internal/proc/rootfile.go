package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// RootFile opens a regular file by its path in the mount namespace and below
// the root directory of a process: what the process itself would see there.
// Links lead nowhere else, and links of /proc are not followed.
func (f FS) RootFile(pid int, path string) (*os.File, error) {
	root, err := f.openRoot(pid)
	if err != nil {
		return nil, fmt.Errorf("open %q of process %d: %w", path, pid, err)
	}
	defer unix.Close(root)
	how := unix.OpenHow{Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	file, err := openRegular(root, path, &how, nil)
	if err != nil {
		return nil, fmt.Errorf("open %q of process %d: %w", path, pid, err)
	}
	return file, nil
}
