// Package diskcache keeps answers that took CPU time to find in a directory, so that a restart need not find them again.
//
// An entry is a file of its own:
//
//	 0        8         12     16       20       24       32      64
//	+--------+---------+------+--------+--------+--------+-------+---------+
//	| magic  | version | kind | crc32c | zero   | length | key   | content |
//	+--------+---------+------+--------+--------+--------+-------+---------+
//	                                            |<------ checksummed ----->|
//
// Numbers are little-endian. Version is that of this picture, kind that of what
// the content is. The content begins at a multiple of 64 bytes, so that it can be
// mapped and read as the numbers it holds. A file that is damaged, of another
// version, or not as long as it says is a miss, and the next Put replaces it.
//
// Nobody but us may decide on what is read here: a table of unwinding rows or
// names that somebody else wrote would be used for everybody's programs. The
// directory is therefore opened once, and refused unless it is a real directory
// of the effective user that no one else can write to; so is each file in it.
//
// Several processes may share a directory. Files are replaced atomically and
// never changed, so that nothing has to be locked: a reader keeps what it has
// mapped, whoever evicts or replaces it. Least recently used files are evicted
// once the directory is larger than its limit. Only files with a suffix of ours
// are counted and removed.
package diskcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/atomicfile"
)

const (
	magic      = "atys\x00ans"
	version    = 1
	headerSize = 64
	summed     = 24 // the checksum covers all from here on

	// touchAfter is how old the time of last use may be before it is written
	// again: a start that reads a thousand entries should not write as many inodes.
	touchAfter = time.Minute
	// retryAfter is how long nothing is written after a write has failed.
	retryAfter = time.Minute
)

// DefaultLimit is how much a directory may take unless told otherwise.
const DefaultLimit = 1 << 30

// Kind is what an entry is. Its number changes whenever the meaning of the content does.
type Kind struct {
	Suffix string // of its files' names; one of those that evict knows
	Number uint32
}

// Rows is the kind of unwinding tables.
func Rows() Kind { return Kind{".rows", 1} }

// Names is the kind of tables of functions and lines.
func Names() Kind { return Kind{".names", 3} }

func fileKind() Kind { return Kind{".file", 1} }

// Key tells entries of a kind apart.
type Key [sha256.Size]byte

// KeyOf makes a key of all that an answer depends on.
func KeyOf(parts ...string) (k Key) {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		io.WriteString(h, p)
	}
	h.Sum(k[:0])
	return k
}

func (k Key) name(kind Kind) string { return hex.EncodeToString(k[:20]) + kind.Suffix }

// Stats count what a cache did.
type Stats struct {
	Hits, Misses uint64
	Damaged      uint64 // files that were there but could not be used: damaged, of another version, of somebody else
	Written      uint64
	Failed       uint64 // entries that could not be written
	Evicted      uint64
	Bytes        int64 // of all files of ours, as far as known
}

// Options configure a Cache. The zero value is usable.
type Options struct {
	Limit int64        // in bytes; 0: DefaultLimit
	Log   *slog.Logger // nil: silent
	Now   func() time.Time
}

// Cache is a directory of entries. It is safe for concurrent use. A nil *Cache
// keeps nothing: all look-ups miss.
type Cache struct {
	path  string
	dir   *os.File
	limit int64
	log   *slog.Logger
	now   func() time.Time

	mu       sync.Mutex // guards all below; not held during I/O
	stats    Stats
	unswept  int                   // entries written since the directory was last read
	sweeping bool                  // somebody evicts
	resume   time.Time             // when writes are tried again after one failed
	warned   bool                  // about writes that fail
	contents map[identity]contents // of files, by what is asked of them
}

// Open opens the cache in a directory, which is created if it is missing. The
// error of a directory that must not be used names it, and the way out.
func Open(path string, o Options) (*Cache, error) {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	c := &Cache{path: path, dir: dir, limit: o.Limit, log: o.Log, now: o.Now, contents: map[identity]contents{}}
	c.evict() // a limit that was lowered holds from the start
	return c, nil
}

// OpenIfPossible is Open, but goes on without a cache where there is none to be
// had, and logs why. An empty path is none.
func OpenIfPossible(path string, o Options) *Cache {
	if path == "" {
		return nil
	}
	c, err := Open(path, o)
	if err != nil {
		if o.Log != nil {
			o.Log.Warn("running without a disk cache", "error", err)
		}
		return nil
	}
	return c
}

// Close closes the directory. Entries that are mapped stay so.
func (c *Cache) Close() error {
	if c == nil {
		return nil
	}
	return c.dir.Close()
}

// Path is the directory, "" of a cache that keeps nothing.
func (c *Cache) Path() string {
	if c == nil {
		return ""
	}
	return c.path
}

// Stats returns what happened so far.
func (c *Cache) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Entry is a mapped entry. Its content must not be used after Close.
type Entry struct {
	Content []byte
	mapped  []byte
}

// Close unmaps the entry.
func (e *Entry) Close() {
	if e.mapped != nil {
		_ = unix.Munmap(e.mapped) // it fails only for what is not mapped
		e.mapped, e.Content = nil, nil
	}
}

// Rest releases the memory the content takes until it is read again: it stays in
// the kernel's page cache, which the kernel can shrink.
func (e *Entry) Rest() {
	if e.mapped != nil {
		_ = unix.Madvise(e.mapped, unix.MADV_DONTNEED) // without it the pages stay a while longer
	}
}

// Get maps the entry of a key.
func (c *Cache) Get(kind Kind, key Key) (*Entry, bool) {
	if c == nil {
		return nil, false
	}
	e, err := c.open(kind, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stats.Hits++
		return e, true
	case !errors.Is(err, os.ErrNotExist):
		c.stats.Damaged++
		c.log.Debug("cache entry not used", "name", key.name(kind), "error", err)
	}
	c.stats.Misses++
	return nil, false
}

func (c *Cache) open(kind Kind, key Key) (*Entry, error) {
	fd, err := unix.Openat(int(c.dir.Fd()), key.name(kind), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if err := own(&st, unix.S_IFREG); err != nil {
		return nil, err
	}
	if st.Size < headerSize || st.Size > c.limit {
		return nil, fmt.Errorf("it has %d bytes", st.Size)
	}
	data, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	e := &Entry{Content: data[headerSize:], mapped: data}
	if err := check(data, kind, key); err != nil {
		e.Close()
		return nil, err
	}
	if now := c.now(); now.Sub(time.Unix(st.Mtim.Unix())) > touchAfter {
		at := unix.NsecToTimeval(now.UnixNano())
		_ = unix.Futimes(fd, []unix.Timeval{at, at}) // without it, it is evicted earlier
	}
	return e, nil
}

// check tells whether a file holds the entry that its name promises.
func check(data []byte, kind Kind, key Key) error {
	le := binary.LittleEndian
	switch {
	case string(data[:len(magic)]) != magic:
		return errors.New("not an entry of a cache")
	case le.Uint32(data[8:]) != version || le.Uint32(data[12:]) != kind.Number:
		return fmt.Errorf("it is of version %d.%d, not %d.%d", le.Uint32(data[8:]), le.Uint32(data[12:]), version, kind.Number)
	case le.Uint64(data[24:]) != uint64(len(data)-headerSize):
		return fmt.Errorf("it has %d bytes of %d", len(data)-headerSize, le.Uint64(data[24:]))
	case checksum(data[summed:]) != le.Uint32(data[16:]):
		return errors.New("its checksum is wrong")
	case !bytes.Equal(data[32:headerSize], key[:]):
		return errors.New("it has another key")
	}
	return nil
}

func checksum(parts ...[]byte) (sum uint32) {
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, p := range parts {
		sum = crc32.Update(sum, table, p)
	}
	return sum
}

// Put writes the entry of a key, its content in parts, and evicts what was not
// used for longest if there is too much. The first failure is logged; the next
// writes are skipped for a while, since a disk that is full mostly stays so.
func (c *Cache) Put(kind Kind, key Key, content ...[]byte) error {
	if c == nil {
		return nil
	}
	header := encodeHeader(kind, key, content)
	readers := []io.Reader{bytes.NewReader(header)}
	size := int64(len(header))
	for _, part := range content {
		readers = append(readers, bytes.NewReader(part))
		size += int64(len(part))
	}
	if size > c.limit/2 {
		return nil // it would evict too much else
	}
	c.mu.Lock()
	paused := c.now().Before(c.resume)
	c.mu.Unlock()
	if paused {
		return errPaused
	}
	// By the descriptor: what is at the path today need not be what was checked.
	err := atomicfile.Write(filepath.Join("/proc/self/fd", strconv.Itoa(int(c.dir.Fd())), key.name(kind)), io.MultiReader(readers...))
	c.written(size, err)
	return err
}

var errPaused = errors.New("the cache could not be written to a moment ago")

func encodeHeader(kind Kind, key Key, content [][]byte) []byte {
	le := binary.LittleEndian
	header := make([]byte, headerSize)
	copy(header, magic)
	le.PutUint32(header[8:], version)
	le.PutUint32(header[12:], kind.Number)
	length := 0
	for _, part := range content {
		length += len(part)
	}
	le.PutUint64(header[24:], uint64(length))
	copy(header[32:], key[:])
	le.PutUint32(header[16:], checksum(append([][]byte{header[summed:]}, content...)...))
	return header
}

// written records a write.
func (c *Cache) written(size int64, err error) {
	c.mu.Lock()
	if err != nil {
		c.stats.Failed++
		c.resume = c.now().Add(retryAfter)
		warn := !c.warned
		c.warned = true
		c.mu.Unlock()
		if warn {
			c.log.Warn("cannot write to the cache: the next start has to read files again", "directory", c.path, "error", err)
		}
		return
	}
	c.stats.Written++
	c.stats.Bytes += blocks(size)
	c.unswept++
	due := c.stats.Bytes > c.limit || c.unswept >= sweepEvery
	c.mu.Unlock()
	if due {
		c.evict()
	}
}
