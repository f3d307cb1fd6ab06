package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/store"
)

// What a tenant takes is asked of the database, which knows it of its files: in
// whole blocks, so that a tenant has up to some MB too much. What was written
// after that is added as it was written, before it is compressed; the database is
// asked again only when there seems to be no room. So no windows have to be
// counted when they come twice, or are replaced by what was added up anew. What
// is little is counted key by key.

// usage is that of a tenant. Its lock guards it.
type usage struct {
	known    bool
	measured int64
	when     time.Time
	since    int64     // bytes written after it was measured
	failed   time.Time // when it could not be measured

	database *database // that what follows was written to
	recent   []written
}

// written are bytes of a tenant, up to how much had been written of all tenants.
// Files lack the last of it, as much as the database's log holds for them.
type written struct{ end, bytes int64 }

const (
	// measureAgain is how long a tenant stays full until it is measured again: files
	// are merged, and what came twice is then there once.
	measureAgain = time.Second
	// little is how many bytes are counted key by key.
	little = 256 << 10
	// stride is within how many bytes of all tenants' those of one are added up.
	stride = 64 << 10
	// mostRecent is more than the log can hold that is in no file: two tables in
	// memory, or a batch that is one by itself.
	mostRecent = 16 * memtableBytes
)

// wrote counts what a commit of a tenant writes. It is being applied.
func (d *database) wrote(t *tenant, bytes int64) {
	d.written += bytes
	t.mu.Lock()
	defer t.mu.Unlock()
	u := &t.usage
	u.since += bytes
	if u.database != d { // what the one before had in memory is in files of this one
		u.database, u.recent = d, nil
	}
	if n := len(u.recent) - 1; n >= 0 && u.recent[n].end > d.written-stride && u.recent[n].bytes < stride {
		u.recent[n].end = d.written
		u.recent[n].bytes += bytes
	} else {
		u.recent = append(u.recent, written{d.written, bytes})
	}
	for u.recent[0].end < d.written-mostRecent {
		u.recent = u.recent[1:]
	}
}

// unwritten is what of a tenant is in no file, of so many bytes of all tenants.
// The tenant is locked, and nothing is being applied.
func (u *usage) unwritten(d *database, log int64) (sum int64) {
	if u.database != d {
		return 0
	}
	for _, w := range u.recent {
		if w.end > d.written-log {
			sum += w.bytes
		}
	}
	return min(sum, log)
}

// meter measures what tenants take, and refuses what their quotas have no room for.
type meter struct {
	quotas store.Quotas
	log    *slog.Logger
}

// allow refuses what a tenant has no room for, before it is looked at.
func (s *committer) allow(db *database, t *tenant, level store.Level) error {
	quota := s.meter.quotas.Of(t.name)
	if quota.Bytes == 0 || !s.meter.full(db, t, quota, level, 0, &s.applying) {
		return nil
	}
	return &store.QuotaError{What: "bytes", Limit: quota.Bytes, Later: true}
}

// held is a lock that its user holds already.
type held struct{}

func (held) Lock()   {}
func (held) Unlock() {}

// within gives the commits of a group that there is room for; the others have
// failed. No commit is being applied.
func (s *meter) within(db *database, group []*commit) (may []*commit) {
	more := map[*tenant]int64{} // bytes of the group
	for _, c := range group {
		quota := s.quotas.Of(c.tenant.name)
		level := store.Service1h // or any above the raw one
		if c.sent {
			level = store.Raw
		}
		if quota.Bytes > 0 && len(c.pairs) > 0 && s.full(db, c.tenant, quota, level, more[c.tenant], held{}) {
			c.failed = &store.QuotaError{What: "bytes", Limit: quota.Bytes, Later: true}
			continue
		}
		more[c.tenant] += int64(c.bytes)
		may = append(may, c)
	}
	return may
}

// full tells whether a tenant, with what is about to be written, has as much as it
// may. Where it seems so it is measured, while nothing is applied.
func (s *meter) full(db *database, t *tenant, quota store.Quota, level store.Level, more int64, applying sync.Locker) bool {
	t.mu.Lock()
	u := t.usage
	t.mu.Unlock()
	full := quota.Full(level, u.measured+u.since+more)
	switch {
	case time.Since(u.failed) < measureAgain: // what is damaged must not stop what is new
		return false
	case u.known && (!full || time.Since(u.when) < measureAgain):
		return full
	}
	applying.Lock()
	defer applying.Unlock()
	measured, err := s.measure(db, t)
	if err != nil {
		s.log.Error("measure what a tenant takes", "tenant", t.name, "error", err)
		t.mu.Lock()
		t.usage.failed = time.Now()
		t.mu.Unlock()
		return false
	}
	return quota.Full(level, measured.Bytes()+more)
}

// span is keys of one kind that a tenant has.
type span struct {
	from, to key
	level    store.Level
	windows  bool // else they are records, or explain some
	records  bool
}

// spans are all keys of a tenant but marks. Days that were dropped are left out:
// their files are deleted later.
func (t *tenant) spans() (all []span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, space := range []byte{spaceCalls, spaceLeaves, spaceNames, spacePlaces, spaceSeries} {
		prefix := newKey(space, t.name)
		all = append(all, span{from: prefix, to: prefix.after()})
	}
	for _, level := range levels {
		prefix := levelKey(t.name, level)
		for _, prefix := range []key{prefix, claimKey(prefix)} {
			all = append(all, span{from: append(key(nil), prefix...).number(t.dropped[level]), to: prefix.after(), level: level, windows: true})
		}
	}
	prefix := newKey(spaceRecords, t.name)
	all = append(all, span{from: append(key(nil), prefix...).number(t.dropped[recordLevel]), to: prefix.after(), records: true})
	return all
}

// measure finds out what a tenant takes. Nothing is being applied.
func (s *meter) measure(db *database, t *tenant) (*store.Usage, error) {
	for {
		before := db.Metrics()
		u, err := s.measureOnce(db, t, int64(before.WAL.Size))
		// What was flushed meanwhile is counted as in a file, and as in memory.
		if err != nil || db.Metrics().Flush.Count == before.Flush.Count {
			return u, err
		}
	}
}

// measureOnce measures where the log holds so many bytes that are in no file.
func (s *meter) measureOnce(db *database, t *tenant, log int64) (*store.Usage, error) {
	u := &store.Usage{Levels: map[store.Level]store.LevelUsage{}}
	estimated := false
	for _, one := range t.spans() {
		bytes, exact, err := db.size(one)
		if err != nil {
			return nil, fmt.Errorf("measure the store: %w", err)
		}
		estimated = estimated || !exact
		switch {
		case one.windows:
			of := u.Levels[one.level]
			of.Bytes += bytes
			u.Levels[one.level] = of
		case one.records:
			u.Records.Bytes += bytes
		default:
			u.Stacks += bytes
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if estimated {
		u.Recent = t.usage.unwritten(db, log)
	}
	t.usage.known, t.usage.when, t.usage.measured, t.usage.since = true, time.Now(), u.Bytes(), 0
	return u, nil
}

// size is what keys have been written as, if that is little, else about what they take in
// files.
func (d *database) size(s span) (bytes int64, exact bool, err error) {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: s.from, UpperBound: s.to})
	if err != nil {
		return 0, false, err
	}
	valid := it.First()
	for ; valid && bytes < little; valid = it.Next() {
		value := it.LazyValue()
		bytes += int64(len(it.Key()) + value.Len())
	}
	if err = errors.Join(it.Error(), it.Close()); err != nil && !isDamage(err) || err == nil && !valid {
		return bytes, true, err
	}
	estimate, err := d.EstimateDiskUsage(s.from, s.to)
	return int64(estimate), false, err
}

// Usage tells what a tenant takes; see store.Store.
func (s *Store) Usage(ctx context.Context, tenant string) (*store.Usage, error) {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return nil, err
	}
	defer db.release()
	s.applying.Lock()
	u, err := s.meter.measure(db, t)
	s.applying.Unlock()
	if err != nil {
		return nil, err
	}
	for level, of := range u.Levels {
		if of.First, err = db.firstDay(levelKey(tenant, level)); err != nil {
			return nil, err
		}
		u.Levels[level] = of
	}
	if u.Records.First, err = db.firstDay(newKey(spaceRecords, tenant)); err != nil {
		return nil, err
	}
	return u, ctx.Err()
}

// Largest tells which service's stacks take most, and how many bytes about.
func (s *Store) Largest(ctx context.Context, tenant string) (service string, most int64, err error) {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return "", 0, err
	}
	defer db.release()
	for _, name := range t.services() {
		prefix := newKey(spaceCalls, tenant).text(name)
		bytes, _, err := db.size(span{from: prefix, to: prefix.after()})
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return "", 0, fmt.Errorf("measure the store: %w", err)
		}
		if bytes > most {
			service, most = name, bytes
		}
	}
	return service, most, nil
}

// errFirst ends a search.
var errFirst = errors.New("the first one is enough")

// firstDay is that of the first window under a prefix; zero: there is none.
func (d *database) firstDay(prefix key) (first time.Time, err error) {
	err = d.walk(prefix, func(rest, _ []byte) error {
		if len(rest) < 4 {
			return errDamaged
		}
		first = dayTime(binary.BigEndian.Uint32(rest))
		return errFirst
	}, leftOut)
	if errors.Is(err, errFirst) {
		err = nil
	}
	return first, err
}

// room refuses to write to a disk with less than some bytes left. A database that
// runs out of it in the middle of a write has to be opened again, or ends the process.
func (s *connection) room(reserve uint64) error {
	free, readOnly, err := free(s.options.Dir)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	if readOnly {
		return fmt.Errorf("%w: the disk of %q is mounted read-only", store.ErrFull, s.options.Dir)
	}
	if free < reserve {
		return fmt.Errorf("%w: %d MB are left on the disk of %q, and %d MB must stay free", store.ErrFull, free>>20, s.options.Dir, reserve>>20)
	}
	return nil
}

// forDrops is which part of the reserve is kept from those who give room back.
const forDrops = 4

// fit refuses commits that there is no room for, and gives the others. What drops
// days makes room, and takes next to none.
func (s *committer) fit(group []*commit) (may []*commit, err error) {
	reserve := s.connection.options.Reserve
	full := s.connection.room(reserve)
	if full == nil {
		return group, nil
	}
	for _, c := range group {
		if c.drop != nil {
			may = append(may, c)
		} else {
			c.failed = full
		}
	}
	if len(may) == 0 {
		return nil, nil
	}
	return may, s.connection.room(reserve / forDrops)
}

// openBytes is what opening a database writes besides what its logs hold.
const openBytes = 4 << 20

// roomToOpen refuses to open a database to be written on a disk that is read-only,
// or has no room for what its logs hold: Pebble writes that out first, and would
// try for ever.
func (s *connection) roomToOpen() error {
	names, err := s.options.fs.List(s.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made
	}
	if err != nil {
		return err
	}
	need := uint64(openBytes)
	for _, name := range names {
		if filepath.Ext(name) != ".log" {
			continue
		}
		info, err := s.options.fs.Stat(filepath.Join(s.options.Dir, name))
		if err != nil {
			return err
		}
		need += uint64(info.Size())
	}
	free, readOnly, err := free(s.options.Dir)
	switch {
	case err != nil:
	case readOnly:
		err = fmt.Errorf("the disk of %q is mounted read-only", s.options.Dir)
	case free < need:
		err = fmt.Errorf("%d MB are left on the disk of %q, and %d MB are needed to open the store: free space, or use a directory on another disk", free>>20, s.options.Dir, need>>20)
	}
	return err
}

// free is how many bytes may still be written to the disk of a directory.
func free(dir string) (bytes uint64, readOnly bool, err error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return 0, false, fmt.Errorf("look at the disk of %q: %w", dir, err)
	}
	return at.Bavail * uint64(at.Bsize), at.Flags&unix.ST_RDONLY != 0, nil
}
