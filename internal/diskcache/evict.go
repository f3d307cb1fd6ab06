package diskcache

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sweepEvery is after how many writes the directory is read, although it
	// should not be full: another process may write to it as well.
	sweepEvery = 256
	// roomPart is which part of the limit is made free at once, so that not each
	// write has to read the directory.
	roomPart = 16
	// staleAfter is how old a file must be that a write left half-done.
	staleAfter = time.Hour
	blockSize  = 4096
)

// ours tells files that may be removed here: entries, and what package debugfile
// downloads beside them.
func ours(name string) bool {
	for _, suffix := range []string{".rows", ".names", ".file", ".debug", ".executable", ".missing"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// halfDone tells files of atomicfile that a crash left.
func halfDone(name string) bool { return strings.HasPrefix(name, ".new-") }

// blocks is what a file takes on disk.
func blocks(size int64) int64 { return (size + blockSize - 1) / blockSize * blockSize }

type kept struct {
	name string
	size int64
	used int64 // in ns
}

// evict removes what was not used for longest until the limit holds again.
func (c *Cache) evict() {
	c.mu.Lock()
	if c.sweeping {
		c.mu.Unlock()
		return
	}
	c.sweeping = true
	c.mu.Unlock()
	files, total := c.list()
	evicted := uint64(0)
	if total > c.limit {
		slices.SortFunc(files, func(a, b kept) int {
			return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.name, b.name))
		})
		for _, f := range files {
			if total <= c.limit-c.limit/roomPart {
				break
			}
			err := unix.Unlinkat(int(c.dir.Fd()), f.name, 0)
			if err == nil {
				evicted++
			}
			if err == nil || errors.Is(err, unix.ENOENT) { // another process was faster
				total -= f.size
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeping = false
	c.unswept = 0
	c.stats.Bytes = total
	c.stats.Evicted += evicted
}

// list lists the files of ours, and removes those that crashes left.
func (c *Cache) list() (files []kept, total int64) {
	dirfd := int(c.dir.Fd())
	fd, err := unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // a position of its own
	if err != nil {
		return nil, 0
	}
	dir := os.NewFile(uintptr(fd), c.path)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		c.log.Debug("read the cache's directory", "directory", c.path, "error", err)
	}
	for _, name := range names {
		if !ours(name) && !halfDone(name) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		used := st.Mtim.Nano()
		if halfDone(name) {
			if c.now().UnixNano()-used > int64(staleAfter) {
				_ = unix.Unlinkat(dirfd, name, 0) // tried again by the next sweep
			}
			continue
		}
		size := blocks(st.Size)
		files = append(files, kept{name, size, used})
		total += size
	}
	return files, total
}
