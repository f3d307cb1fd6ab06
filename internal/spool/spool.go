// Package spool keeps what was measured on disk until somebody has taken it: windows, or, in
// a directory of their own, records.
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
//
// Beside them "losses.json" says what became of windows that nobody has, and
// which of that has been told (ledger.go); the directory "damaged" has the last
// files that were not what was written.
package spool

import (
	"bytes"
	"cmp"
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

	"golang.org/x/sys/unix"
)

const (
	magic       = "atysspl1"
	suffix      = ".bundle"
	unfinished  = ".new"
	damagedDir  = "damaged"
	ledgerName  = "losses.json"
	frameHeader = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID names a bundle; later ones are larger.
type ID uint64

// Stats are what a spool holds, and what was lost since its directory was made.
type Stats struct {
	Bundles int
	Records int
	Bytes   int64
	Losses
}

// Spool is a directory of bundles. It is safe for concurrent use, but only one
// process may have it open.
type Spool struct {
	dir   string
	limit int64
	lock  *os.File

	mu        sync.Mutex // guards all below
	next      ID
	bundles   []bundle // oldest first
	stats     Stats    // but for losses, which the ledger has
	ledger    ledger
	unwritten bool     // the ledger has what its file has not
	going     []bundle // whose files are still there
	attempt   attempt
}

// attempt is the bundle that somebody ships, or tried to.
type attempt struct {
	bundle ID
	begun  bool   // else there is none
	under  bool   // way: it is not dropped
	taken  int    // of its records, as is known
	lost   Losses // and what is of the others
}

func (a *attempt) of(b bundle) bool { return a.begun && a.bundle == b.id }

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
	s := &Spool{dir: dir, limit: limit}
	var err error
	if s.lock, err = lock(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("open spool %q: %w", dir, err)
	}
	if err := s.list(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %q: %w", dir, err), s.lock.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger = readLedger(dir)
	s.reconcile()
	if err := s.shrink(0); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %q: %w", dir, err), s.lock.Close())
	}
	return s, nil
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
	slices.SortFunc(s.bundles, func(a, b bundle) int { return cmp.Compare(a.id, b.id) })
	return nil
}

func (s *Spool) count(b bundle, sign int) {
	s.stats.Bundles += sign
	s.stats.Records += sign * b.records
	s.stats.Bytes += int64(sign) * b.bytes
}

// Add keeps records as one bundle. The oldest bundles make room for it. The ID is
// that of its place among the others, also if it could not be kept.
func (s *Spool) Add(records [][]byte) (ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(records)
}

// add is Add. The lock is held, and the ledger may say that the bundle tells losses.
func (s *Spool) add(records [][]byte) (ID, error) {
	data := encode(records)
	b := bundle{id: s.next, records: len(records), bytes: int64(len(data))}
	s.next++
	if err := s.keep(b, data); err != nil {
		s.ledger.untell(b.id)
		return b.id, err
	}
	s.bundles = append(s.bundles, b)
	s.count(b, 1)
	return b.id, nil
}

func (s *Spool) keep(b bundle, data []byte) error {
	if b.bytes > s.limit {
		return fmt.Errorf("spool %d bytes: the limit of the whole spool is %d", b.bytes, s.limit)
	}
	if err := s.shrink(b.bytes); err != nil {
		return err
	}
	if t := s.ledger.Telling; s.unwritten || t != nil && t.Bundle == b.id {
		if err := s.writeLedger(); err != nil && t != nil && t.Bundle == b.id {
			return fmt.Errorf("spool what was lost: %w", err)
		}
	}
	if err := writeWhole(filepath.Join(s.dir, b.name()), data); err != nil {
		return fmt.Errorf("spool %d entries: %w", b.records, err)
	}
	return nil
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
	err := s.discard()
	for s.stats.Bytes+bytesOf(s.going)+more > s.limit {
		i := s.droppable()
		switch {
		case err != nil: // to drop others would make no room either
			return fmt.Errorf("make room in the spool: %w", err)
		case i >= 0:
			s.ledger.lose(s.lostWith(s.bundles[i]))
			s.ledger.untell(s.bundles[i].id)
			err = s.remove(i)
		case more > 0:
			return errors.New("make room in the spool: all of it is being shipped")
		default:
			return nil
		}
	}
	return nil
}

// droppable is the oldest bundle that is not being shipped; -1 if there is none.
// Those that may have been taken, and the answer lost, come last: they would count
// as lost, and be there. The very last is the one that tells losses, so that to tell
// them again might be to tell them twice.
func (s *Spool) droppable() int {
	tried, teller := -1, -1
	for i, b := range s.bundles {
		switch t := s.ledger.Telling; {
		case s.attempt.of(b) && s.attempt.under:
		case t != nil && b.id == t.Bundle:
			teller = i
		case s.attempt.of(b):
			tried = i
		default:
			return i
		}
	}
	if tried >= 0 {
		return tried
	}
	return teller
}

// lostWith is what is lost with a bundle that is dropped: not what was taken of it,
// nor what has been counted.
func (s *Spool) lostWith(b bundle) Losses {
	lost := Losses{Dropped: b.records - s.ledger.Damaged[b.id]}
	if s.attempt.of(b) {
		lost.Dropped = max(0, lost.Dropped-s.attempt.taken-s.attempt.lost.All())
		lost.Add(s.attempt.lost)
	}
	return lost
}

func bytesOf(bundles []bundle) (sum int64) {
	for _, b := range bundles {
		sum += b.bytes
	}
	return sum
}

// take has the i-th bundle be none of those that wait.
func (s *Spool) take(i int) {
	s.count(s.bundles[i], -1)
	s.bundles = slices.Delete(s.bundles, i, i+1)
}

// remove forgets the i-th bundle, of which the ledger has something to say. On a
// full disk it can be written only once the file is gone.
func (s *Spool) remove(i int) error {
	b := s.bundles[i]
	s.take(i)
	s.going = append(s.going, b)
	s.ledger.Gone = append(s.ledger.Gone, b.id)
	full := s.writeLedger() != nil
	err := s.discard()
	if full && err == nil {
		_ = s.writeLedger() // it is tried again with the next change
	}
	return err
}

// discard has the files of bundles go that are forgotten. What the disk does not
// let go is tried again.
func (s *Spool) discard() (failed error) {
	s.going = slices.DeleteFunc(s.going, func(b bundle) bool {
		path := filepath.Join(s.dir, b.name())
		aside := s.ledger.Damaged[b.id] > 0 && s.quarantine(path, b) == nil
		var err error
		if !aside { // on a full disk there is no room to lay it aside either
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
			return false
		}
		delete(s.ledger.Damaged, b.id)
		s.ledger.Gone = slices.DeleteFunc(s.ledger.Gone, func(id ID) bool { return id == b.id })
		return true
	})
	return failed
}

// mostDamaged is how many bytes of damaged bundles are kept, at most: for whoever
// wants to know why, and no burden.
func (s *Spool) mostDamaged() int64 { return min(s.limit/8, 8<<20) }

// quarantine keeps the last damaged bundles.
func (s *Spool) quarantine(path string, b bundle) error {
	dir := filepath.Join(s.dir, damagedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, b.name())); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir) // by name: the oldest first
	if err != nil {
		return err
	}
	kept := int64(0)
	for _, e := range slices.Backward(entries) {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if kept += info.Size(); kept > s.mostDamaged() {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
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

// DamagedError says that records of a bundle are not what was written, or cannot
// be read. They have been counted; the others are sound.
type DamagedError struct {
	Records int
	Err     error // nil: they were read, and are something else
}

func (e *DamagedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%d entries of the spool cannot be read: %v", e.Records, e.Err)
	}
	return fmt.Sprintf("%d entries of the spool are not what was written", e.Records)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Read gives a bundle's records, none if it is gone, to be shipped: until Done or
// Release it is not dropped. Damaged records are left out; the first time they are
// counted, and told in a DamagedError beside the others.
func (s *Spool) Read(id ID) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i < 0 {
		return nil, nil
	}
	b := s.bundles[i]
	data, err := os.ReadFile(filepath.Join(s.dir, b.name()))
	if passes(err) {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	if !s.attempt.of(b) {
		s.attempt = attempt{bundle: id, begun: true}
	}
	s.attempt.under = true
	records := decode(data)
	lack := b.records - len(records) - s.ledger.Damaged[id]
	if lack <= 0 {
		return records, nil
	}
	s.ledger.Damaged[id] += lack
	s.ledger.lose(Losses{Damaged: lack})
	if t := s.ledger.Telling; t != nil && !slices.ContainsFunc(records, func(r []byte) bool { return sum(r) == t.Sum }) {
		s.ledger.untell(id)
	}
	_ = s.writeLedger() // it is tried again with the next change
	return records, &DamagedError{lack, err}
}

// passes tells of errors that say nothing of the file.
func passes(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EINTR, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Release says that a bundle that was read could not be shipped now, as far as is
// known. Some of its records were taken before, others never will be: those are
// counted if the bundle is dropped, else by DoneBut.
func (s *Spool) Release(taken [][]byte, lost Losses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempt
	a.under, a.taken, a.lost = false, len(taken), lost
	if t := s.ledger.Telling; t != nil && t.Bundle == a.bundle && slices.ContainsFunc(taken, func(r []byte) bool { return sum(r) == t.Sum }) {
		s.ledger.Telling = nil
		_ = s.writeLedger() // it is tried again with the next change
	}
}

// Done forgets a bundle that somebody has taken. One that is gone is no error; nor
// is it there any more after one.
func (s *Spool) Done(id ID) error { return s.DoneBut(id, Losses{}, nil) }

// DoneBut is Done where some records were not taken, and never will be.
func (s *Spool) DoneBut(id ID, lost Losses, records [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt.under = false
	i := s.find(id)
	if i < 0 {
		return nil
	}
	b, t := s.bundles[i], s.ledger.Telling
	tells := t != nil && t.Bundle == id
	if tells && slices.ContainsFunc(records, func(r []byte) bool { return sum(r) == t.Sum }) {
		s.ledger.untell(id)
	} else if tells {
		s.ledger.Telling = nil
	}
	s.ledger.lose(lost)
	var err error
	if tells || lost != (Losses{}) || s.ledger.Damaged[id] > 0 {
		err = s.remove(i)
	} else { // nothing is to be remembered of it
		s.take(i)
		s.going = append(s.going, b)
		err = s.discard()
	}
	if err != nil {
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
	stats := s.stats
	stats.Losses = s.ledger.Lost
	return stats
}

// Close lets another process open the spool.
func (s *Spool) Close() error { return s.lock.Close() }

func encode(records [][]byte) []byte {
	data := []byte(magic)
	for _, r := range records {
		data = binary.LittleEndian.AppendUint32(data, uint32(len(r)))
		data = binary.LittleEndian.AppendUint32(data, sum(r))
		data = append(data, r...)
	}
	return data
}

// decode gives the records that are what was written. A length that leads out
// of the file ends it: where the next record begins is not known.
func decode(data []byte) (records [][]byte) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	for ok && len(rest) >= frameHeader {
		length, written := int64(binary.LittleEndian.Uint32(rest)), binary.LittleEndian.Uint32(rest[4:])
		rest = rest[frameHeader:]
		if length > int64(len(rest)) {
			break
		}
		if sum(rest[:length]) == written {
			records = append(records, rest[:length])
		}
		rest = rest[length:]
	}
	return records
}
