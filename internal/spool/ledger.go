package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Losses count windows that nobody has, by why.
type Losses struct {
	Dropped int `json:"dropped,omitempty"` // the oldest, to stay within the limit
	Damaged int `json:"damaged,omitempty"` // not what was written, or not to be read
	Refused int `json:"refused,omitempty"` // for good, by the receiver
	Unkept  int `json:"unkept,omitempty"`  // neither written to disk nor received, or still open when the agent was killed
}

// Add adds others.
func (l *Losses) Add(o Losses) { l.add(o, 1) }

func (l *Losses) add(o Losses, sign int) {
	l.Dropped += sign * o.Dropped
	l.Damaged += sign * o.Damaged
	l.Refused += sign * o.Refused
	l.Unkept += sign * o.Unkept
}

// All is how many windows they are.
func (l Losses) All() int { return l.Dropped + l.Damaged + l.Refused + l.Unkept }

// ledger is what is remembered of bundles that are gone. It is written before
// they go: who finds it later need not guess what had been counted.
type ledger struct {
	Next   ID     `json:"next"`   // no bundle that it names is this one or a later one
	Lost   Losses `json:"lost"`   // since the directory was made
	Untold Losses `json:"untold"` // of these, what no window tells
	// Telling is the one bundle that tells losses. If it is gone and the ledger
	// does not say that somebody took it, they are untold again.
	Telling *telling   `json:"telling,omitempty"`
	Damaged map[ID]int `json:"damaged,omitempty"` // records that bundles lack, which have been counted
	Gone    []ID       `json:"gone,omitempty"`    // bundles that have been counted, or taken: their files go
}

// telling is a record that tells losses.
type telling struct {
	Bundle ID     `json:"bundle"`
	Sum    uint32 `json:"sum"` // crc32c of the record
	Losses Losses `json:"losses"`
}

func sum(record []byte) uint32 { return crc32.Checksum(record, castagnoli) }

// lose counts losses, to be told.
func (l *ledger) lose(o Losses) {
	l.Lost.add(o, 1)
	l.Untold.add(o, 1)
}

// untell has losses told by another window than that of a bundle, unless
// somebody took it.
func (l *ledger) untell(id ID) {
	if l.Telling != nil && l.Telling.Bundle == id {
		l.Untold.add(l.Telling.Losses, 1)
		l.Telling = nil
	}
}

// readLedger reads what an earlier life has left. One that cannot be read, as a
// loss of power leaves it, counts for nothing: an agent that records matters more.
func readLedger(dir string) (l ledger) {
	data, err := os.ReadFile(filepath.Join(dir, ledgerName))
	if err != nil || json.Unmarshal(data, &l) != nil {
		l = ledger{}
	}
	if l.Damaged == nil {
		l.Damaged = map[ID]int{}
	}
	return l
}

// writeLedger keeps the ledger. Where the disk does not take it, it is tried
// again with the next change.
func (s *Spool) writeLedger() error {
	s.ledger.Next = s.next
	data, err := json.Marshal(s.ledger)
	if err == nil {
		path := filepath.Join(s.dir, ledgerName)
		if err = writeWhole(path, data); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = overwrite(path, data)
		}
	}
	s.unwritten = err != nil
	return err
}

// overwrite writes a ledger in the place of the one that is there, which takes no
// room: what a full disk loses is to be counted, also by who ends with it. Spaces
// hide the rest of a longer one.
func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	data = append(data, bytes.Repeat([]byte{' '}, max(0, int(info.Size())-len(data)))...)
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

// reconcile compares the ledger with the bundles that are there.
func (s *Spool) reconcile() {
	s.next = max(s.next, s.ledger.Next)
	for _, id := range s.ledger.Gone {
		if i := s.find(id); i >= 0 {
			s.going = append(s.going, s.bundles[i])
			s.take(i)
		}
	}
	if t := s.ledger.Telling; t != nil && s.find(t.Bundle) < 0 {
		s.ledger.untell(t.Bundle)
	}
	maps.DeleteFunc(s.ledger.Damaged, func(id ID, _ int) bool {
		return s.find(id) < 0 && !slices.ContainsFunc(s.going, func(b bundle) bool { return b.id == id })
	})
}

// Lose counts windows that were lost before the spool had them.
func (s *Spool) Lose(l Losses) {
	if l == (Losses{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.lose(l)
	_ = s.writeLedger() // it is tried again
}

// Untold is what was lost and no window tells yet; nothing while one that tells
// other losses has not been taken.
func (s *Spool) Untold() Losses {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger.Telling != nil {
		return Losses{}
	}
	return s.ledger.Untold
}

// AddTelling is Add of records one of which tells losses that were untold. They
// are told once: by this bundle, if it is taken, else by another one.
func (s *Spool) AddTelling(records [][]byte, teller int, l Losses) (ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Telling = &telling{s.next, sum(records[teller]), l}
	s.ledger.Untold.add(l, -1)
	return s.add(records)
}
