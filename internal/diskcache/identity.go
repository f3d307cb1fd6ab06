package diskcache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// identity is what tells a file from all others of this machine, and from itself
// before it was changed: nobody can set the time of its last change.
type identity struct {
	device, inode uint64
	changed       int64 // in ns
	size          int64
	owner         uint32
	guarded       bool // nobody but the owner can write to it
}

// Content stands for all that an answer is made from, and for who can change that.
// Files with the same one may have the same answer.
type Content string

var (
	// ErrUnidentified says that no answer may be kept for a file, since what it
	// holds can change without a trace.
	ErrUnidentified = errors.New("the file cannot be identified")
	// ErrChanged says that a file was changed while it was read.
	ErrChanged = errors.New("the file was changed while it was read")
)

// Within a tick of the clock that a file system takes times from, two changes
// leave the same time: a kernel's has 1 to 10 ms, a server's or an old disk
// format's a second or two, which then end in zeros.
const (
	tick       = 100 * time.Millisecond
	coarseTick = 3 * time.Second
)

// settled tells whether another change would be seen by its time.
func (id identity) settled(now time.Time) bool {
	wait := tick
	if id.changed%int64(time.Second) == 0 {
		wait = coarseTick
	}
	return now.UnixNano()-id.changed > int64(wait)
}

// maxContents bounds the contents that are remembered.
const maxContents = 1 << 14

type contents map[string]Content

// identify looks at an open file. A FUSE server is a program of its user, which
// decides on times, owner and content as it likes.
//
// Another goroutine may close the file, and its descriptor's number be another
// file's at once: it is used under the file's own lock.
func identify(f *os.File) (id identity, err error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	conn, err := f.SyscallConn()
	if err == nil {
		controlErr := conn.Control(func(fd uintptr) {
			err = errors.Join(unix.Fstatfs(int(fd), &fs), unix.Fstat(int(fd), &st))
		})
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		return id, fmt.Errorf("identify %q: %w", f.Name(), err)
	}
	if fs.Type == unix.FUSE_SUPER_MAGIC {
		return id, fmt.Errorf("%q is on FUSE: %w", f.Name(), ErrUnidentified)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return id, fmt.Errorf("%q is not a regular file: %w", f.Name(), ErrUnidentified)
	}
	return identity{device: st.Dev, inode: st.Ino, changed: st.Ctim.Nano(), size: st.Size, owner: st.Uid, guarded: st.Mode&0o022 == 0}, nil
}

func (id identity) key(question string) Key {
	return KeyOf("file", question, string(id.bytes()))
}

func (id identity) bytes() []byte {
	var b []byte
	for _, n := range []uint64{id.device, id.inode, uint64(id.changed), uint64(id.size), uint64(id.owner)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// content is the digest of a file together with who can change the file. Somebody
// who can write to a file can have one thing hashed and another one read, and
// change it back: what was made of it is then for files of the same owner alone,
// or for this very file where its owner is not the only one who can.
func (id identity) content(digest [sha256.Size]byte) Content {
	from := binary.LittleEndian.AppendUint32(nil, id.owner)
	if !id.guarded {
		from = id.bytes()
	}
	k := KeyOf("content", string(digest[:]), string(from))
	return Content(hex.EncodeToString(k[:]))
}

// Stamp tells an open file from others of this machine, and from itself before a
// change that was long enough ago to be seen.
func Stamp(f *os.File) (string, error) {
	id, err := identify(f)
	if err != nil {
		return "", err
	}
	if !id.settled(time.Now()) { // the kernel's clock, not one to be injected
		return "", fmt.Errorf("%q: %w", f.Name(), ErrChanged)
	}
	return hex.EncodeToString(id.bytes()), nil
}

// Content tells what an open file holds, as far as a question goes: digest hashes
// all that its answer is made from, unless that was done before and the file has
// not changed since. The digest counts only if the file is the same behind it.
// A nil Cache remembers nothing.
func (c *Cache) Content(f *os.File, question string, digest func() ([sha256.Size]byte, error)) (Content, error) {
	id, err := identify(f)
	if err != nil {
		return "", err
	}
	if known, ok := c.recall(id, question); ok {
		return known, nil
	}
	sum, err := digest()
	if err != nil {
		return "", err
	}
	after, err := identify(f)
	if err != nil {
		return "", err
	}
	if after != id {
		return "", fmt.Errorf("%q: %w", f.Name(), ErrChanged)
	}
	content := id.content(sum)
	c.remember(id, question, content)
	return content, nil
}

// Claim gives the content that a name was claimed for first, and claims it for
// this one if that is none; an empty content claims nothing.
func (c *Cache) Claim(name string, content Content) (first Content) {
	if c == nil {
		return ""
	}
	key := KeyOf("claim", name)
	if e, ok := c.Get(fileKind(), key); ok {
		first = Content(e.Content)
		e.Close()
		return first
	}
	if content != "" {
		_ = c.Put(fileKind(), key, []byte(content)) // Put says so, once
	}
	return content
}

// Unchanged tells whether a file is still what its content was taken of: to be
// asked before an answer is kept that was made after Content.
func (c *Cache) Unchanged(f *os.File, question string, content Content) bool {
	id, err := identify(f)
	if err != nil {
		return false
	}
	known, ok := c.recall(id, question)
	return ok && known == content
}

func (c *Cache) recall(id identity, question string) (Content, bool) {
	if c == nil {
		return "", false
	}
	c.mu.Lock()
	known, ok := c.contents[id][question]
	c.mu.Unlock()
	if ok {
		return known, true
	}
	e, ok := c.Get(fileKind(), id.key(question))
	if !ok {
		return "", false
	}
	known = Content(e.Content)
	e.Close()
	if len(known) != 2*sha256.Size {
		return "", false
	}
	c.store(id, question, known)
	return known, true
}

func (c *Cache) store(id identity, question string, content Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.contents) >= maxContents {
		clear(c.contents) // they are on disk
	}
	if c.contents[id] == nil {
		c.contents[id] = contents{}
	}
	c.contents[id][question] = content
}

func (c *Cache) remember(id identity, question string, content Content) {
	if c == nil || !id.settled(c.now()) {
		return
	}
	c.store(id, question, content)
	_ = c.Put(fileKind(), id.key(question), []byte(content)) // Put says so, once
}
