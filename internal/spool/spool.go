// Package spool keeps what was measured on disk until somebody has taken it.
//
// What is cut at one time is one bundle, one file; it is whole or not there:
//
//	SEQUENCE-COUNT.bundle    hexadecimal number, records in it
//	    "atysspl1"
//	    length   4 bytes, little-endian  } for each
//	    crc32c   4 bytes, of the record  } record
//	    record   length bytes            }
//
// Files outlive the process that wrote them, not a loss of power: what the last
// seconds held is not worth a sync of every agent's disk every ten seconds.
package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	magic       = "atysspl1"
	suffix      = ".bundle"
	unfinished  = ".new"
	damagedDir  = "damaged"
	frameHeader = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID names a bundle; later ones are larger.
type ID uint64

// Stats are what a spool holds and what became of what it does not. Counts are
// of records since the spool was opened.
type Stats struct {
	Bundles int
	Records int
	Bytes   int64
	Dropped int // the oldest, to stay within the limit
	Damaged int // not what was written; the file lies in the directory "damaged"
}

// Spool is a directory of bundles. It is safe for concurrent use, but only one
// process may have it open.
type Spool struct {
	dir   string
	limit int64
	lock  *os.File

	mu      sync.Mutex // guards all below
	next    ID
	bundles []bundle // oldest first
	stats   Stats
	// mended are damaged bundles, each of which is counted once.
	mended map[ID]bool
}

type bundle struct {
	id      ID
	records int
	bytes   int64
}

func (b bundle) name() string { return fmt.Sprintf("%016x-%d%s", uint64(b.id), b.records, suffix) }

// Open opens a directory, or makes it. A spool holds at most limit bytes.
func Open(dir string, limit int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s := &Spool{dir: dir, limit: limit, mended: map[ID]bool{}}
	var err error
	if s.lock, err = lock(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("open spool %q: %w", dir, err)
	}
	if err := s.list(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %q: %w", dir, err), s.lock.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.shrink(0)
}

// list finds what an earlier life has left. What it did not finish is removed.
func (s *Spool) list() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
			continue
		}
		var b bundle
		if n, _ := fmt.Sscanf(e.Name(), "%016x-%d"+suffix, &b.id, &b.records); n != 2 || b.name() != e.Name() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		b.bytes = info.Size()
		s.bundles = append(s.bundles, b)
		s.count(b, 1)
		s.next = max(s.next, b.id+1)
	}
	slices.SortFunc(s.bundles, func(a, b bundle) int { return int(int64(a.id - b.id)) })
	return nil
}

func (s *Spool) count(b bundle, sign int) {
	s.stats.Bundles += sign
	s.stats.Records += sign * b.records
	s.stats.Bytes += int64(sign) * b.bytes
}

// Add keeps records as one bundle. The oldest bundles make room for it.
func (s *Spool) Add(records [][]byte) (ID, error) {
	data := encode(records)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := bundle{id: s.next, records: len(records), bytes: int64(len(data))}
	if b.bytes > s.limit {
		return 0, fmt.Errorf("spool %d bytes: the limit of the whole spool is %d", b.bytes, s.limit)
	}
	if err := s.shrink(b.bytes); err != nil {
		return 0, err
	}
	if err := writeWhole(filepath.Join(s.dir, b.name()), data); err != nil {
		return 0, fmt.Errorf("spool %d windows: %w", len(records), err)
	}
	s.next++
	s.bundles = append(s.bundles, b)
	s.count(b, 1)
	return b.id, nil
}

// writeWhole writes a file that is never seen in part.
func writeWhole(path string, data []byte) error {
	if err := os.WriteFile(path+unfinished, data, 0o600); err != nil {
		return errors.Join(err, os.Remove(path+unfinished))
	}
	return os.Rename(path+unfinished, path)
}

// shrink drops the oldest bundles until so many more bytes have room.
func (s *Spool) shrink(more int64) error {
	for len(s.bundles) > 0 && s.stats.Bytes+more > s.limit {
		oldest := s.bundles[0]
		if err := s.remove(0); err != nil {
			return fmt.Errorf("make room in the spool: %w", err)
		}
		s.stats.Dropped += oldest.records
	}
	return nil
}

// remove forgets the i-th bundle, and keeps its file aside if it is damaged.
func (s *Spool) remove(i int) (err error) {
	b := s.bundles[i]
	path := filepath.Join(s.dir, b.name())
	if s.mended[b.id] {
		err = s.quarantine(path, b)
	} else {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(s.mended, b.id)
	s.bundles = slices.Delete(s.bundles, i, i+1)
	s.count(b, -1)
	return nil
}

// quarantine keeps the last damaged bundle for whoever wants to know why.
func (s *Spool) quarantine(path string, b bundle) error {
	dir := filepath.Join(s.dir, damagedDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Rename(path, filepath.Join(dir, b.name()))
}

// Oldest gives up to n bundles, oldest first.
func (s *Spool) Oldest(n int) (ids []ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bundles[:min(n, len(s.bundles))] {
		ids = append(ids, b.id)
	}
	return ids
}

// Read gives a bundle's records, none if it is gone. Damaged ones are counted
// and left out.
func (s *Spool) Read(id ID) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i < 0 {
		return nil, nil
	}
	b := s.bundles[i]
	data, err := os.ReadFile(filepath.Join(s.dir, b.name()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	records := decode(data)
	if lack := b.records - len(records); lack > 0 && !s.mended[id] {
		s.mended[id] = true
		s.stats.Damaged += lack
	}
	return records, nil
}

// Done forgets a bundle that somebody has taken. One that is gone is no error.
func (s *Spool) Done(id ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i < 0 {
		return nil
	}
	if err := s.remove(i); err != nil {
		return fmt.Errorf("remove from spool: %w", err)
	}
	return nil
}

func (s *Spool) find(id ID) int {
	return slices.IndexFunc(s.bundles, func(b bundle) bool { return b.id == id })
}

// Stats tells what is there.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close lets another process open the spool.
func (s *Spool) Close() error { return s.lock.Close() }

func encode(records [][]byte) []byte {
	data := []byte(magic)
	for _, r := range records {
		data = binary.LittleEndian.AppendUint32(data, uint32(len(r)))
		data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(r, castagnoli))
		data = append(data, r...)
	}
	return data
}

// decode gives the records that are what was written. A length that leads out
// of the file ends it: where the next record begins is not known.
func decode(data []byte) (records [][]byte) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	for ok && len(rest) >= frameHeader {
		length, sum := int64(binary.LittleEndian.Uint32(rest)), binary.LittleEndian.Uint32(rest[4:])
		rest = rest[frameHeader:]
		if length > int64(len(rest)) {
			break
		}
		if crc32.Checksum(rest[:length], castagnoli) == sum {
			records = append(records, rest[:length])
		}
		rest = rest[length:]
	}
	return records
}
