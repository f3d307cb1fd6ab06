package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

const (
	cacheBytes    = 8 << 20 // what is asked for is mostly read once
	blockBytes    = 128 << 10
	memtableBytes = 8 << 20
	// Where files cannot be merged, because one is damaged, windows are kept all
	// the same: Pebble's own limit of 12 would have Put wait for ever.
	unmergedFiles = 1000
)

// connection opens the database, and opens it again after it broke.
type connection struct {
	options Options
	log     *slog.Logger
	cache   *pebble.Cache

	mu      sync.Mutex    // guards all below
	db      *database     // nil: it broke
	retired chan struct{} // closed once the one before is; nil: none is being closed
	looked  time.Time     // whether one that can only be read can be written again
	closed  bool
}

// database is Pebble, open. Who uses it holds it, so that nobody closes it.
type database struct {
	*pebble.DB
	users      sync.WaitGroup
	readOnly   bool
	upgraded   time.Time   // when an earlier version was upgraded; zero: never
	failing    atomic.Bool // what is in memory cannot be written out
	written    int64       // bytes since it was opened; guarded by the store's applying
	unwritable error       // why it is open to be read only, and is opened again once that has passed; nil: it is as it was asked for
}

func (d *database) release() { d.users.Done() }

// broken is what Pebble says when it cannot go on.
type broken struct{ message string }

func (b broken) Error() string { return b.message }

// listener hears what Pebble has to say. Its progress is of no use to users.
type listener struct {
	log      *slog.Logger
	database *database
	flush    error // how the last one ended; guarded by Pebble's own mutex
}

func (l *listener) Infof(string, ...any) {}

func (l *listener) Errorf(format string, args ...any) {
	l.log.Error("the store's database", "error", fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble cannot go on. The two places where it is no end
// are openPebble, and a commit that could not be synced: commitAll opens the database again.
// Elsewhere the process ends, as if it were killed: what was acknowledged is on
// disk.
func (l *listener) Fatalf(format string, args ...any) {
	panic(broken{fmt.Sprintf(format, args...)})
}

// failed is called for what fails behind the back of commits. Pebble tries again
// at once, and for ever.
func (l *listener) failed(err error) {
	l.log.Error("the store's database", "error", err)
	if l.flush != nil && errors.Is(err, l.flush) {
		l.database.failing.Store(true)
	}
	time.Sleep(50 * time.Millisecond) // or it would take a processor
}

func (l *listener) flushed(i pebble.FlushInfo) {
	if i.Done {
		l.flush = i.Err
		l.database.failing.Store(false)
	}
}

// open opens the database. Where nothing can be written it is opened to be read:
// questions are answered, and puts refused, until its disk is as it should be.
func (s *connection) open() (*database, error) {
	d := &database{}
	if !s.options.ReadOnly {
		d.unwritable = s.roomToOpen()
	}
	o := s.pebbleOptions(d)
	var err error
	d.DB, err = openPebble(s.options.Dir, o)
	if errors.Is(err, syscall.EAGAIN) {
		return nil, fmt.Errorf("open store %q: another process has it open: end that first", s.options.Dir)
	}
	if err == nil {
		if err = d.checkVersion(); err != nil {
			err = errors.Join(err, d.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", s.options.Dir, cmp.Or(d.unwritable, err))
	}
	if d.unwritable != nil {
		s.log.Error("nothing can be written to the store: it is open to be read only", "error", d.unwritable)
	}
	return d, nil
}

// openPebble is pebble.Open, of which a disk that fails meanwhile is no end of the
// process: nothing was acknowledged yet.
func openPebble(dir string, o *pebble.Options) (db *pebble.DB, err error) {
	defer caught(&err)
	return pebble.Open(dir, o)
}

// caught makes an error of what the listener throws where a disk fails. It is
// deferred.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case broken:
		*err = r
	default:
		panic(r)
	}
}

func (s *connection) pebbleOptions(d *database) *pebble.Options {
	readOnly := s.options.ReadOnly || d.unwritable != nil
	d.readOnly = readOnly
	l := &listener{log: s.log, database: d}
	files := &sparingFS{FS: s.options.fs}
	c := &charges{account: s.options.Account}
	o := &pebble.Options{
		Cache: s.cache, MemTableSize: memtableBytes, FormatMajorVersion: pebble.FormatNewest, Logger: l, FS: files, ReadOnly: readOnly,
		L0StopWritesThreshold: unmergedFiles,
		EventListener: &pebble.EventListener{
			BackgroundError: l.failed,
			FlushBegin:      func(i pebble.FlushInfo) { c.begin(i.JobID) },
			FlushEnd: func(i pebble.FlushInfo) {
				l.flushed(i)
				c.end(i.JobID)
			},
			CompactionBegin: func(i pebble.CompactionInfo) { c.begin(i.JobID) },
			CompactionEnd:   func(i pebble.CompactionInfo) { c.end(i.JobID) },
			// What cannot be read is found by who reads it: it is no reason to end.
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				if files.learn(i) {
					s.log.Error("a file of the store is damaged", "details", i.String())
				}
			},
		},
	}
	// Columns leave little to compress. Zstd, in Go, takes off no more, wants a
	// history of megabytes for each table that is written, and a decoder for each block.
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	for i := range o.Levels {
		o.Levels[i].BlockSize = cmp.Or(s.options.block, blockBytes)
	}
	if readOnly {
		o.FS = lenientFS{files}
	}
	return o
}

// charges has flushes and compactions of the database charged to the store. Each
// begins and ends in one goroutine, which owns its thread meanwhile.
type charges struct {
	account *cputime.Account

	mu   sync.Mutex // guards all below
	jobs map[int]func()
}

func (c *charges) begin(job int) {
	end := c.account.Begin(cputime.Store)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs = map[int]func(){}
	}
	c.jobs[job] = end
}

func (c *charges) end(job int) {
	c.mu.Lock()
	end := c.jobs[job]
	delete(c.jobs, job)
	c.mu.Unlock()
	if end != nil {
		end()
	}
}

// lenientFS has a disk that is read-only need no lock: nobody writes to it.
type lenientFS struct{ vfs.FS }

// Lock locks a file, if that can be.
func (f lenientFS) Lock(name string) (io.Closer, error) {
	lock, err := f.FS.Lock(name)
	if errors.Is(err, syscall.EROFS) {
		return io.NopCloser(nil), nil
	}
	return lock, err
}

// checkVersion refuses a database that a later version of this package wrote. It marks a
// new database, and one of an earlier version, with this version. Stored windows are not
// rewritten: each begins with its own version.
func (d *database) checkVersion() error {
	kept, closer, err := d.Get(key{spaceVersion})
	switch {
	case pebble.IsCorruptionError(err):
		d.upgraded = time.Now() // as far as is known
		return nil
	case errors.Is(err, pebble.ErrNotFound):
		return d.markVersion()
	case err != nil:
		return err
	}
	theirs := string(kept)
	if err := closer.Close(); err != nil {
		return err
	}
	if theirs == string([]byte{codec.Version}) {
		return d.readUpgraded()
	}
	if len(theirs) == 1 && theirs[0] >= codec.OldestVersion && theirs[0] < codec.Version {
		return d.upgrade()
	}
	return fmt.Errorf("it is of version %x, and this atys reads %x: use the atys that wrote it, or another directory", theirs, codec.Version)
}

// upgrade marks the database, so that earlier versions refuse it from now on. A database
// that is open for reading only is left alone.
func (d *database) upgrade() (err error) {
	d.upgraded = time.Now()
	if d.readOnly {
		return nil
	}
	defer caught(&err)
	b := d.NewBatch()
	if err := errors.Join(b.Set(upgradedKey, key(nil).start(d.upgraded), nil), b.Set(key{spaceVersion}, []byte{codec.Version}, nil)); err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Commit(pebble.Sync)
}

var upgradedKey = key{spaceVersion, 'r'}

// readUpgraded reads when the database was upgraded. If the time is damaged, any window may
// have been stored by an earlier version.
func (d *database) readUpgraded() error {
	kept, closer, err := d.Get(upgradedKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil // it was new in this version
	case isDamage(err):
		d.upgraded = time.Now()
		return nil
	case err != nil:
		return err
	}
	if d.upgraded = time.Now(); len(kept) == 8 {
		d.upgraded = time.Unix(0, int64(binary.BigEndian.Uint64(kept)))
	}
	return closer.Close()
}

// markVersion marks a database that is empty: version 1 had no marks.
func (d *database) markVersion() error {
	it, err := d.NewIter(nil)
	if err != nil {
		return err
	}
	empty := !it.First() && it.Error() == nil
	if err := it.Close(); err != nil && empty {
		return err
	}
	if !empty {
		return fmt.Errorf("it is of version 1, and this atys reads %x: use the atys that wrote it, or another directory", codec.Version)
	}
	return d.Set(key{spaceVersion}, []byte{codec.Version}, pebble.Sync)
}

// retireWait is how long a call waits for one that broke to be closed. It may
// itself be called by who holds that one, so that for ever would be too long.
const retireWait = time.Second

// shut refuses the database to whoever asks from now on; false: it did before.
func (s *connection) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.closed
	s.closed = true
	return !was
}

// close closes the database once nobody uses it.
func (s *connection) close() error {
	defer s.cache.Unref()
	s.mu.Lock()
	retired := s.retired
	s.mu.Unlock()
	if retired != nil {
		<-retired
	}
	if s.db == nil { // it broke, and nobody opens it any more
		return nil
	}
	s.db.users.Wait()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// acquire gives the database, to be released. One that broke is opened again.
func (s *connection) acquire() (*database, error) { return s.hold(false) }

// acquireLast gives it even while the store is being closed: what was taken by
// then is still kept.
func (s *connection) acquireLast() (*database, error) { return s.hold(true) }

func (s *connection) hold(last bool) (*database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reopen()
	if retired := s.retired; retired != nil {
		s.mu.Unlock()
		select {
		case <-retired:
		case <-time.After(retireWait):
		}
		s.mu.Lock()
	}
	if s.closed && !last {
		return nil, store.ErrClosed
	}
	if s.retired != nil {
		return nil, fmt.Errorf("%w: its database is being closed, to be opened again", store.ErrFull)
	}
	if s.db == nil {
		db, err := s.open()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrFull, err)
		}
		s.db = db
	}
	s.db.users.Add(1)
	return s.db, nil
}

// reopenEvery is how often it is looked whether a database that is open to be
// read can be opened to be written.
const reopenEvery = time.Second

// reopen has one that is open to be read only be opened again once its disk can
// be written. The store is locked.
func (s *connection) reopen() {
	d := s.db
	if d == nil || d.unwritable == nil || s.closed || time.Since(s.looked) < reopenEvery {
		return
	}
	s.looked = time.Now()
	if s.roomToOpen() == nil {
		go s.end(d, s.depose())
	}
}

// retire has a database that broke be closed once nobody uses it. It waits for none
// of them: one may itself wait for what it is about to commit.
func (s *connection) retire(d *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	go s.end(d, s.depose())
}

// depose has nobody be given the database any more. What it gives is to be closed
// once it is. The store is locked.
func (s *connection) depose() chan struct{} {
	s.db, s.retired = nil, make(chan struct{})
	return s.retired
}

// end closes a database that nobody is given any more.
func (s *connection) end(d *database, retired chan struct{}) {
	d.users.Wait()
	if err := d.Close(); err != nil {
		s.log.Error("close the store's database, to open it again", "error", err)
	}
	s.mu.Lock()
	s.retired = nil
	s.mu.Unlock()
	close(retired)
}
