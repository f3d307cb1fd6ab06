package external

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// folder is one of ours inside the file system a target sees, which may be a
// container's. All is done with the target's own rights to files and within
// its root, so that no link it lays leads us to write elsewhere; and through
// descriptors, so that it can be removed after the target has gone.
type folder struct {
	root     *os.Root
	name     string // below the root
	uid, gid int
	removed  bool
}

// places are where a folder may be made, of a target's file system.
var places = []string{"tmp", "var/tmp", "dev/shm", "run"}

// makeFolder makes a folder that the target can write, and load code from, with
// a copy of a file of ours in it where one is named.
func makeFolder(fsys proc.FS, pid int, file string) (*folder, error) {
	uid, gid, err := owner(fsys, pid)
	if err != nil {
		return nil, err
	}
	if self := os.Geteuid(); self != 0 && self != uid {
		return nil, fmt.Errorf("process %d is of user %d, this is user %d: run as root, or as that user", pid, uid, self)
	}
	root, err := os.OpenRoot(filepath.Join(procRoot(fsys), strconv.Itoa(pid), "root"))
	if err != nil {
		return nil, fmt.Errorf("open the files of process %d: %w (run as root, or as its user)", pid, err)
	}
	f := &folder{root: root, uid: uid, gid: gid}
	var failed []error
	for _, place := range places {
		f.name = path.Join(place, "atys-"+rand.Text()[:12])
		err := f.as(func() error { return f.make(place, f.name) })
		if err == nil && file == "" {
			return f, nil
		}
		if err == nil {
			if err = f.copyIn(file, filepath.Base(file)); err == nil {
				return f, nil
			}
			err = errors.Join(err, f.as(func() error { return root.RemoveAll(f.name) }))
		}
		failed = append(failed, err)
	}
	root.Close()
	return nil, fmt.Errorf("no folder in process %d's file system takes a library: %w", pid, errors.Join(failed...))
}

// make makes a folder, unless what is there cannot be run.
func (f *folder) make(place, name string) error {
	dir, err := f.root.Open(place)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("/%s: %w", place, err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("/%s is mounted noexec", place)
	}
	return f.root.Mkdir(name, 0o700)
}

// as calls do with the target's rights to files.
func (f *folder) as(do func() error) error {
	if os.Geteuid() != 0 || f.uid == 0 && f.gid == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsgidRetGid(f.gid); err != nil {
		return fmt.Errorf("act as group %d: %w", f.gid, err)
	}
	defer unix.SetfsgidRetGid(os.Getegid())
	if _, err := unix.SetfsuidRetUid(f.uid); err != nil {
		return fmt.Errorf("act as user %d: %w", f.uid, err)
	}
	defer unix.SetfsuidRetUid(os.Geteuid())
	if now, _ := unix.SetfsuidRetUid(-1); now != f.uid {
		return fmt.Errorf("act as user %d: refused", f.uid)
	}
	return do()
}

// path is where the target finds a file of the folder.
func (f *folder) path(file string) string { return "/" + path.Join(f.name, file) }

// copyIn copies a file of ours into the folder.
func (f *folder) copyIn(from, as string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return f.as(func() error {
		to, err := f.root.OpenFile(path.Join(f.name, as), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, source)
		return errors.Join(err, to.Close())
	})
}

// read hands over a file that the target has written, for as long as it is one.
func (f *folder) read(file string, take func(io.Reader) error) error {
	return f.as(func() error {
		name := path.Join(f.name, file)
		if info, err := f.root.Lstat(name); err != nil {
			return err
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", f.path(file))
		}
		from, err := f.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer from.Close()
		return take(&bounded{from: from, left: maxOutput})
	})
}

// full tells whether the folder's file system has no room left.
func (f *folder) full() bool {
	full := false
	_ = f.as(func() error {
		dir, err := f.root.Open(f.name)
		if err != nil {
			return err
		}
		defer dir.Close()
		var st unix.Statfs_t
		err = unix.Fstatfs(int(dir.Fd()), &st)
		full = err == nil && st.Blocks > 0 && st.Bavail == 0
		return err
	})
	return full
}

// discard removes one file.
func (f *folder) discard(file string) error {
	err := f.as(func() error { return f.root.Remove(path.Join(f.name, file)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// remove removes the folder and all that is in it.
func (f *folder) remove() error {
	if f.removed {
		return nil
	}
	f.removed = true
	err := f.as(func() error { return f.root.RemoveAll(f.name) })
	return errors.Join(err, f.root.Close())
}

// owner returns the user and group a process has towards files.
func owner(fsys proc.FS, pid int) (uid, gid int, err error) {
	data, err := os.ReadFile(filepath.Join(procRoot(fsys), strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	uid, gid = -1, -1
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		switch fields[0] { // real, effective, saved, of file systems
		case "Uid:":
			uid, err = strconv.Atoi(fields[4])
		case "Gid:":
			gid, err = strconv.Atoi(fields[4])
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
		}
	}
	if uid < 0 || gid < 0 {
		return 0, 0, fmt.Errorf("read process %d: no user in its status", pid)
	}
	return uid, gid, nil
}

func procRoot(fsys proc.FS) string {
	if fsys.Root == "" {
		return "/proc"
	}
	return fsys.Root
}

// hostThreads turns numbers of threads as their PID namespace counts them into
// ours. Threads that have gone are 0: their number there may be another's here.
func hostThreads(fsys proc.FS) func(pid, tid int) int {
	known := map[int]map[int]int{}
	return func(pid, tid int) int {
		threads, ok := known[pid]
		if !ok {
			threads = nestedThreads(fsys, pid)
			known[pid] = threads
		}
		if threads == nil {
			return tid
		}
		return threads[tid]
	}
}

// nestedThreads maps the threads of a process in a PID namespace below ours;
// nil for one in ours.
func nestedThreads(fsys proc.FS, pid int) map[int]int {
	ours, err := fsys.Namespace(os.Getpid(), "pid")
	theirs, err2 := fsys.Namespace(pid, "pid")
	if err != nil || err2 != nil || ours == theirs {
		return nil
	}
	threads := map[int]int{}
	tids, err := fsys.ThreadIDs(pid)
	if err != nil {
		return threads
	}
	for _, tid := range tids {
		if s, err := fsys.Status(tid); err == nil && len(s.NSPID) > 0 {
			threads[s.NSPID[len(s.NSPID)-1]] = tid
		}
	}
	return threads
}
